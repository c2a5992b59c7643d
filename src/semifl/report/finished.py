"""Run directories as plain facts, for whoever compares them. No torch here, and a damaged run is only left out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from semifl.errors import UserError


class FinishedRun(NamedTuple):
    path: Path
    seed: int
    settings: dict[str, Any]  # by dotted key, without the seed
    result: dict[str, Any]


def finished_run(path: Path) -> FinishedRun:
    try:
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
        seed = int(config.pop("seed", 0))
        float(result["accuracy"])
    except FileNotFoundError as error:
        what = "is not a run directory" if error.filename.endswith("config.toml") else "is not finished"
        raise UserError(f"{path} {what}: it has no {Path(error.filename).name}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: its configuration or result cannot be read") from error
    return FinishedRun(path, seed, dotted(config), result)


def dotted(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= dotted(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def groups(runs: list[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Runs that differ by their seed alone, together; each group named by what sets it apart from the others."""
    keys = list(dict.fromkeys(key for run in runs for key in run.settings))
    varied = [key for key in keys if len({_text(run, key) for run in runs}) > 1]
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        name = ", ".join(f"{key} = {_text(run, key)}" for key in varied if key in run.settings)
        found.setdefault(name or str(run.settings.get("method.name", "all")), []).append(run)
    for name, members in found.items():
        seeds = [run.seed for run in members]
        if len(set(seeds)) < len(seeds):
            twice = next(run for run in members if seeds.count(run.seed) > 1)
            raise UserError(f"{twice.path} is there twice: two runs have the same settings and seed ({name})")
    return found


def _text(run: FinishedRun, key: str) -> str:
    return json.dumps(run.settings[key], ensure_ascii=False) if key in run.settings else "–"
