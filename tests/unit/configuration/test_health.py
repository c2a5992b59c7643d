"""Each sign of trouble is found when it is there, and only then."""

import pytest

from semifl.configuration.health import MESSAGES, Health

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
    assert HEALTH.alerts(HEALTHY, history(20), finite=True, metric="accuracy") == []


def test_a_first_round_has_no_alert() -> None:
    assert HEALTH.alerts(HEALTHY, [], finite=True, metric="accuracy") == []


@pytest.mark.parametrize(
    ("alert", "changes"),
    [
        ("nothing confident", {"label_ratio": 0.001}),
        ("one class", {"class_histogram": [2, 98, 0]}),
        ("rejected", {"rejected": [1]}),
    ],
)
def test_a_sign_that_lasts_is_an_alert(alert: str, changes: dict) -> None:
    assert HEALTH.alerts({**HEALTHY, **changes}, history(4, **changes), finite=True, metric="accuracy") == [alert]


@pytest.mark.parametrize("changes", [{"label_ratio": 0.001}, {"class_histogram": [2, 98, 0]}])
def test_a_slow_sign_of_one_round_is_none(changes: dict) -> None:
    assert HEALTH.alerts({**HEALTHY, **changes}, history(9), finite=True, metric="accuracy") == []


def test_what_is_not_finite_is_an_alert_at_once() -> None:
    assert HEALTH.alerts(HEALTHY, [], finite=False, metric="accuracy") == ["not finite"]


def test_an_update_ten_times_the_median_explodes() -> None:
    assert HEALTH.alerts({**HEALTHY, "update_norm": 10.1}, history(5), finite=True, metric="accuracy") == ["exploding"]
    assert HEALTH.alerts({**HEALTHY, "update_norm": 9.9}, history(5), finite=True, metric="accuracy") == []


def test_agreement_that_falls_by_a_fifth_is_an_alert() -> None:
    falling = [*history(4), *history(3, agreement=0.7)]
    assert HEALTH.alerts({**HEALTHY, "agreement": 0.7}, falling, finite=True, metric="accuracy") == [
        "agreement falling"
    ]  # 0.7 < 0.8·0.9
    assert (
        HEALTH.alerts(
            {**HEALTHY, "agreement": 0.75}, [*history(4), *history(3, agreement=0.75)], finite=True, metric="accuracy"
        )
        == []
    )


def test_held_out_accuracy_below_the_first_round_for_long_is_an_alert() -> None:
    before = [{**HEALTHY, "validation_accuracy": 80.0}, *history(3, validation_accuracy=79.0)]
    record = {**HEALTHY, "validation_accuracy": 79.0}
    assert HEALTH.alerts(record, before, finite=True, metric="accuracy") == ["below the start"]
    assert HEALTH.alerts({**record, "validation_accuracy": 80.0}, before, finite=True, metric="accuracy") == []


def test_the_strictest_policy_wins() -> None:
    health = Health(nonfinite="skip", exploding="warn", collapse="stop")
    assert health.policy([]) == "warn"
    assert health.policy(["exploding"]) == "warn"
    assert health.policy(["exploding", "not finite"]) == "skip"
    assert health.policy(["not finite", "one class"]) == "stop"


def test_every_alert_has_a_message_with_a_remedy_or_a_reason() -> None:
    everything = Health().alerts(
        {**HEALTHY, "label_ratio": 0.0, "rejected": [0]}, history(12, label_ratio=0.0), finite=False, metric="accuracy"
    )
    assert set(everything) <= set(MESSAGES)
    assert all(len(message) > 40 for message in MESSAGES.values())
