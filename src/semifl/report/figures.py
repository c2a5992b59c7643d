"""The curves of the page: each a drawing, a sentence that says what is to be seen, and a table of its numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from semifl.federation.signals import CURVES
from semifl.records.metrics import MEANINGS, METRICS, WORDS, Metric
from semifl.records.record import number
from semifl.report.groups import Group, Point, mean
from semifl.report.reading import Run
from semifl.report.svg import Line, line_chart, stacked_chart

EMPTY = Markup("")
COLOURS = 6  # lines that the style sheet tells apart
MOST_ROWS = 50  # of a table; the files have the rest
MOST_BARS = 80  # rounds side by side; more are put together

PER_CENT = {key: (curve.label, 100.0 / curve.scale) for key, curve in CURVES.items()}
PAPER = {key: PER_CENT[key] for key in ("pseudo_accuracy", "confident_accuracy", "label_ratio")}
# Every other curve of the table of signals is drawn where somebody told it.
LABEL_FREE = {key: PER_CENT[key] for key in PER_CENT if key not in PAPER or key == "label_ratio"} | {
    "agreement": ("strong views that agree", 100.0)
}
OF_THE_COHORT = "Of the pictures of each round's clients."


@dataclass(frozen=True)
class Figure:
    """One figure of the page; `header` and `rows` are its table view."""

    name: str
    title: str
    caption: str
    alt: str = ""
    drawing: Markup = EMPTY
    legend: list[tuple[str, str]] = field(default_factory=list)  # colour, meaning
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    note: str = ""  # what the table leaves out


def learning_figures(groups: Sequence[Group]) -> list[Figure]:
    """What can be overlaid: one line per group of runs, or several of one group."""
    metric = groups[0].metric
    figures = [_scored(groups, metric), *([] if metric == "accuracy" else [_scored(groups, "accuracy")])]
    keys = PAPER if any(group.series("pseudo_accuracy") for group in groups) else LABEL_FREE
    if len(groups) == 1:
        figures += [
            _metrics(groups[0], metric),
            _losses(groups[0]),
            *_terms(groups[0]),
            *_pseudo_labels(groups[0], keys),
        ]
    else:
        figures.append(
            _overlay(groups, "loss", "loss", "Test loss", "nats", "Mean cross-entropy on the test pictures.")
        )
        for key, (label, scale) in keys.items():
            title = f"{label[0].upper()}{label[1:]}"
            figures.append(_overlay(groups, key, key.replace("_", "-"), title, "percent", OF_THE_COHORT, scale))
    caption = "How far the global weights moved in each round: high at first, then falling; a spike is a warning."
    figures.append(_overlay(groups, "update_norm", "update-norm", "Update norm", "distance", caption))
    return figures


def _scored(groups: Sequence[Group], metric: Metric) -> Figure:
    """One of the numbers that may decide, beside that of the labels-only model."""
    title = f"Test {WORDS[metric]}"
    lines, said = [], []
    for place, group in enumerate(groups):
        line, points = _line(group, place, metric, group.label)
        if not points:
            continue
        last, alone = group.result(metric), mean(group.alone(metric))
        end = group.last_round + 1
        lines.append(line if last is None else line._replace(dots=[(end, last)]))
        words = f"{group.label}: {_trend(points, ' %')}"
        words += f"; the final model reaches {last:.1f} %" if last is not None else ""
        if alone is not None:
            lines.append(
                Line(f"labels only, {alone:.1f} %", f"{line.colour} ref", [(points[0].round, alone), (end, alone)])
            )
            words += f", labels alone {alone:.1f} %"
        said.append(words)
    if not lines:
        return nothing(metric, title, "No round has been tested yet.")
    caption = f"{MEANINGS[metric]}; the dot is the final model, the dashed line the better labels-only model."
    caption += _band_words(groups)
    header, rows, note = _table(groups, {metric: 1.0, f"validation_{metric}": 1.0})
    alt = f"{title} by round. {'. '.join(said)}."
    return Figure(metric, title, caption, alt, line_chart(lines, "percent", alt), _legend(lines), header, rows, note)


def _metrics(group: Group, metric: Metric) -> Figure:
    """The numbers that do not decide, and what two classes have beside them."""
    keys = [name for name in (*METRICS, "sensitivity", "specificity") if name not in (metric, "accuracy")]
    caption = "Other numbers of the same models on the test pictures; what each means is in docs/metrics.md."
    return _several(group, "metrics", "Other numbers", "percent", caption, {key: (WORDS[key], 1.0) for key in keys})


def _losses(group: Group) -> Figure:
    names = {"loss": "test", "server_loss": "server, training", "client_loss": "clients, training"}
    caption = (
        "Mean cross-entropy of the test pictures, and what server and clients train on: the sum of a loss's terms."
    )
    return _several(group, "loss", "Loss", "nats", caption, {key: (name, 1.0) for key, name in names.items()})


def _terms(group: Group) -> list[Figure]:
    """The named terms of each side's training loss, whatever they are called; none where the loss is one term."""
    figures = []
    for side, title in (
        ("server", "What the server's loss is made of"),
        ("clients", "What the clients' loss is made of"),
    ):
        names = group.names(f"terms.{side}")
        if len(set(names) - {"loss"}) > 0:
            keys = {f"terms.{side}.{name}": (name, 1.0) for name in names[:COLOURS]}
            caption = "The mean of each named term over the steps of a round, as the method or its objective names it."
            figures.append(_several(group, f"terms-{side}", title, "mean", caption, keys))
    return figures


def _pseudo_labels(group: Group, keys: dict[str, tuple[str, float]]) -> list[Figure]:
    """The paper's curves where somebody knows the truth, and whatever else clients tell; or the latter alone."""
    paper = "The paper's three curves, of the pictures of each round's clients: how many pseudo-labels are right, "
    paper += "how many of the confident ones, and how many are confident. Clients never see the first two."
    free = "Signals that need no label, such as how confident clients are on average, and how often the network says "
    free += "the same of a strong view."
    title, other, span = "What the clients believe", "What else the clients tell", (0.0, 100.0)
    if keys is not PAPER:
        return [_several(group, "pseudo-labels", title, "percent", free, keys, span)]
    rest = {key: each for key, each in LABEL_FREE.items() if key not in PAPER}
    figures = [_several(group, "pseudo-labels", title, "percent", paper, PAPER, span)]
    return [*figures, _several(group, "signals", other, "percent", free, rest, span)]


def _several(
    group: Group,
    name: str,
    title: str,
    unit: str,
    caption: str,
    keys: dict[str, tuple[str, float]],
    y: tuple[float, float] | None = None,
) -> Figure:
    """Several numbers of one group in one drawing."""
    drawn = [_line(group, place, key, label, scale) for place, (key, (label, scale)) in enumerate(keys.items())]
    empty = "There is nothing to show: the method measures none of this, or no round is done."
    return _drawing(
        [group], drawn, name, title, unit, caption, {key: scale for key, (_, scale) in keys.items()}, empty, y
    )


def _overlay(
    groups: Sequence[Group], key: str, name: str, title: str, unit: str, caption: str, scale: float = 1.0
) -> Figure:
    """One number, a line per group."""
    drawn = [_line(group, place, key, group.label, scale) for place, group in enumerate(groups)]
    empty = "There is nothing to show: no round has measured it."
    return _drawing(groups, drawn, name, title, unit, caption, {key: scale}, empty)


def _drawing(
    groups: Sequence[Group],
    drawn: list[tuple[Line, list[Point]]],
    name: str,
    title: str,
    unit: str,
    caption: str,
    scales: dict[str, float],
    empty: str,
    y: tuple[float, float] | None = None,
) -> Figure:
    """Lines with their words and table; `empty` says why there may be none."""
    drawn = [(line, points) for line, points in drawn if points]
    if not drawn:
        return nothing(name, title, empty)
    lines = [line for line, _ in drawn]
    sign = " %" if unit == "percent" else ""
    alt = f"{title} by round. {'. '.join(f'{line.label}: {_trend(points, sign)}' for line, points in drawn)}."
    header, rows, note = _table(groups, scales)
    caption += _band_words(groups)
    return Figure(name, title, caption, alt, line_chart(lines, unit, alt, y=y), _legend(lines), header, rows, note)


def bytes_figure(run: Run) -> Figure:
    parts = {"down": run.series("bytes_down", 1e-6), "up": run.series("bytes_up", 1e-6)}
    total = {name: sum(values.values()) for name, values in parts.items()}
    if not sum(total.values()):
        return nothing("bytes", "Bytes", "Nothing was sent: this method needs no clients, or no round is done.")
    words = f"{total['down']:,.1f} MB went to clients and {total['up']:,.1f} MB came back"
    caption = f"Megabytes by round, from the server to clients and back. In all {words}."
    labels = {"down": "to the clients", "up": "from the clients"}
    return _stacked("bytes", "Bytes", "MB", caption, f"Megabytes by round: {words}", labels, parts)


def seconds_figure(run: Run) -> Figure:
    phases = {"server": "server trains", "statistics": "statistics", "test": "test", "clients": "clients"}
    tables = [(each["round"], each["seconds"]) for each in run.rounds if isinstance(each.get("seconds"), dict)]
    parts = {name: {index: number(table.get(name)) or 0.0 for index, table in tables} for name in phases}
    whole = {index: number(table.get("total")) or 0.0 for index, table in tables}
    parts["other"] = {index: max(0.0, whole[index] - sum(parts[name][index] for name in phases)) for index in whole}
    total = {name: sum(values.values()) for name, values in parts.items()}
    if not sum(total.values()):
        return nothing("seconds", "Seconds", "No round has been timed yet.")
    labels = {name: label for name, label in {**phases, "other": "other"}.items() if total[name] > 0}
    words = ", ".join(f"{labels[name]} {total[name]:,.1f} s" for name in labels)
    caption = f"What a round spends its time on. In all: {words}."
    return _stacked(
        "seconds", "Seconds by phase", "seconds", caption, f"Seconds by round and phase: {words}", labels, parts
    )


def _stacked(
    name: str,
    title: str,
    unit: str,
    caption: str,
    words: str,
    labels: dict[str, str],
    parts: dict[str, dict[int, float]],
) -> Figure:
    rounds = sorted(set().union(*parts.values()))
    wide = -(-len(rounds) // MOST_BARS)
    bins = [rounds[start : start + wide] for start in range(0, len(rounds), wide)]
    layers = []
    for place, (part, label) in enumerate(labels.items()):
        heights = [statistics.fmean(parts[part].get(index, 0.0) for index in each) for each in bins]
        middles = [(each[0] + each[-1]) / 2 for each in bins]
        layers.append(Line(label, colour(place), list(zip(middles, heights, strict=True))))
    caption += f" Each bar is the mean of {wide} rounds." if wide > 1 else ""
    kept, note = thinned(rounds)
    rows = [[str(index), *(f"{parts[part].get(index, 0.0):.3g}" for part in labels)] for index in kept]
    alt = f"{words}."
    drawing = stacked_chart(layers, wide, unit, alt)
    legend = [(f"{layer.colour} area", layer.label) for layer in layers]
    return Figure(name, title, caption, alt, drawing, legend, ["round", *labels.values()], rows, note)


def nothing(name: str, title: str, why: str) -> Figure:
    """A figure that has nothing to show, and says so."""
    return Figure(name, title, why)


def colour(place: int) -> str:
    return f"c{place % COLOURS + 1}"


def thinned(rounds: Sequence[int]) -> tuple[list[int], str]:
    """Evenly chosen rounds with the last one, and what to say about the others."""
    step = -(-len(rounds) // MOST_ROWS) if rounds else 1
    if step == 1:
        return list(rounds), ""
    kept = [*rounds[:-1:step], rounds[-1]]
    return kept, f"Every {step}th of {len(rounds)} rounds; rounds.jsonl has them all."


def _line(group: Group, place: int, key: str, label: str, scale: float = 1.0) -> tuple[Line, list[Point]]:
    points = group.series(key, scale)
    # Nothing that is drawn here can be negative, so neither is its band.
    band = [(each.round, max(0.0, each.low), each.high) for each in points] if len(group.runs) > 1 else []
    return Line(label, colour(place), [(each.round, each.mean) for each in points], band), points


def _trend(points: Sequence[Point], sign: str) -> str:
    first, last, top = points[0], points[-1], max(points, key=lambda point: point.mean)
    if len(points) == 1:
        return f"{short(first.mean)}{sign} in round {first.round}"
    trend = f"from {short(first.mean)}{sign} in round {first.round} to {short(last.mean)}{sign} in round {last.round}"
    return trend if top in (first, last) else f"{trend}, highest {short(top.mean)}{sign} in round {top.round}"


def short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _band_words(groups: Iterable[Group]) -> str:
    seeds = [len(group.runs) for group in groups]
    return " Lines are means over seeds, bands one standard deviation to either side." if max(seeds) > 1 else ""


def _legend(lines: Sequence[Line]) -> list[tuple[str, str]]:
    return [(line.colour, line.label) for line in lines]


def _table(groups: Sequence[Group], keys: dict[str, float]) -> tuple[list[str], list[list[str]], str]:
    """Rounds down, numbers across; with several groups each has its own columns."""
    columns: list[tuple[str, dict[int, Point]]] = []
    for group in groups:
        for key, scale in keys.items():
            points = {each.round: each for each in group.series(key, scale)}
            name = key if len(groups) == 1 else f"{group.label}: {key}"
            columns += [(name, points)] if points else []
    rounds, note = thinned(sorted(set().union(*(points for _, points in columns))))
    rows = [[str(index), *(_cell(points.get(index)) for _, points in columns)] for index in rounds]
    return ["round", *(name for name, _ in columns)], rows, note


def _cell(point: Point | None) -> str:
    if point is None:
        return ""
    spread = point.high - point.mean
    return short(point.mean) + (f" ± {short(spread)}" if spread else "")
