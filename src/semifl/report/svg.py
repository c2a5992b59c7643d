"""Charts as SVG text, drawn small and coloured by the page's style sheet, so that one drawing serves every theme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 440, 250  # user units: near a phone's pixels, so that letters stay readable there
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 22, 34  # room for ticks and units
EDGE = 8  # above cells, for half a letter of the first row's name
LETTER = 7.6  # width of one in a wide font
SHORT, LONG = 12, 26  # letters of a name
FEW = 6  # columns
MOST_POINTS = 1000  # per line; more cannot be told apart

Pair = tuple[float, float]


class Line(NamedTuple):
    """A curve with an optional band around it; `colour` is a class of the style sheet."""

    label: str
    colour: str
    points: Sequence[Pair]
    band: Sequence[tuple[float, float, float]] = ()
    dots: Sequence[Pair] = ()


class Frame:
    """Where numbers lie in the drawing."""

    def __init__(self, x: Pair, y: Pair, height: float = HEIGHT) -> None:
        self.x, self.y, self.height = _widened(x), _widened(y), height

    def across(self, value: float) -> float:
        low, high = self.x
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(self, value: float) -> float:
        low, high = self.y
        return self.height - BOTTOM - (value - low) / (high - low) * (self.height - TOP - BOTTOM)

    def axes(self, unit: str, x_label: str) -> Markup:
        """A grid line and a number at each tick, the unit on top, and what is counted below."""
        parts = [text(LEFT - 40, 13, unit, "start")]
        for tick in ticks(*self.y):
            y = _short(self.up(tick))
            parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(LEFT, y, WIDTH - RIGHT))
            parts.append(text(LEFT - 6, y + 4, tick_label(tick), "end"))
        for tick in (tick for tick in ticks(*self.x, about=6) if tick == int(tick)):
            parts.append(text(self.across(tick), self.height - BOTTOM + 16, tick_label(tick)))
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, self.height - 3, x_label))
        return Markup("").join(parts)


def chart(parts: Iterable[Markup], alt: str, height: float = HEIGHT) -> Markup:
    """A drawing that a screen reader takes for one picture with a description."""
    opening = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, _short(height), alt)
    return opening + Markup("").join(parts) + Markup("</svg>")


def line_chart(lines: Sequence[Line], unit: str, alt: str, x_label: str = "round", y: Pair | None = None) -> Markup:
    points = [point for line in lines for point in (*line.points, *line.dots)]
    edges = [edge for line in lines for _, low, high in line.band for edge in (low, high)]
    heights = [height for _, height in points] + edges
    frame = Frame(_span(x for x, _ in points), y or _span_of(unit, heights))
    parts = [frame.axes(unit, x_label)]
    parts += [_band(frame, line) for line in lines if line.band]
    parts += [part for line in lines for part in _curve(frame, line)]
    return chart(parts, alt)


def stacked_chart(layers: Sequence[Line], wide: float, unit: str, alt: str) -> Markup:
    """Bars `wide` rounds in width, layer upon layer; all layers have the same places on the x axis."""
    places = [x for x, _ in layers[0].points]
    bottoms = [0.0] * len(places)
    stacks = []
    for layer in layers:
        tops = [bottom + height for bottom, (_, height) in zip(bottoms, layer.points, strict=True)]
        stacks.append(Line(layer.label, layer.colour, (), list(zip(places, bottoms, tops, strict=True))))
        bottoms = tops
    frame = Frame((min(places) - wide / 2, max(places) + wide / 2), _round_span([0.0, *bottoms]))
    parts = [frame.axes(unit, "round")]
    return chart([*parts, *(_steps(frame, stack, wide / 2) for stack in stacks)], alt)


def bar_chart(names: Sequence[str], bars: Sequence[tuple[str, Sequence[float]]], unit: str, alt: str) -> Markup:
    """Groups of bars, one group per name; each set of bars is a pair of colour and heights."""
    frame = Frame((0, len(names)), _round_span([0.0, *(height for _, heights in bars for height in heights)]))
    parts = [_grid(frame, unit)]
    wide = 0.8 / len(bars)
    for place, (colour, heights) in enumerate(bars):
        corners = [(i + 0.1 + place * wide, height) for i, height in enumerate(heights) if height > 0]
        parts.append(_filled(colour, (_bar(frame, left, left + wide, height) for left, height in corners)))
    room = int((WIDTH - LEFT - RIGHT) / LETTER / max(1, len(names)))
    step = max(1, math.ceil(min(SHORT, max(map(len, names), default=1)) / max(1, room)))
    for i in range(0, len(names), step):
        parts.append(text(frame.across(i + 0.5), HEIGHT - BOTTOM + 16, shortened(names[i], max(SHORT, room))))
    return chart(parts, alt)


class Cells(NamedTuple):
    """Coloured cells in rows; a colour is a class of the style sheet, "" leaves a cell empty."""

    colours: Sequence[Sequence[str]]
    rows: Sequence[str]
    columns: Sequence[str]
    x_label: str
    written: Sequence[Sequence[str]] = ()  # what stands in the cells, where there is room for it


def cell_chart(cells: Cells, alt: str, square: bool = False) -> Markup:
    """Names beside rows and columns are thinned to fit."""
    rows, columns = cells.rows, cells.columns
    most = SHORT if len(columns) > FEW else LONG  # few columns leave room for the rows' whole names
    left = 14 + LETTER * max((len(shortened(row, most)) for row in rows), default=1)
    wide = (WIDTH - left - RIGHT) / max(1, len(columns))
    tall = wide if square else min(18.0, max(3.0, 360 / max(1, len(rows))))
    height = EDGE + tall * len(rows) + BOTTOM
    box = Markup('<rect class="box" x="{}" y="{}" width="{}" height="{}"/>')
    parts = [box.format(left, EDGE, _short(wide * len(columns)), _short(tall * len(rows)))]
    parts += [_filled(colour, shapes) for colour, shapes in _shapes(cells.colours, left, wide, tall).items()]
    for i, row in enumerate(cells.written):
        middle = _short(EDGE + 4 + (i + 0.5) * tall)
        for j, word in enumerate(row):
            x = _short(left + (j + 0.5) * wide)
            parts.append(
                Markup('<text class="cell" x="{}" y="{}" text-anchor="middle">{}</text>').format(x, middle, word)
            )
    parts += [
        text(left - 5, EDGE + 4 + (i + 0.5) * tall, shortened(rows[i], most), "end") for i in _thinned(rows, 15 / tall)
    ]
    room = max(SHORT, int((wide - 4) / LETTER))
    letters = max((len(shortened(column, room)) for column in columns), default=1)
    for j in _thinned(columns, (LETTER * letters + 4) / wide):
        parts.append(text(left + (j + 0.5) * wide, height - BOTTOM + 13, shortened(columns[j], room)))
    parts.append(text((left + WIDTH) / 2, height - 4, cells.x_label))
    return chart(parts, alt, height)


def _shapes(colours: Sequence[Sequence[str]], left: float, wide: float, tall: float) -> dict[str, list[str]]:
    """All cells of one colour are one path: a hundred sites by eighty rounds would be too many shapes."""
    gap = 0.6 if min(wide, tall) > 5 else 0
    width, height = _short(wide - gap), _short(tall - gap)
    by_colour: dict[str, list[str]] = {}
    for i, row in enumerate(colours):
        for j, colour in enumerate(row):
            if colour:
                corner = f"M{_short(left + j * wide)} {_short(EDGE + i * tall)}"
                by_colour.setdefault(colour, []).append(f"{corner}h{width}v{height}h-{width}z")
    return by_colour


def text(x: float, y: float, content: str, anchor: str = "middle") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(_short(x), _short(y), anchor, content)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between the two ends, about as many as asked for."""
    raw = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def tick_label(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:.6g}"


def shortened(name: str, most: int = SHORT) -> str:
    """Both ends of a name of more than so many letters: many differ only at their end."""
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[: most - 1 - half]}…{name[-half:]}"


def _curve(frame: Frame, line: Line) -> list[Markup]:
    step = -(-len(line.points) // MOST_POINTS) if line.points else 1
    points = [*line.points[:-1:step], *line.points[-1:]]
    places = [f"{_short(frame.across(x))} {_short(frame.up(y))}" for x, y in points]
    parts = [Markup('<path class="line {}" d="M{}"/>').format(line.colour, "L".join(places))] if len(places) > 1 else []
    dots = [*line.dots, *(points if len(points) == 1 else [])]
    circle = Markup('<circle class="{}" cx="{}" cy="{}" r="4"/>')
    return parts + [circle.format(line.colour, _short(frame.across(x)), _short(frame.up(y))) for x, y in dots]


def _band(frame: Frame, line: Line) -> Markup:
    upper = [f"{_short(frame.across(x))} {_short(frame.up(high))}" for x, _, high in line.band]
    lower = [f"{_short(frame.across(x))} {_short(frame.up(low))}" for x, low, _ in reversed(line.band)]
    return Markup('<path class="band {}" d="M{}z"/>').format(line.colour, "L".join(upper + lower))


def _steps(frame: Frame, stack: Line, half: float) -> Markup:
    shapes = []
    for x, low, high in stack.band:
        left, right = _short(frame.across(x - half)), _short(frame.across(x + half))
        top, bottom = _short(frame.up(high)), _short(frame.up(low))
        shapes.append(f"M{left} {bottom}V{top}H{right}V{bottom}z")
    return _filled(stack.colour, shapes)


def _bar(frame: Frame, left: float, right: float, height: float) -> str:
    foot = _short(frame.up(0))
    x, until = _short(frame.across(left)), _short(frame.across(right))
    return f"M{x} {foot}V{_short(frame.up(height))}H{until}V{foot}z"


def _grid(frame: Frame, unit: str) -> Markup:
    """Axes of a chart whose x axis carries names."""
    return Frame((0.1, 0.2), frame.y, frame.height).axes(unit, "")


def _filled(colour: str, shapes: Iterable[str]) -> Markup:
    return Markup('<path class="fill {}" d="{}"/>').format(colour, "".join(shapes))


def _thinned(names: Sequence[str], least: float) -> range:
    """Every n-th position, so that labels are at least `least` cells apart."""
    step = next((n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if n >= least), 1000)
    return range(0, len(names), step)


def _span(values: Iterable[float]) -> Pair:
    listed = list(values)
    return (min(listed), max(listed)) if listed else (0.0, 1.0)


def _span_of(unit: str, heights: Sequence[float]) -> Pair:
    """A round span; of a share it ends at the whole."""
    low, high = _round_span(heights)
    is_share = unit.startswith("percent") and max(heights, default=0.0) <= 100
    return (low, min(high, 100.0)) if is_share else (low, high)


def _round_span(values: Iterable[float]) -> Pair:
    """A span whose ends are ticks."""
    low, high = _widened(_span(values))
    marks = ticks(low, high)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _widened(span: Pair) -> Pair:
    """A span of some width: a single value gets room on both sides."""
    low, high = span
    if high - low > 1e-4 * max(abs(low), abs(high), 1e-9):
        return span
    room = abs(low) / 2 or 1.0
    return low - room, high + room


def _short(value: float) -> float | int:
    rounded = round(float(value), 1)
    return int(rounded) if rounded == int(rounded) else rounded
