"""The paper's figures that are made from runs: which panels and lines each has, and the cells that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from semifl.studies.presets import paper
from semifl.studies.presets.values import SSL
from semifl.studies.tables import Cell, Placed, is_reduced, placed_cells

FEDERATED = ("SemiFL", "HeteroFL", "FedMatch", "FedRGD")
SUPERVISED = ("Fully Supervised", "Partially Supervised")
# As the figure of quality calls them: the component table's rows, in its order.
QUALITY = {
    "SemiFL: both": "Fine Tune, Global (SemiFL)",
    "SemiFL with labels batch by batch, without Mixup": "Fine Tune, Training",
    "SemiFL without fine-tuning, without Mixup": "Average, Global",
    "FedAvg + FixMatch: neither, without Mixup": "Average, Training (FedAvg + FixMatch)",
}
MEASURES = {
    "pseudo_accuracy": ("Pseudo Accuracy", 1.0),
    "confident_accuracy": ("Threshold Accuracy", 1.0),
    "label_ratio": ("Label Ratio", 100.0),
}


class FigureLine(NamedTuple):
    label: str
    cell: Cell


class Panel(NamedTuple):
    """Curves over rounds of one key of rounds.jsonl, in percent, and lines that are the best round of a run."""

    title: str
    lines: list[FigureLine]
    levels: list[FigureLine]
    key: str = "accuracy"
    scale: float = 1.0
    ylabel: str = "test accuracy, percent"
    shares: bool = False  # rows whose rounds are not comparable: over the share of their training
    bytes_too: bool = False  # say what a round of each line costs


class PaperFigure(NamedTuple):
    title: str
    panels: list[Panel]
    columns: int  # of panels


def paper_figure(name: str, scale: str) -> PaperFigure:
    """One of `FIGURES`; the smaller scales have the partitions and label counts of their tables."""
    every = [
        each
        for each in placed_cells(scale)
        if scale == "paper" or name in paper.DATA or is_reduced(each.printed, scale)
    ]
    return FIGURES[name](every, scale, name)


def _curves(every: list[Placed], scale: str, data: str) -> PaperFigure:
    """Every row of the result table by round: a line of panels for each partition, and one for the rest."""
    counts = [labeled for name, labeled in paper.COLUMNS if name == data]
    counts = counts if scale == "paper" else counts[:1]  # a smaller scale has one number of labels
    kept = paper.PARTITION_NAMES if scale == "paper" else ("k2", "iid")
    panels = []
    for partition in (paper.PARTITION_NAMES[key] for key in kept):
        for labeled in counts:
            rows = _at(every, "results", (data, f"{data}-{labeled}"))
            lines = [FigureLine(label, rows[f"{label}, {partition}"]) for label in FEDERATED]
            panels.append(Panel(f"{partition}, {labeled} labels", lines, _levels(rows)))
    for labeled in counts:
        rows = _at(every, "results", (data, f"{data}-{labeled}"))
        lines = [FigureLine(label, rows[label]) for label, _ in SSL.values()]
        panels.append(Panel(f"all pictures in one place, {labeled} labels", lines, _levels(rows), shares=True))
    return PaperFigure(f"Learning curves, {data}", panels, len(counts) if scale == "paper" else len(panels))


def _fedsgd(every: list[Placed], scale: str, name: str) -> PaperFigure:
    panels = []
    for column in ("IID", "non-IID, K = 2"):
        rows = _at(every, "figure", (column,))
        lines = [FigureLine(label, rows[label]) for label in ("FedSGD + FixMatch", "FedAvg + FixMatch")]
        panels.append(Panel(column, lines, _levels(rows), bytes_too=True))
    return PaperFigure("FixMatch with FedSGD, and with FedAvg", panels, 2)


def _quality(every: list[Placed], scale: str, name: str) -> PaperFigure:
    panels = []
    for column in ("IID", "non-IID, K = 2"):
        rows = _at(every, "component", (column,))
        lines = [FigureLine(label, rows[row]) for row, label in QUALITY.items()]
        for key, (title, factor) in MEASURES.items():
            panels.append(Panel(f"{title}, {column}", lines, [], key, factor, "percent"))
    return PaperFigure("Quality of pseudo-labels", panels, 3)


def _ablation(every: list[Placed], scale: str, name: str) -> PaperFigure:
    panels = []
    for column in ("IID", "non-IID, K = 2"):
        rows = _at(every, "ablation", (column,))
        levels = _levels(_at(every, "component", (column,)))
        panels.append(Panel(column, [FigureLine(label, cell) for label, cell in rows.items()], levels))
    return PaperFigure("Local epochs, Mixup and global momentum", panels, 2)


FIGURES: dict[str, Callable[[list[Placed], str, str], PaperFigure]] = {
    "cifar10": _curves,
    "svhn": _curves,
    "cifar100": _curves,
    "fedsgd": _fedsgd,
    "quality": _quality,
    "ablation": _ablation,
}


def _at(every: Iterable[Placed], table: str, columns: tuple[str, ...]) -> dict[str, Cell]:
    """A table's cells in these columns, by row."""
    return {
        cell.printed.row: cell.run for cell in every if cell.printed.table == table and cell.printed.column in columns
    }


def _levels(rows: dict[str, Cell]) -> list[FigureLine]:
    return [FigureLine(label, rows[label]) for label in SUPERVISED]
