"""Tables of results over seeds, as Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from semifl.records.metrics import ranked
from semifl.report.comparison import Difference, Mean, difference_text, mean_of, mean_text, paired

Format = Literal["markdown", "latex", "csv", "json"]
LABELS_ONLY = "labels only"
OF_THE_BEST = f"{LABELS_ONLY}, of the best row"  # a row that is not one method, and so is compared with none
SPECIAL = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    }
)
COLUMNS_OF_CSV = (
    *("table", "row", "column", "metric", "n", "mean", "deviation", "low", "high", "published"),
    *("difference", "difference_low", "difference_high"),
)


class Entry(NamedTuple):
    """A cell: the value of each seed, and what the paper prints."""

    values: Mapping[int, float]
    published: str = ""


EMPTY = Entry({})


@dataclass(frozen=True)
class Grid:
    """A table of one number of result.json: rows of cells, and the row that the others are compared with."""

    metric: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[Entry]]
    title: str = ""
    against: str = ""
    paired_columns: int = field(default=0)  # The first columns, in which rows are compared; 0 for all.
    population: bool = False  # Deviations of the population, as the paper prints them, instead of the sample.

    @property
    def unit(self) -> float:
        """Return what one unit in print is: bytes are printed in MB."""
        return 1e6 if self.metric.startswith("bytes_") else 1.0

    @property
    def heading(self) -> str:
        return f"{self.metric} in MB" if self.unit != 1 else self.metric

    def mean(self, entry: Entry) -> Mean | None:
        return mean_of(self._in_print(entry.values), self.population)

    def differences(self, row: str) -> list[Difference | None]:
        """Return the difference of a row from the reference row, column by column."""
        if self.against not in self.rows or row in (self.against, OF_THE_BEST):
            return [None for _ in self.columns]
        compared = self.paired_columns or len(self.columns)
        pairs = zip(self.rows[row][:compared], self.rows[self.against][:compared], strict=True)
        found = [paired(self._in_print(ours.values), self._in_print(other.values)) for ours, other in pairs]
        return found + [None] * (len(self.columns) - compared)

    def _in_print(self, values: Mapping[int, float]) -> dict[int, float]:
        return {seed: value / self.unit for seed, value in values.items()}


def render(grids: Sequence[Grid], form: Format) -> str:
    """Return tables as one text."""
    return RENDERERS[form](grids)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, lined up so that it also reads well in a terminal."""
    widths = [max(_width(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [_line(header, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (
        "| " + " | ".join(cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)) + " |"
    )


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(letter) else 1 for letter in text)


def _markdown(grids: Sequence[Grid]) -> str:
    return "\n\n".join(_as_markdown(grid) for grid in grids)


def _as_markdown(grid: Grid) -> str:
    published = any(entry.published for row in grid.rows.values() for entry in row)
    legend = f"{grid.heading}: mean (sd, number of seeds, 95 % interval of the mean)."
    habit = " The sd is the population's, as in the paper." if grid.population else ""
    parts = [f"## {grid.title}"] if grid.title else []
    parts.append(f"{legend}{habit}{' In brackets the published value.' if published else ''}")
    header = ["", *grid.columns]
    lines = [[row, *(_markdown_cell(grid, entry) for entry in entries)] for row, entries in grid.rows.items()]
    differences = {row: [difference_text(each) for each in grid.differences(row)] for row in grid.rows}
    others = [row for row in grid.rows if row not in (grid.against, OF_THE_BEST)]
    if grid.against not in grid.rows or not others:
        return "\n\n".join([*parts, markdown_table(header, lines)])
    about = f"difference from {grid.against!r}, seed by seed: mean [95 % interval]"
    if (grid.paired_columns or len(grid.columns)) == 1:
        header.append("difference")
        lines = [[*line, differences[line[0]][0]] for line in lines]
        return "\n\n".join([*parts, markdown_table(header, lines), f"In the last column the {about}."])
    second = markdown_table(["", *grid.columns], [[row, *differences[row]] for row in others])
    return "\n\n".join([*parts, markdown_table(header, lines), f"{about[0].upper()}{about[1:]}", second])


def _markdown_cell(grid: Grid, entry: Entry) -> str:
    text = mean_text(grid.mean(entry)) or "–"
    return f"{text} [{entry.published}]" if entry.published else text


def _latex(grids: Sequence[Grid]) -> str:
    """Return one tabular for each table; it needs the package booktabs."""
    return "\n\n".join(_as_latex(grid) for grid in grids)


def _as_latex(grid: Grid) -> str:
    counts = sorted({len(entry.values) for row in grid.rows.values() for entry in row if entry.values})
    seeds = "–".join(str(each) for each in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    deviation = "population" if grid.population else "sample"
    about = [grid.title] if grid.title else []
    about.append(f"{grid.heading}: mean \\pm {deviation} standard deviation over {seeds} seeds; the best mean is bold")
    best = [_best(grid, place) for place in range(len(grid.columns))]
    lines = [
        [row.translate(SPECIAL), *(_latex_cell(grid, entry, row in best[at]) for at, entry in enumerate(entries))]
        for row, entries in grid.rows.items()
    ]
    columns = [each.translate(SPECIAL) for each in grid.columns]
    blocks = [_tabular(["", *columns], lines)]
    others = [row for row in grid.rows if row not in (grid.against, OF_THE_BEST)]
    if grid.against in grid.rows and others:
        compared = grid.paired_columns or len(grid.columns)
        blocks.append(f"% difference from {grid.against!r}, seed by seed: mean and 95 % interval")
        rows = [[row.translate(SPECIAL), *map(_latex_difference, grid.differences(row)[:compared])] for row in others]
        blocks.append(_tabular(["", *columns[:compared]], rows))
    return "\n".join([*(f"% {line}" for line in about), *blocks])


def _tabular(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [" & ".join(line) + r" \\" for line in (header, *lines)]
    begin = f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}"
    return "\n".join([begin, r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}"])


def _latex_cell(grid: Grid, entry: Entry, is_best: bool) -> str:
    found = grid.mean(entry)
    text = "--"
    if found:
        number = f"{found.mean:.1f}" + (f" \\pm {found.deviation:.1f}" if found.deviation is not None else "")
        text = f"$\\mathbf{{{number}}}$" if is_best else f"${number}$"
    return f"{text} [{entry.published.translate(SPECIAL)}]" if entry.published else text


def _latex_difference(difference: Difference | None) -> str:
    if difference is None:
        return "--"
    interval = f"\\;[{difference.low:+.1f}, {difference.high:+.1f}]" if difference.seeds > 1 else ""
    return f"${difference.mean:+.1f}{interval}$"


def _best(grid: Grid, place: int) -> set[str]:
    """Return the rows with the best printed mean of a column; none where nothing is compared."""
    means = {row: found.mean for row, entries in grid.rows.items() if (found := grid.mean(entries[place]))}
    if len(means) < 2 or grid.columns[place] == LABELS_ONLY:
        return set()
    best = max(means.values(), key=lambda value: ranked(grid.metric, value))
    return {row for row, value in means.items() if f"{value:.1f}" == f"{best:.1f}"}


def _csv(grids: Sequence[Grid]) -> str:
    """Return a line for each cell that has values or a published one; bytes are in MB here, too."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS_OF_CSV)
    for grid in grids:
        for row, entries in grid.rows.items():
            for column, entry, difference in zip(grid.columns, entries, grid.differences(row), strict=True):
                if entry != EMPTY:
                    ours, other = _plain(grid.mean(entry)), _plain(difference)
                    numbers = [ours.get(key) for key in ("mean", "deviation", "low", "high")]
                    compared = [other.get(key) for key in ("mean", "low", "high")]
                    about = [grid.title, row, column, grid.heading, len(entry.values)]
                    writer.writerow([*about, *numbers, entry.published, *compared])
    return text.getvalue().rstrip("\n")


def _json(grids: Sequence[Grid]) -> str:
    return json.dumps([_as_json(grid) for grid in grids], indent=1, ensure_ascii=False)


def _as_json(grid: Grid) -> dict[str, Any]:
    rows = {
        row: {
            column: {
                "values": {str(seed): value / grid.unit for seed, value in entry.values.items()},
                **_plain(grid.mean(entry)),
                **({"published": entry.published} if entry.published else {}),
                **({"difference": _plain(difference)} if difference else {}),
            }
            for column, entry, difference in zip(grid.columns, entries, grid.differences(row), strict=True)
        }
        for row, entries in grid.rows.items()
    }
    return {"title": grid.title, "metric": grid.heading, "against": grid.against, "rows": rows}


def _plain(numbers: Mean | Difference | None) -> dict[str, float | None]:
    """Return the numbers by name; JSON has no infinity, and one seed no interval."""
    found = numbers._asdict() if numbers else {}
    return {key: value if value is not None and math.isfinite(value) else None for key, value in found.items()}


RENDERERS: dict[Format, Callable[[Sequence[Grid]], str]] = {
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
