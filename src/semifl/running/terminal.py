"""What a person sees while a run goes on: a live line in a terminal, a line per round elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from semifl.configuration.build import World
from semifl.records.metrics import WORDS, Metric, standing
from semifl.records.record import RoundRecord, absent
from semifl.running.context import BaselineProgress, Observer, Silent
from semifl.words import counted, printable

SECONDS_BETWEEN = 10.0  # between two lines of a labels-only model in a log


class Bar(Progress):
    """A line with the bar, and below it one with what there is to know; each fits 80 columns."""

    facts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.facts:
            yield Text(self.facts, no_wrap=True, overflow="ellipsis")


class Live(Silent):
    """First the labels-only model's bar, then that of the rounds, with the metric that decides and who abstained."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._metric: Metric = "accuracy"
        self._rounds = self._first = 1
        self._task = bar.add_task("preparing", total=None, count="")

    def begin(self, world: World, first_round: int) -> None:
        self._rounds, self._first, self._metric = world.config.run.rounds, first_round, world.config.run.metric
        self._start("round", first_round - 1)

    def baseline(self, progress: BaselineProgress) -> None:
        what = f"labels only, {progress.model} of {progress.models}"
        if not self._is_of(what):
            self._start(what, progress.done)
        self._advance(progress.done, progress.rounds)
        if progress.is_last:
            self._start("round", self._first - 1)

    def labels_only(self, value: float) -> None:
        self._bar.console.print(f"labels only: {WORDS[self._metric]} {value:.1f} %", highlight=False)

    def round(self, record: RoundRecord, best: float | None) -> None:
        self._bar.facts = facts_of(record, best, self._metric)
        self._advance(record["round"], self._rounds)

    def warn(self, message: str) -> None:
        self._bar.console.print(printable(f"warning: {message}"), style="yellow", markup=False, emoji=False)

    def _is_of(self, what: str) -> bool:
        return any(task.description == what for task in self._bar.tasks)

    def _start(self, what: str, done: int) -> None:
        """A bar of its own, so that what is left is guessed from this kind of work alone."""
        self._bar.remove_task(self._task)
        count = f"{done}/{self._rounds}"
        self._task = self._bar.add_task(what, total=self._rounds, completed=done, count=count)

    def _advance(self, done: int, rounds: int) -> None:
        self._bar.update(self._task, completed=done, count=f"{done}/{rounds}")


class BaselineLines:
    """Which states of labels-only models are worth a line in a log: the first of each, then one now and then."""

    def __init__(self) -> None:
        self._told: BaselineProgress | None = None
        self._at = 0.0

    def line(self, progress: BaselineProgress) -> str:
        """Return the line, or nothing if it is too soon for another."""
        now = time.monotonic()
        is_new = self._told is None or progress.model != self._told.model
        if progress == self._told or (not is_new and now - self._at < SECONDS_BETWEEN):
            return ""
        self._told, self._at = progress, now
        return str(progress)


class Lines(Silent):
    """For logs and pipes: a line for each round, written at once, and warnings."""

    def __init__(self) -> None:
        self._metric: Metric = "accuracy"
        self._rounds = 1
        self._baselines = BaselineLines()

    def begin(self, world: World, first_round: int) -> None:
        self._rounds, self._metric = world.config.run.rounds, world.config.run.metric
        done = f", going on after {first_round - 1}" if first_round > 1 else ""
        self._say(f"training for {counted(self._rounds, 'round')}{done}")

    def baseline(self, progress: BaselineProgress) -> None:
        if line := self._baselines.line(progress):
            self._say(line)

    def labels_only(self, value: float) -> None:
        self._say(f"labels only: {WORDS[self._metric]} {value:.1f} %")

    def round(self, record: RoundRecord, best: float | None) -> None:
        self._say(f"round {record['round']} of {self._rounds}: {facts_of(record, best, self._metric)}")

    def warn(self, message: str) -> None:
        self._say(f"warning: {message}")

    def _say(self, line: str) -> None:
        print(printable(line), file=sys.stderr, flush=True)


def facts_of(record: RoundRecord, best: float | None, metric: Metric) -> str:
    """A round in less than a line: how good its model is, what clients are confident about, who gave nothing."""
    facts = [standing(record, best, metric)]
    if record["label_ratio"] is not None:
        facts.append(f"confident {100 * record['label_ratio']:.0f} %")
    for outcome, clients in absent(record).items():
        facts.append(f"{len(clients)} of {len(record['cohort'])} {outcome}")
    return " · ".join(facts)


@contextmanager
def display() -> Iterator[Observer]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[count]}")]
    with Bar(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        yield Live(bar)
