"""The report: run directories in, one self-contained page out. It asks nothing of the network and runs no script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, Template

from semifl.durable import replace_text
from semifl.records.metrics import METRICS, WORDS, Metric, of_the_kept, said
from semifl.records.record import number
from semifl.report.advice import advise, advise_together
from semifl.report.class_figures import calibration, classes, confusion
from semifl.report.figures import Figure, bytes_figure, learning_figures, seconds_figure
from semifl.report.groups import Group, group_runs
from semifl.report.pictures import Gallery, galleries
from semifl.report.reading import Run, read_run
from semifl.report.site_figures import confidence, participation

MOST_EVENTS = 100


@dataclass(frozen=True)
class Notes:
    """What is wrong with a run's files, and what its numbers suggest."""

    title: str
    problems: list[str]
    advice: list[str]

    @property
    def count(self) -> int:
        return len(self.problems) + len(self.advice)


@dataclass(frozen=True)
class Section:
    """All of one run that cannot be overlaid with others."""

    run: Run
    title: str
    figures: list[Figure]
    galleries: list[Gallery]
    gallery_note: str  # why some are missing
    settings: list[list[str]]
    environment: list[list[str]]
    events: list[list[str]]


def write_report(paths: Sequence[Path], out: Path) -> Path:
    """Read the runs and write the page in one step, so that nobody ever opens half of it."""
    replace_text(out, page(paths))
    return out


def page(paths: Sequence[Path], stamp: str = "") -> str:
    """The whole page; with a stamp it watches for a newer one of itself."""
    runs = [read_run(path) for path in dict.fromkeys(paths)]
    groups = group_runs(runs)
    notes = [
        Notes("all runs", [], advise_together(groups)),
        *(_notes(run, group.label) for group in groups for run in group.runs),
    ]
    text = _template().render(
        title=_title(groups),
        runs=runs,
        groups=groups,
        tiles=_tiles(groups[0]) if len(groups) == 1 else [],
        scores=_scores(groups[0]) if len(groups) == 1 else [],
        scores_header=["on the test pictures", *_scored_models(groups[0]).values()],
        overview=_overview(groups) if len(runs) > 1 else [],
        overview_header=_overview_header(groups[0].metric),
        figures=learning_figures(groups),
        notes=[note for note in notes if note.count],
        sections=[_section(group.runs[0], group.label) for group in groups],
        stamp=stamp,
    )
    return text.encode("utf-8", "backslashreplace").decode()  # a run may lie in a folder of any name


@cache
def _template() -> Template:
    """Everything that comes from files is escaped on its way into the page."""
    loader = PackageLoader("semifl.report")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template("page.html")


def _title(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs]
    data = ", ".join(dict.fromkeys(run.dataset for run in runs))
    methods = ", ".join(dict.fromkeys(run.method for run in runs))
    if len(runs) == 1:
        return f"{methods} on {data}, seed {runs[0].seed}"
    return f"{methods} on {data}, {len(runs)} runs"


def _notes(run: Run, label: str) -> Notes:
    return Notes(f"{label}, seed {run.seed}", [*run.problems, *galleries(run)[1]], advise(run))


def _section(run: Run, label: str) -> Section:
    makers = (participation, confidence, classes, confusion, calibration, seconds_figure, bytes_figure)
    return Section(
        run,
        f"{label}, seed {run.seed}",
        [make(run) for make in makers],
        galleries(run)[0],
        str(run.gallery.get("note") or ""),
        [[name, _plain(value)] for name, value in run.settings.items()],
        [[name, _plain(value)] for name, value in run.environment.items()],
        [_event(event) for event in run.events[-MOST_EVENTS:]],
    )


def _tiles(group: Group) -> list[tuple[str, str]]:
    """The outcome in a few large numbers, means where there are several seeds."""
    metric, kept = group.metric, next((of_the_kept(run.result) for run in group.runs if run.is_finished), "")
    value, reached = group.result(f"{kept}{metric}"), group.by_run(f"{kept}{metric}")
    name, other = WORDS[metric], group.result(metric if kept else f"best_{metric}")
    so_far = group.series(metric)
    if value is None and so_far:
        name, value = f"{name} so far", so_far[-1].mean
        other = max(point.mean for point in so_far)
        reached = [run.series(metric).get(so_far[-1].round) for run in group.runs]
    alone, plain = group.by_run(f"labels_only_{metric}"), group.by_run(f"plain_labels_only_{metric}")
    tiles = [(f"{name}, best on labels held out" if kept else name, _percent(value))]
    tiles.append(("labels only", _percent(group.result(f"labels_only_{metric}"))))
    tiles += _brought("this use of the labels brought", alone, plain)
    tiles += _brought("the clients brought", reached, alone)
    tiles.append(("final model" if kept else "best round", _percent(other)))
    tiles.append(("rounds", " / ".join(dict.fromkeys(_progress(run) for run in group.runs))))
    seconds = group.result("seconds")
    tiles.append(("time", _duration(seconds) if seconds is not None else "–"))
    return tiles


def _brought(words: str, reached: Sequence[float | None], before: Sequence[float | None]) -> list[tuple[str, str]]:
    """The mean difference of runs that have both numbers; means by themselves may be of other seeds."""
    pairs = zip(reached, before, strict=True)
    found = [more - less for more, less in pairs if more is not None and less is not None]
    if not found:
        return []
    some = "" if len(found) == len(reached) else f", in {len(found)} of {len(reached)} runs"
    return [(f"{words}{some}", f"{fmean(found):+.1f} points")]


def _scores(group: Group) -> list[list[str]]:
    """Every number of the final model, of the best round and of the labels-only models, side by side."""
    rows, prefixes = [], list(_scored_models(group))
    for name, word in WORDS.items():
        values = [group.result(f"{prefix}{name}") for prefix in prefixes]
        if any(value is not None for value in values):
            rows.append([word, *(said(name, value) for value in values)])
    return rows


def _scored_models(group: Group) -> dict[str, str]:
    """The models whose numbers a result has, by the beginning of their names; only some methods have the last."""
    models = {"": "final model", "best_": "best round", "labels_only_": "labels only"}
    if group.result("plain_labels_only_accuracy") is not None:
        models["plain_labels_only_"] = "labels only, by weak views"
    return models


def _overview_header(metric: Metric) -> list[str]:
    others = [WORDS[name] for name in METRICS if name != metric]
    return ["runs", "seed", "rounds", WORDS[metric], "labels only", "best round", *others, "directory"]


def _overview(groups: Sequence[Group]) -> list[list[str]]:
    """A row per run, and one of means per group that has several."""
    metric = groups[0].metric
    keys = [metric, f"labels_only_{metric}", f"best_{metric}", *(name for name in METRICS if name != metric)]
    rows = []
    for group in groups:
        for run in group.runs:
            scores = (_percent(number(run.outcome.get(key))) for key in keys)
            rows.append([group.label, str(run.seed), _progress(run), *scores, str(run.path)])
        if len(group.runs) > 1:
            means = (_percent(group.result(key)) for key in keys)
            rows.append([group.label, "mean", "", *means, ""])
    return rows


def _progress(run: Run) -> str:
    wanted = run.config.get("rounds")
    done = len(run.rounds)
    return str(done) if run.is_finished or wanted is None else f"{done} of {wanted}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _event(event: dict[str, Any]) -> list[str]:
    rest = {key: value for key, value in event.items() if key not in ("time", "event", "environment")}
    return [
        _plain(event.get("time")),
        _plain(event.get("event")),
        ", ".join(f"{k}: {_plain(v)}" for k, v in rest.items()),
    ]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return " ".join(value)
    return json.dumps(value, default=str, ensure_ascii=False)
