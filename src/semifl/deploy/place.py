"""Where a machine's pictures lie: written into its kit when it starts, read by the processes that train there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from semifl.durable import replace_text
from semifl.errors import UserError


@dataclass(frozen=True)
class PlaceOfData:
    data: Path
    labels: Path | None = None  # a site's own labeled pictures
    device: str = "cpu"


def write_place(folder: Path, place: PlaceOfData) -> None:
    facts = {"data": str(place.data), "labels": str(place.labels) if place.labels else None, "device": place.device}
    replace_text(folder / "place.json", json.dumps(facts, indent=1) + "\n")


def read_place(folder: Path) -> PlaceOfData:
    try:
        facts = json.loads((folder / "place.json").read_text(encoding="utf-8"))
        return PlaceOfData(Path(facts["data"]), Path(facts["labels"]) if facts["labels"] else None, facts["device"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} does not say where its pictures are: start it with --data") from error
