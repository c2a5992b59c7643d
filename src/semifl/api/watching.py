"""Who watches a run from Python: a line in a terminal, a bar in a notebook, and the caller's own function."""

from __future__ import annotations

import html
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from semifl.configuration.build import World
from semifl.records.metrics import WORDS, Metric, standing
from semifl.records.record import RoundRecord
from semifl.running.context import BaselineProgress, Observer, Silent
from semifl.running.terminal import display

OnRound = Callable[[RoundRecord], Any]


class Watcher:
    """Passes everything on to the display, and each round to the caller's function, which may end the run."""

    def __init__(self, shown: Observer, on_round: OnRound | None) -> None:
        self._shown, self._on_round = shown, on_round
        self.begin, self.baseline, self.labels_only, self.warn = (
            shown.begin,
            shown.baseline,
            shown.labels_only,
            shown.warn,
        )

    def round(self, record: RoundRecord, best: float | None) -> None:
        self._shown.round(record, best)
        if self._on_round and self._on_round(record) is False:
            raise StopIteration


class NotebookBar(Silent):
    """A bar that a notebook draws itself, so no extension is needed; warnings are lines above it."""

    def __init__(self, show: Callable[..., Any], html_of: Callable[[str], Any]) -> None:
        self._html_of = html_of
        self._notes: list[str] = []
        self._metric: Metric = "accuracy"
        self._rounds, self._done, self._facts = 1, 0, "preparing"
        self._handle = show(html_of(self._text()), display_id=True)

    def begin(self, world: World, first_round: int) -> None:
        self._rounds, self._metric = world.config.run.rounds, world.config.run.metric
        self._update(first_round - 1, "")

    def baseline(self, progress: BaselineProgress) -> None:
        self._update(self._done, f"({progress})")

    def labels_only(self, value: float) -> None:
        self._note(f"labels only: {WORDS[self._metric]} {value:.1f} %")

    def warn(self, message: str) -> None:
        self._note(f"warning: {message}")

    def round(self, record: RoundRecord, best: float | None) -> None:
        self._update(record["round"], standing(record, best, self._metric))

    def _note(self, line: str) -> None:
        self._notes.append(line)
        self._update(self._done, self._facts)

    def _update(self, done: int, facts: str) -> None:
        self._done, self._facts = done, facts
        self._handle.update(self._html_of(self._text()))

    def _text(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._rounds}"></progress>'
        lines = [html.escape(line) for line in self._notes]
        return "<br>".join([*lines, f"{bar} round {self._done}/{self._rounds} {html.escape(self._facts)}"])


@contextmanager
def watching(progress: bool, on_round: OnRound | None) -> Iterator[Observer]:
    if not progress:
        yield Watcher(Silent(), on_round)
    elif in_notebook():
        notebook = importlib.import_module("IPython.display")
        yield Watcher(NotebookBar(notebook.display, notebook.HTML), on_round)
    else:
        with display() as shown:
            yield Watcher(shown, on_round)


def in_notebook() -> bool:
    """Whether an IPython kernel, and not a terminal, runs this."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")
