"""Each fault appears by name when its sign is there, with the remedy that fits it, and not otherwise."""

from dataclasses import replace

import pytest

from semifl.intervals import PairedDifference
from semifl.records.faults import FinalModel, Threshold, find_faults

SOUND = FinalModel(
    class_names=("ill", "normal"),
    confusion=[[180, 20], [10, 90]],
    metric="accuracy",
    auc=95.0,
    positive=0,
    best_threshold=Threshold(0.5, 90.0, 90.0),
    labels=[20, 20],
    alone=[[180, 20], [10, 90]],
    difference=PairedDifference(2.0, -1.0, 5.0),
    method="semifl",
    client_epochs=5,
)


def test_a_sound_model_has_no_fault() -> None:
    assert find_faults(SOUND) == []


def test_one_class_for_everything_asks_for_another_method_and_not_for_labels() -> None:
    (fault,) = find_faults(replace(SOUND, confusion=[[200, 0], [100, 0]]))
    assert fault.name == "one class"
    assert fault.sentence == "The model says ill for every test picture (300 of 300): do not use it."
    assert "Labels alone find 90 % of normal" in fault.remedy
    assert 'method.name = "balanced"' in fault.remedy
    assert "label more" not in fault.remedy
    (fault,) = find_faults(replace(SOUND, confusion=[[200, 0], [100, 0]], method="balanced"))
    assert "method.client_epochs = 1 (now 5)" in fault.remedy
    (fault,) = find_faults(replace(SOUND, confusion=[[200, 0], [100, 0]], method="balanced", client_epochs=1))
    assert "data.validation = 0.2 and guard = true" in fault.remedy


def test_one_class_for_nearly_everything_is_told_from_uneven_test_pictures() -> None:
    """95 % of answers are ill: of a model that gives 92 of 100 normal ones to it, and of one whose pictures are ill."""
    (fault,) = find_faults(replace(SOUND, confusion=[[193, 7], [92, 8]]))
    assert fault.name == "one class"
    assert "nearly every test picture (285 of 300), also for 92 % of other classes" in fault.sentence
    assert find_faults(replace(SOUND, confusion=[[284, 2], [1, 13]])) == []


def test_where_labels_alone_miss_the_class_too_it_is_labels_that_are_missing() -> None:
    (fault,) = find_faults(replace(SOUND, confusion=[[200, 0], [100, 0]], alone=[[200, 0], [98, 2]]))
    assert fault.remedy == "Labels alone do no better there: label more pictures of normal (the server has 20)."


def test_a_class_that_nobody_is_given_is_named() -> None:
    confusion = [[10, 0, 0], [2, 8, 0], [5, 5, 0]]
    model = replace(SOUND, class_names=("a", "b", "7"), confusion=confusion, alone=None, labels=[3, 3, 1])
    (fault,) = find_faults(model)
    assert fault.name == "class never predicted"
    assert fault.sentence == "The model never says class 7, which 10 test pictures are."
    assert "label more pictures of class 7 (the server has 1)" in fault.remedy


def test_sensitivity_far_from_specificity_with_a_good_auc_asks_for_a_threshold() -> None:
    """The deployed run of the first user: 96 and 56 % at 0.5, 86 and 85 % at 0.8."""
    uneven = replace(SOUND, confusion=[[192, 8], [44, 56]], auc=92.1, best_threshold=Threshold(0.8, 86.3, 84.5))
    (fault,) = find_faults(uneven)
    assert fault.name == "uneven classes"
    assert fault.sentence == "The model finds 96 % of ill but only 56 % of normal."
    assert "from a probability of 0.800 on: then it finds 86 % of ill and 84 % of normal" in fault.remedy
    assert "semifl predict RUN PICTURES --threshold 0.800" in fault.remedy
    assert "label" not in fault.remedy.replace("labeled pictures", "")
    (fault,) = find_faults(replace(uneven, auc=70.0))
    assert "threshold" not in fault.remedy


def test_few_test_pictures_make_no_uneven_classes() -> None:
    """5 of 5 and 3 of 5: Wilson's intervals are [57, 100] and [23, 88]."""
    assert find_faults(replace(SOUND, confusion=[[5, 0], [2, 3]])) == []


def test_of_many_classes_one_that_is_hardly_found() -> None:
    confusion = [[45, 5, 0], [5, 45, 0], [20, 20, 10]]
    (fault,) = find_faults(
        replace(SOUND, class_names=("a", "b", "c"), confusion=confusion, alone=confusion, labels=[9, 9, 9])
    )
    assert fault.name == "class seldom found"
    assert fault.sentence == "The model finds only 20 % of c; of a class on average 67 %."
    assert fault.remedy.startswith("Labels alone do no better there: label more pictures of c")


def test_worse_than_labels_only_counts_when_it_is_clear() -> None:
    (fault,) = find_faults(replace(SOUND, difference=PairedDifference(-4.0, -6.5, -1.5), metric="auc"))
    assert fault.name == "worse than labels only"
    assert fault.sentence == "The model is worse than labels alone: AUC -4.0 points [-6.5, -1.5]."
    assert find_faults(replace(SOUND, difference=PairedDifference(-4.0, -8.5, 0.5))) == []
    wrong = find_faults(replace(SOUND, difference=PairedDifference(-4.0, -6.5, -1.5), pseudo_accuracy=60.0))
    assert "only 60 % were right: start from a better model" in wrong[0].remedy
    assert find_faults(replace(SOUND, difference=PairedDifference(-4.0, -6.5, -1.5), is_of_labels=True)) == []


def test_a_model_that_says_one_class_is_not_also_uneven() -> None:
    worse = replace(SOUND, confusion=[[200, 0], [100, 0]], difference=PairedDifference(-20.0, -25.0, -15.0))
    assert [fault.name for fault in find_faults(worse)] == ["one class", "worse than labels only"]


@pytest.mark.parametrize("confusion", [[[0, 0], [0, 10]], [[0, 0], [0, 0]]])
def test_classes_without_test_pictures_are_no_fault(confusion: list[list[int]]) -> None:
    assert find_faults(replace(SOUND, confusion=confusion)) == []
