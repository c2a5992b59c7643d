"""A progress bar for the two things a person waits for: downloads and the first decoding of a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]  # (done, total); a total of 0 means that nobody knows


@contextmanager
def bar(what: str, unit: str) -> Iterator[Progress]:
    """A bar on stderr if somebody is looking at it, else silence; `unit` is "bytes" or the plural of the things."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    count = [DownloadColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
    columns = [TextColumn("{task.description}"), BarColumn(), *count, TimeRemainingColumn()]
    with Display(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(what, total=None)
        yield lambda done, total: display.update(task, completed=done, total=total or None)
