"""Figures of classes: what clients take their pictures for, and which classes the final model confuses."""

from __future__ import annotations

from semifl.records.faults import class_name
from semifl.records.metrics import said_probability
from semifl.records.record import number
from semifl.report.figures import Figure, nothing
from semifl.report.reading import EVEN, Run, counts
from semifl.report.site_figures import shade
from semifl.report.skew import skew_text
from semifl.report.svg import Cells, Line, bar_chart, cell_chart, line_chart
from semifl.words import counted, listed

RECENT = 10  # rounds whose pseudo-labels are counted
WRITTEN = 12  # classes up to which the numbers fit into the matrix
WHOLE_TABLE = 20  # classes up to which a table of the matrix can be read
WORST = 30  # confusions listed otherwise


def classes(run: Run) -> Figure:
    title = "Classes of pseudo-labels"
    recent = [counts(record.get("class_histogram")) for record in run.rounds[-RECENT:]]
    names = run.class_names
    recent = [each for each in recent if len(each) == len(names) and names]
    pseudo = [sum(each[i] for each in recent) for i in range(len(names))]
    if not sum(pseudo):
        return nothing(
            "classes",
            title,
            "There is nothing to show: no client was confident about a picture, or the sites keep this to themselves.",
        )
    server = counts(run.world.get("server_classes"))
    sets = {"confident pseudo-labels": ("c1", _shares(pseudo))}
    if len(server) == len(names) and any(server):
        sets["labels of the server"] = ("c2", _shares(server))
    top = max(range(len(names)), key=lambda i: pseudo[i])
    none = [names[i] for i in range(len(names)) if not pseudo[i]]
    alt = f"Of {sum(pseudo):.0f} confident pseudo-labels {_shares(pseudo)[top]:.0f} % are {class_name(names[top])}"
    alt += f"; none are {listed([class_name(each) for each in none], 8)}." if none else "; every class occurs."
    last = counted(len(recent), "round")
    caption = f"Share of each class among the confident pseudo-labels of the last {last}, beside the server's "
    caption += f"labels. {alt} {skew_text(run)}".rstrip()
    caption += "" if len(sets) == 2 else " The server's counts are written when the run ends."
    ratios = _label_ratios(run, len(names))
    rows = [[name, *(f"{values[i]:.1f}" for _, values in sets.values()), ratios[i]] for i, name in enumerate(names)]
    drawing = bar_chart(names, list(sets.values()), "percent", alt)
    legend = [(f"{colour} area", label) for label, (colour, _) in sets.items()]
    return Figure("classes", title, caption, alt, drawing, legend, ["class", *sets, "label ratio %"], rows)


def _label_ratios(run: Run, classes: int) -> list[str]:
    """Of the pictures taken for a class in the last rounds, how many were confident; empty where nobody counted."""
    pairs = [
        (counts(each.get("class_histogram")), counts(each.get("class_predictions"))) for each in run.rounds[-RECENT:]
    ]
    pairs = [(sure, said) for sure, said in pairs if len(sure) == len(said) == classes]
    totals = [(sum(sure[i] for sure, _ in pairs), sum(said[i] for _, said in pairs)) for i in range(classes)]
    return [f"{100 * sure / said:.1f}" if said else "" for sure, said in totals]


def confusion(run: Run) -> Figure:
    title = "Confusion matrix"
    matrix, names = run.confusion, run.class_names
    if not matrix or len(names) != len(matrix):
        why = (
            "The matrix is made of the final model when the run ends."
            if not run.is_finished
            else "It was not recorded."
        )
        return nothing("confusion", title, why)
    shares = [[count / max(1.0, sum(row)) for count in row] for row in matrix]
    pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j and matrix[i][j]]
    pairs.sort(key=lambda pair: -matrix[pair[0]][pair[1]])
    weakest = min(range(len(names)), key=lambda i: shares[i][i])
    alt = f"Least often recognised is {class_name(names[weakest])}, {100 * shares[weakest][weakest]:.0f} % of the time."
    if pairs:
        i, j = pairs[0]
        taken = f"takes {class_name(names[i])} for {class_name(names[j])}, {matrix[i][j]:.0f} times"
        alt += f" The most frequent mistake {taken}."
    written = [[f"{count:.0f}" if count else "" for count in row] for row in matrix] if len(names) <= WRITTEN else ()
    colours = [[shade(share) for share in row] for row in shares]
    drawing = cell_chart(Cells(colours, names, names, "what the model says", written), alt, square=True)
    header, rows = (
        ["is", *names],
        [[name, *(f"{count:.0f}" for count in row)] for name, row in zip(names, matrix, strict=True)],
    )
    if len(names) > WHOLE_TABLE:
        header = ["is", "taken for", "times"]
        rows = [[names[i], names[j], f"{matrix[i][j]:.0f}"] for i, j in pairs[:WORST]]
    caption = "Test pictures by what they are (rows) and what the model takes them for (columns), "
    caption += f"{_rule(run)}. {alt}"
    note = f"The {WORST} most frequent mistakes." if len(names) > WHOLE_TABLE else ""
    return Figure("confusion", title, caption, alt, drawing, [], header, rows, note)


def _rule(run: Run) -> str:
    """What the matrix calls a picture."""
    if run.counted_at in (None, EVEN):
        return "by the likelier class" if len(run.class_names) == 2 else "by the likeliest class"
    positive = run.settings.get("positive") or run.class_names[-1]
    return f"{class_name(str(positive))} from a probability of {said_probability(run.counted_at)} on"


def calibration(run: Run) -> Figure:
    title = "Calibration"
    if not run.reliability:
        why = "It is made of the final model when the run ends." if not run.is_finished else "It was not recorded."
        return nothing("calibration", title, why)
    bins = sorted(run.reliability, key=lambda each: float(each["confidence"]))
    points = [(float(each["confidence"]), float(each["accuracy"])) for each in bins]
    lines = [
        Line("as sure as right", "c2 ref", [(0.0, 0.0), (100.0, 100.0)]),
        Line("the model", "c1", points, dots=points),
    ]
    error = number(run.of_the_kept("calibration_error"))
    gap = "" if error is None else f"; on average the two lie {error:.1f} points apart"
    caption = "How often the model is right on test pictures, by how sure it is: below the dashed line it is "
    caption += f"too sure of itself{gap}."
    alt = f"How often the model is right by how sure it is, in {len(points)} steps{gap}."
    drawing = line_chart(lines, "percent right", alt, x_label="confidence in percent", y=(0.0, 100.0))
    rows = [[f"{each['confidence']:.1f}", f"{each['accuracy']:.1f}", f"{each['pictures']:.0f}"] for each in bins]
    legend = [(line.colour, line.label) for line in lines]
    return Figure("calibration", title, caption, alt, drawing, legend, ["sure %", "right %", "pictures"], rows)


def _shares(values: list[float]) -> list[float]:
    return [100 * value / sum(values) for value in values]
