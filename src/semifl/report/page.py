"""The report: run directories in, one self-contained page out. It asks nothing of the network and runs no script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, Template

from semifl.durable import replace_text
from semifl.records.metrics import METRICS, WORDS, Metric, of_the_kept, said
from semifl.records.record import number
from semifl.records.verdict import (
    baseline,
    comparison,
    difference,
    faults,
    model_of,
    parts_of_the_gain,
    verdict,
    with_interval,
)
from semifl.report.advice import advise, advise_together
from semifl.report.class_figures import calibration, classes, confusion
from semifl.report.comparison import Difference, paired
from semifl.report.figures import Figure, bytes_figure, learning_figures, seconds_figure
from semifl.report.groups import Group, group_runs, mean
from semifl.report.pictures import Gallery, galleries
from semifl.report.reading import Run, read_run
from semifl.report.site_figures import confidence, participation
from semifl.words import counted

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
        *(_notes(run, group.label, len(runs) == 1) for group in groups for run in group.runs),
    ]
    text = _template().render(
        title=_title(groups),
        runs=runs,
        groups=groups,
        verdicts=_verdicts(groups),
        parts=parts_of_the_gain(runs[0].outcome) if len(runs) == 1 and runs[0].is_finished else [],
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


def _notes(run: Run, label: str, is_alone: bool) -> Notes:
    """A run that is alone on the page has its faults above everything else."""
    found = [] if is_alone else [f"{fault.sentence} {fault.remedy}" for fault in faults(run.outcome)]
    return Notes(f"{label}, seed {run.seed}", [*run.problems, *galleries(run)[1], *found], advise(run))


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


def _verdicts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The first sentences of the page, each with its remedy: of one run its verdict, of several one of each group."""
    runs = [run for group in groups for run in group.runs]
    if len(runs) > 1:
        bad = [run for run in runs if faults(run.outcome)]
        some = f"{counted(len(bad), 'run')} of {len(runs)} ended with a faulty model: see the notes."
        compared = [(_of_group(group), "") for group in groups if mean(group.alone(group.metric)) is not None]
        return [(some, ""), *compared] if bad else compared
    if not runs[0].is_finished:
        return []
    found = faults(runs[0].outcome)
    rest = verdict(runs[0].outcome)[len(found) :]
    return [*((fault.sentence, fault.remedy) for fault in found), *((sentence, "") for sentence in rest)]


def _of_group(group: Group) -> str:
    """Whether clients helped, over the seeds of a group, or in its only run."""
    seeds = [run for run in group.runs if run.is_finished]
    if len(seeds) == 1:
        return f"{group.label}: {comparison(seeds[0].outcome)}"
    gap = _over_seeds(group.reached(group.metric), group.alone(group.metric))
    if gap is None:
        return f"{group.label}: no run is finished."
    how = "better than" if gap.low > 0 else "worse than" if gap.high < 0 else "cannot be told from"
    return f"{group.label}: {how} labels alone, {WORDS[group.metric]} {_points(gap)} over {gap.seeds} seeds."


def _over_seeds(reached: Sequence[float | None], alone: Sequence[float | None]) -> Difference | None:
    """The difference of runs that have both numbers; means by themselves may be of other seeds."""
    ours, theirs = (
        {place: value for place, value in enumerate(values) if value is not None} for values in (reached, alone)
    )
    return paired(ours, theirs)


def _points(gap: Difference) -> str:
    ends = "" if gap.seeds == 1 else f" [{gap.low:+.1f}, {gap.high:+.1f}]"
    return f"{gap.mean:+.1f} points{ends}"


def _tiles(group: Group) -> list[tuple[str, str]]:
    """The outcome in a few large numbers, means where there are several seeds."""
    metric, kept = group.metric, next((of_the_kept(run.result) for run in group.runs if run.is_finished), "")
    name, reached = f"{WORDS[metric]}, best on labels held out" if kept else WORDS[metric], group.reached(metric)
    so_far = group.series(metric)
    if mean(reached) is None and so_far:
        name = f"{WORDS[metric]} so far"
        reached = [run.series(metric).get(so_far[-1].round) for run in group.runs]
    alone, only = group.alone(metric), group.runs[0].outcome
    is_one = len(group.runs) == 1
    measured = is_one and group.runs[0].is_finished
    value, less = _percent(mean(reached)), _percent(mean(alone))
    if measured:
        value = with_interval(only, f"{kept}{metric}")
    if is_one and (prefix := baseline(only)):
        less = with_interval(only, f"{prefix}{metric}")
    tiles = [(name, value), ("labels only", less)]
    if gap := _over_seeds(reached, alone):
        some = "" if gap.seeds == len(group.runs) else f", in {gap.seeds} of {len(group.runs)} runs"
        by_examples = difference(only, metric) if measured else None
        tiles.append((f"better than labels only by{some}", str(by_examples) if by_examples else _points(gap)))
    tiles.append(("rounds", " / ".join(dict.fromkeys(_progress(run) for run in group.runs))))
    seconds = group.result("seconds")
    tiles.append(("time", _duration(seconds) if seconds is not None else "–"))
    return tiles


def _scores(group: Group) -> list[list[str]]:
    """Every number of the models that a result tells of, side by side, of one run with intervals."""
    rows, only = [], group.runs[0].outcome
    for name, word in WORDS.items():
        keys = [f"{prefix}{name}" for prefix in _scored_models(group)]
        if len(group.runs) == 1:
            cells = [with_interval(only, key) for key in keys]
        else:
            cells = [said(name, value) for value in (group.result(keys[0]), mean(group.alone(name)))]
        if any(cell != "–" for cell in cells):
            rows.append([word, *cells])
    return rows


def _scored_models(group: Group) -> dict[str, str]:
    """The models whose numbers the table has, by the beginning of their names."""
    if len(group.runs) > 1:
        return {"": "final model, mean", "labels_only_": "labels only, mean"}
    only = group.runs[0].outcome
    models = {"": "final model"}
    if of_the_kept(only) and model_of(only, "best_") != "the final model":
        models["best_"] = f"{model_of(only, 'best_')}, the best on labels held out"
    return models | {prefix: "labels only" for prefix in (baseline(only),) if prefix}


def _overview_header(metric: Metric) -> list[str]:
    others = [WORDS[name] for name in METRICS if name != metric]
    return ["runs", "seed", "rounds", WORDS[metric], "labels only", "difference", *others, "directory"]


def _overview(groups: Sequence[Group]) -> list[list[str]]:
    """A row per run, and one of means per group that has several."""
    metric = groups[0].metric
    others = [name for name in METRICS if name != metric]
    rows = []
    for group in groups:
        reached, alone = group.reached(metric), group.alone(metric)
        for run, value, less in zip(group.runs, reached, alone, strict=True):
            gap = _over_seeds([value], [less])
            told = difference(run.outcome, metric) or (_points(gap) if gap else "–")
            scores = [_percent(value), _percent(less), str(told).replace(" points", "")]
            scores += [_percent(number(run.of_the_kept(name))) for name in others]
            rows.append([group.label, str(run.seed), _progress(run), *scores, str(run.path)])
        if len(group.runs) > 1:
            gap = _over_seeds(reached, alone)
            scores = [_percent(mean(reached)), _percent(mean(alone))]
            scores.append(_points(gap).replace(" points", "") if gap else "–")
            scores += [_percent(mean(group.reached(name))) for name in others]
            rows.append([group.label, "mean", "", *scores, ""])
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
