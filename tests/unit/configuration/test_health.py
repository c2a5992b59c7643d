"""Each sign of trouble is found when it is there, and only then."""

import pytest

from semifl.configuration.health import MESSAGES, Health, Known

HEALTHY = {
    "round": 1,
    "server_loss": 0.5,
    "client_loss": 0.7,
    "cohort": [0, 1],
    "abstained": [],
    "failed": [],
    "late": [],
    "rejected": [],
    "label_ratio": 0.6,
    "agreement": 0.9,
    "class_histogram": [30, 30, 40],
    "update_norm": 1.0,
}
HEALTH = Health(patience=4)


def history(count: int, **changes) -> list[dict]:
    return [{**HEALTHY, **changes} for _ in range(count)]


def test_a_healthy_run_has_no_alert() -> None:
    assert HEALTH.alerts(HEALTHY, history(20), finite=True, known=Known()) == []


def test_a_first_round_has_no_alert() -> None:
    assert HEALTH.alerts(HEALTHY, [], finite=True, known=Known()) == []


@pytest.mark.parametrize(
    ("alert", "changes"),
    [
        ("nothing confident", {"label_ratio": 0.001}),
        ("one class", {"class_histogram": [2, 98, 0]}),
        ("rejected", {"rejected": [1]}),
    ],
)
def test_a_sign_that_lasts_is_an_alert(alert: str, changes: dict) -> None:
    assert HEALTH.alerts({**HEALTHY, **changes}, history(4, **changes), finite=True, known=Known()) == [alert]


@pytest.mark.parametrize("changes", [{"label_ratio": 0.001}, {"class_histogram": [2, 98, 0]}])
def test_a_slow_sign_of_one_round_is_none(changes: dict) -> None:
    assert HEALTH.alerts({**HEALTHY, **changes}, history(9), finite=True, known=Known()) == []


def test_what_is_not_finite_is_an_alert_at_once() -> None:
    assert HEALTH.alerts(HEALTHY, [], finite=False, known=Known()) == ["not finite"]


def test_an_update_ten_times_the_median_explodes() -> None:
    assert HEALTH.alerts({**HEALTHY, "update_norm": 10.1}, history(5), finite=True, known=Known()) == ["exploding"]
    assert HEALTH.alerts({**HEALTHY, "update_norm": 9.9}, history(5), finite=True, known=Known()) == []


def test_agreement_that_falls_by_a_fifth_is_an_alert() -> None:
    falling = [*history(4), *history(3, agreement=0.7)]
    assert HEALTH.alerts({**HEALTHY, "agreement": 0.7}, falling, finite=True, known=Known()) == [
        "agreement falling"
    ]  # 0.7 < 0.8·0.9
    assert (
        HEALTH.alerts(
            {**HEALTHY, "agreement": 0.75}, [*history(4), *history(3, agreement=0.75)], finite=True, known=Known()
        )
        == []
    )


def test_held_out_accuracy_below_the_first_round_for_long_is_an_alert() -> None:
    before = [{**HEALTHY, "validation_accuracy": 80.0}, *history(3, validation_accuracy=79.0)]
    record = {**HEALTHY, "validation_accuracy": 79.0}
    assert HEALTH.alerts(record, before, finite=True, known=Known()) == ["below the start"]
    assert HEALTH.alerts({**record, "validation_accuracy": 80.0}, before, finite=True, known=Known()) == []


def test_the_strictest_policy_wins() -> None:
    health = Health(nonfinite="skip", exploding="warn", collapse="stop")
    assert health.policy([]) == "warn"
    assert health.policy(["exploding"]) == "warn"
    assert health.policy(["exploding", "not finite"]) == "skip"
    assert health.policy(["not finite", "one class"]) == "stop"


def test_every_alert_has_a_message_with_a_remedy_or_a_reason() -> None:
    everything = Health().alerts(
        {**HEALTHY, "label_ratio": 0.0, "rejected": [0]}, history(12, label_ratio=0.0), finite=False, known=Known()
    )
    assert set(everything) <= set(MESSAGES)
    assert all(len(message) > 40 for message in MESSAGES.values())


def test_the_servers_loss_is_watched_in_every_round() -> None:
    # Lowest so far 0.5: above twice that, and by more than 0.3.
    assert HEALTH.alerts({**HEALTHY, "server_loss": 1.01}, history(1), True, Known()) == ["server loss rising"]
    assert HEALTH.alerts({**HEALTHY, "server_loss": 0.99}, history(1), True, Known()) == []
    small = history(3, server_loss=0.01)  # noise around nothing
    assert HEALTH.alerts({**HEALTHY, "server_loss": 0.05}, small, True, Known()) == []
    assert HEALTH.alerts({**HEALTHY, "server_loss": 0.32}, small, True, Known()) == ["server loss rising"]
    assert HEALTH.alerts({**HEALTHY, "server_loss": None}, small, True, Known()) == []


def test_predicted_classes_that_drift_from_the_labels_are_an_alert() -> None:
    known = Known(prior=(0.5, 0.5))
    # A half by the labels: more than 0.5 + 0.75 · 0.5 = 0.875 of all pictures, in two rounds.
    drifted = {"class_predictions": [90, 10]}
    assert HEALTH.alerts({**HEALTHY, **drifted}, history(1, **drifted), True, known) == ["drifting"]
    assert HEALTH.alerts({**HEALTHY, **drifted}, history(1), True, known) == []
    assert HEALTH.alerts({**HEALTHY, "class_predictions": [87, 13]}, history(1, **drifted), True, known) == []
    rare = Known(prior=(0.9, 0.1))  # here the same shares are as they should be
    assert HEALTH.alerts({**HEALTHY, **drifted}, history(1, **drifted), True, rare) == []


def test_one_sided_pseudo_labels_are_no_alert_where_held_out_labels_are_told_apart() -> None:
    """Sites may hold little else. Of two classes one for everything has a balanced accuracy of 50: 75 is halfway."""
    known = Known("accuracy", (0.5, 0.5), 40)
    one_sided = {"class_histogram": [99, 1], "class_predictions": [95, 5]}
    for held_out, expected in ((76.0, []), (74.0, ["one class", "drifting"]), (None, ["one class", "drifting"])):
        more = {} if held_out is None else {"validation_balanced_accuracy": held_out}
        found = HEALTH.alerts({**HEALTHY, **one_sided, **more}, history(2, **one_sided, **more), True, known)
        assert [alert for alert in found if alert in ("one class", "drifting")] == expected


def test_held_out_labels_are_watched_in_every_round() -> None:
    # Of 100 labels two standard errors are 10 points at most.
    known, before = Known(metric="auc", held_out=100), history(2, validation_auc=80.0)
    assert HEALTH.alerts({**HEALTHY, "validation_auc": 69.0}, before, True, known) == ["held-out falling"]
    assert HEALTH.alerts({**HEALTHY, "validation_auc": 71.0}, before, True, known) == []
    few = known._replace(held_out=10)
    assert HEALTH.alerts({**HEALTHY, "validation_auc": 69.0}, before, True, few) == []


def test_going_back_is_for_signs_of_harm() -> None:
    health = Health(collapse="fallback")
    assert health.policy(["drifting"]) == "fallback"
    assert health.policy(["nothing confident", "rejected"]) == "warn"
    assert Health(collapse="stop", exploding="fallback").policy(["exploding", "drifting"]) == "stop"
    assert health.policy([]) == "warn"
