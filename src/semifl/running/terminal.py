"""What a person sees while a run goes on: a live line in a terminal, warnings alone elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from semifl.configuration.build import World
from semifl.records.record import RoundRecord
from semifl.running.context import Observer, Silent


class Live(Silent):
    """A progress bar with the accuracy, how much the clients are confident about, and how many abstained."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("preparing", total=None, facts="")

    def labels_only(self, accuracy: float) -> None:
        self._progress.console.print(f"labels only: {accuracy:.1f} %")

    def begin(self, world: World, first_round: int) -> None:
        rounds = world.config.run.rounds
        self._progress.update(self._task, description="rounds", total=rounds, completed=first_round - 1)

    def round(self, record: RoundRecord, best: float) -> None:
        ratio = record["label_ratio"]
        facts = [f"accuracy {record['accuracy']:.1f} % (best {best:.1f})"]
        if ratio is not None:
            facts.append(f"confident {100 * ratio:.0f} %")
        if record["abstained"]:
            facts.append(f"{len(record['abstained'])} of {len(record['cohort'])} abstained")
        self._progress.update(self._task, completed=record["round"], facts=" · ".join(facts))

    def warn(self, message: str) -> None:
        self._progress.console.print(f"warning: {message}", style="yellow")


class Quiet(Silent):
    """For logs and pipes: warnings alone."""

    def warn(self, message: str) -> None:
        print(f"warning: {message}", file=sys.stderr)


@contextmanager
def display() -> Iterator[Observer]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Quiet()
        return
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn()]
    columns += [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[facts]}")]
    with Progress(*columns, console=console) as progress:
        yield Live(progress)
