"""How a thing that a program hands over is written into config.toml, so that it can be found again if at all."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import Any

from semifl.registry import HANDED_OVER


def name_of(thing: Any) -> str:
    """`module:name` if any process can import the thing by it; otherwise a name that leads nowhere and says so."""
    module, name = str(getattr(thing, "__module__", "")), str(getattr(thing, "__name__", type(thing).__name__))
    if name.isidentifier() and is_importable(module) and getattr(sys.modules.get(module), name, None) is thing:
        return f"{module}:{name}"
    return f"{HANDED_OVER}{name}"


def is_importable(module: str) -> bool:
    """Whether another process could import the module: not the running script or notebook, nor a file outside."""
    top = module.partition(".")[0]
    return top != "__main__" and (top in sys.builtin_module_names or PathFinder.find_spec(top) is not None)
