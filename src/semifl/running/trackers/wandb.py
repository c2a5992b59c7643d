"""Runs for Weights & Biases: files in RUN/wandb to be sent with `wandb sync`; at once only if WANDB_MODE is online."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import wandb

from semifl.running.trackers import Settings, Tracker, keep_id, known_id


class WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, numbers: dict[str, float], round: int) -> None:
        self._run.log({**numbers, "round": round}, step=round)

    def close(self) -> None:
        self._run.finish()


def open_tracker(directory: Path, settings: Settings) -> Tracker:
    """Under the name that it had before, if this run goes on: what is sent later is put together."""
    number, _ = known_id(directory, "wandb")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "semifl"),
        name=directory.name,
        id=number,
        resume="allow",
        dir=directory,
        mode="online" if os.environ.get("WANDB_MODE") == "online" else "offline",
        config=settings,
        settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
    )
    keep_id(directory, "wandb", number)
    return WandbRun(run)
