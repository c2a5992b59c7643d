"""What worker processes need: things that can travel to them."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any

from semifl.api.models import Given
from semifl.api.names import is_importable


class _Travel(pickle.Pickler):
    """A pickler that refuses what another process could not import."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, (type, FunctionType)) and not is_importable(thing.__module__):
            raise pickle.PicklingError(f"{thing.__qualname__} is defined in the script or notebook itself")
        if isinstance(thing, Given):
            return Given, (thing.module,)  # its own way packs the module at once, out of our sight
        return NotImplemented


def why_not(things: Any) -> str:
    """Why these things cannot travel to a worker process; nothing if they can."""
    try:
        _Travel(io.BytesIO()).dump(things)
    except Exception as error:  # a person's own class may fail in its own way
        return " ".join(str(error).split()) or type(error).__name__
    return ""
