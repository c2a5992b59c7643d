"""Each sentence appears when its sign is there, names the remedy, and is silent otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest

from semifl.report.advice import advise, advise_together, mean_confidence, odd_sites
from semifl.report.groups import group_runs
from semifl.report.page import page
from semifl.report.reading import read_run
from semifl.report.skew import skew_text
from written_runs import round_line, write_run


def said(folder: Path, rounds: int = 6, result: dict[str, Any] | None = None, **changes: Any) -> str:
    lines = [round_line(index, **changes) for index in range(1, rounds + 1)]
    return "\n".join(advise(read_run(write_run(folder / "run", lines, **(result or {})))))


def test_a_sound_run_needs_no_advice(tmp_path: Path) -> None:
    assert said(tmp_path) == ""


def test_nothing_confident_names_all_four_remedies(tmp_path: Path) -> None:
    text = said(tmp_path, label_ratio=0.0, class_histogram=[0, 0, 0])
    assert "confident about nothing" in text
    for remedy in ("method.threshold (now 0.95)", "method.server_epochs, now 5", "model.weights", "more rounds"):
        assert remedy in text


def test_next_to_nothing_says_how_little(tmp_path: Path) -> None:
    assert "next to nothing (2.0 % of their pictures)" in said(tmp_path, label_ratio=0.02)


def test_two_rounds_are_too_few_to_complain(tmp_path: Path) -> None:
    assert "confident" not in said(tmp_path, rounds=2, label_ratio=0.0)


def test_confident_pseudo_labels_of_one_class_alone_do_not_tell_a_collapse(tmp_path: Path) -> None:
    text = said(tmp_path, class_histogram=[1, 99, 0])
    assert "99 % of the confident pseudo-labels are green, but only 33 % of the server's labels" in text
    assert "cannot be told, as only the confident pictures were counted" in text


def skewed(folder: Path, confusion: list[list[int]], **result: Any) -> str:
    """80 of 100 pictures are taken for ill, while half of the labels are."""
    run = write_run(folder / "run", [round_line(index, class_predictions=[20, 80]) for index in (1, 2, 3)], **result)
    (run / "world.json").write_text(json.dumps({"class_names": ["healthy", "ill"], "server_classes": [20, 20]}))
    (run / "confusion.json").write_text(json.dumps({"counts": confusion}))
    return "\n".join(advise(read_run(run)))


def test_sites_that_really_hold_more_of_a_class_are_told_from_a_collapse(tmp_path: Path) -> None:
    """Of ill test pictures 90 % are found, of the others 10 % taken for ill: (0.8 − 0.1) / (0.9 − 0.1) = 0.875."""
    text = skewed(tmp_path / "sites", [[90, 10], [10, 90]])
    assert "80 % of the clients' pictures are taken for ill, but only 50 % of the server's labels" in text
    assert "about 88 % are: the sites seem to hold more of it than the labels do" in text
    # Of all test pictures 90 % and 60 %: (0.8 − 0.6) / (0.9 − 0.6) = 0.667, still more than a half.
    assert "about 67 % are: the sites seem" in skewed(tmp_path / "both", [[40, 60], [10, 90]])
    # 100 % and 65 %: (0.8 − 0.65) / 0.35 = 0.43.
    assert "only about 43 % are: the model says it too often" in skewed(tmp_path / "model", [[35, 65], [0, 100]])
    text = skewed(tmp_path / "unknown", [[10, 90], [5, 95]])
    assert "cannot be told, as the model hardly tells it from the others" in text


def test_a_collapse_that_the_test_pictures_show_is_not_explained_by_the_sites(tmp_path: Path) -> None:
    fault = {"name": "one class", "sentence": "The model says ill for every test picture.", "remedy": "Do not."}
    assert "taken for ill" not in skewed(tmp_path, [[0, 100], [0, 100]], faults=[fault])
    text = skew_text(read_run(tmp_path / "run"))  # below the figure
    assert text.endswith("The test pictures show that the model has collapsed to one class.")


UNCLEAR = {"test_examples": 300, "difference": {"against": "labels_only", "accuracy": [1.0, -3.0, 5.0]}}


def test_where_no_difference_can_be_told_it_says_from_where_on_one_could(tmp_path: Path) -> None:
    text = said(tmp_path / "a", result=UNCLEAR)
    assert "300 test pictures show a difference from labels alone only from about 4 points on" in text
    assert "raise method.threshold" not in text
    text = said(tmp_path / "b", result=UNCLEAR, confident_accuracy=60.0)
    assert "Of the confident pseudo-labels only 60 % were right" in text
    assert "raise method.threshold" in text


ILL = {"balanced_accuracy": 50.0, "sensitivity": 100.0, "specificity": 90.0, "decision_threshold": 0.0025}


def of_two_kinds(folder: Path, confusion: dict[str, Any]) -> Path:
    run = write_run(folder / "run", [round_line(1)], **ILL)
    (run / "world.json").write_text(json.dumps({"class_names": ["healthy", "ill"]}))
    (run / "confusion.json").write_text(json.dumps(confusion))
    return run


def test_where_a_threshold_was_chosen_the_likelier_class_is_not_the_classifier(tmp_path: Path) -> None:
    """An earlier version counted by the likelier class, which finds nobody ill. (100 + 90) / 2 = 95."""
    run = of_two_kinds(tmp_path, {"counts": [[45, 0], [15, 0]]})
    text = "\n".join(advise(read_run(run)))
    assert "95.0 % at its decision threshold of 0.00250:" in text
    assert "semifl predict RUN --threshold chosen" in text
    assert "what the model takes them for (columns), by the likelier class." in page([run])


def test_the_matrix_says_the_threshold_it_was_counted_at(tmp_path: Path) -> None:
    run = of_two_kinds(tmp_path, {"counts": [[45, 0], [12, 3]], "threshold": 0.0025})
    assert "(columns), ill from a probability of 0.00250 on." in page([run])


def test_a_model_that_fell(tmp_path: Path) -> None:
    text = said(tmp_path, result={"best_accuracy": 90.0, "best_round": 3})
    assert "10.0 points worse on the test pictures than round 3" in text


def test_lost_replies_and_alerts(tmp_path: Path) -> None:
    text = said(tmp_path, rounds=3, failed=[1], rejected=[2, 3], alerts=["exploding", "rejected", "unheard of"])
    assert "3 failed, 6 were turned away" in text
    assert "moved much further" in text


def test_clients_that_were_never_asked(tmp_path: Path) -> None:
    assert "2 of 6 clients were never asked" in said(tmp_path, rounds=3, cohort=[0, 1, 2, 3])


@pytest.mark.parametrize("rounds", [3, 8])
def test_a_site_far_below_the_others_is_pointed_out(tmp_path: Path, rounds: int) -> None:
    sure, unsure = [0] * 9 + [20], [0] * 4 + [20] + [0] * 5
    lines = [
        round_line(index, cohort=[0, 1, 2, 3, 4, 5], confidence_histograms=[sure, sure, unsure, sure, sure, sure])
        for index in range(1, rounds + 1)
    ]
    run = read_run(write_run(tmp_path / "run", lines))
    # Twenty pictures between 0.4 and 0.5 against twenty between 0.9 and 1.
    assert [(each.client, round(each.confidence, 2), round(each.gap, 2)) for each in odd_sites(run)] == [
        (2, 0.45, -0.5)
    ]
    assert any("client 2 (0.45)" in sentence and "never seen" in sentence for sentence in advise(run))


def test_sites_are_compared_within_a_round_and_not_across_rounds(tmp_path: Path) -> None:
    """A client asked only at the start, when nobody was sure, is not odd."""
    early, late = [0, 20] + [0] * 8, [0] * 9 + [20]
    lines = [
        round_line(1, cohort=[0, 1, 2], confidence_histograms=[early] * 3),
        *(round_line(index, cohort=[2, 3, 4, 5], confidence_histograms=[late] * 4) for index in range(2, 6)),
    ]
    assert odd_sites(read_run(write_run(tmp_path / "run", lines))) == []


def test_mean_confidence_takes_the_middle_of_each_step() -> None:
    assert mean_confidence([1] + [0] * 8 + [1]) == pytest.approx((0.05 + 0.95) / 2)


def test_labels_alone_on_a_backbone_beat_clients_from_scratch(tmp_path: Path) -> None:
    lines = [round_line(index) for index in range(1, 4)]
    scratch = write_run(tmp_path / "scratch", lines, accuracy=71.0)
    backbone = write_run(tmp_path / "backbone", lines, accuracy=75.0, labels_only_accuracy=72.5)
    with (backbone / "config.toml").open("a") as file:
        file.write('[model]\nname = "pretrained"\n')
    (sentence,) = advise_together(group_runs([read_run(scratch), read_run(backbone)]))
    assert "reach 72.5 %" in sentence
    assert "(71.0 %)" in sentence
    assert "Start from the backbone" in page([scratch, backbone])
    better = write_run(tmp_path / "better", lines, accuracy=72.6)  # from scratch, and above
    assert advise_together(group_runs([read_run(better), read_run(backbone)])) == []
    assert advise_together(group_runs([read_run(backbone)])) == []
