"""The label ratio of each class, in the table of the classes figure."""

from pathlib import Path

from semifl.report.class_figures import classes
from semifl.report.reading import read_run
from written_runs import round_line, write_run


def test_the_label_ratio_of_each_class_by_hand(tmp_path: Path) -> None:
    lines = [
        round_line(1, class_histogram=[10, 0, 5], class_predictions=[20, 30, 5]),
        round_line(2, class_histogram=[30, 0, 5], class_predictions=[60, 10, 15]),
    ]
    figure = classes(read_run(write_run(tmp_path / "run", lines)))
    assert figure.header[-1] == "label ratio %"
    # 40 of 80, 0 of 40, 10 of 20
    assert [row[-1] for row in figure.rows] == ["50.0", "0.0", "50.0"]


def test_runs_that_did_not_count_leave_it_empty(tmp_path: Path) -> None:
    figure = classes(read_run(write_run(tmp_path / "run", [round_line(1)])))
    assert [row[-1] for row in figure.rows] == ["", "", ""]
