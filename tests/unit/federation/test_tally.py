"""What happened in a round, as sums."""

import pytest
import torch

import semifl.federation.tally as tally_file
from semifl.federation.tally import Tally, tensor_bytes
from semifl.federation.world import Reply, Update
from semifl.learning.batchnorm import Moments
from semifl.learning.weights import Snapshot


def test_bytes_of_a_nest_by_hand() -> None:
    nest = {
        "float32": torch.zeros(3, 4),  # 48
        "rest": (torch.zeros(5, dtype=torch.float64), [torch.zeros(7, dtype=torch.uint8)], "text", 3, None),  # 40 + 7
        "moments": Moments(9, torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)),  # 32
        "empty": torch.zeros(0),
        "flag": torch.tensor(True),  # 1
    }

    assert tensor_bytes(nest) == 48 + 40 + 7 + 32 + 1


def test_a_view_counts_what_it_shows() -> None:
    assert tensor_bytes(torch.zeros(1000)[:10]) == 40
    assert tensor_bytes(torch.zeros(1).expand(10)) == 40


def test_a_model_counts_with_its_statistics() -> None:
    model = Snapshot({"w": torch.zeros(10)}, {"bn": Moments(3, torch.zeros(2).double(), torch.ones(2).double())})
    assert tensor_bytes(model) == 40 + 16 + 16


def test_what_is_received_adds_up() -> None:
    tally = Tally()
    update = Update({"w": torch.zeros(10)}, 5, {"loss": 1.0}, {})

    for client in range(3):
        trained = client != 1
        outcome = "trained" if trained else "abstained"
        tally.received(Reply(client, update if trained else None, outcome, "", {"images": 4}))  # type: ignore[arg-type]

    assert tally.bytes_up == 2 * 40


def test_replies_are_kept_in_order_without_change_and_memory() -> None:
    tally = Tally()
    update = Update({"w": torch.zeros(10)}, 5, {"loss": 1.0}, {"momentum": torch.zeros(10)})
    reply = Reply(8, update, "trained", "", {"images": 4})

    tally.received(reply)
    tally.received(Reply(9, None, "failed", "no power", {}))

    assert tally.replies == [
        Reply(8, Update({}, 5, {"loss": 1.0}, {}), "trained", "", {"images": 4}),
        Reply(9, None, "failed", "no power", {}),
    ]
    assert set(reply.update.change) == {"w"}  # whoever still needs the reply has all of it


def test_seconds_add_up_by_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 13.0, 20.0, 21.5, 30.0, 34.0])
    monkeypatch.setattr(tally_file.time, "perf_counter", lambda: next(clock))
    tally = Tally()

    with tally.phase("clients"):
        pass
    with tally.phase("server"):
        pass
    with pytest.raises(ArithmeticError), tally.phase("clients"):
        raise ArithmeticError

    assert tally.seconds == {"clients": 3.0 + 4.0, "server": 1.5}


def test_reset_forgets_everything() -> None:
    tally, fresh = Tally(), Tally()
    tally.bytes_down = 12
    tally.received(Reply(1, Update({"w": torch.zeros(1)}, 1, {}, {}), "trained", "", {}))
    tally.lr, tally.server_terms = 0.1, {"loss": 2.0}
    tally.tested = Snapshot({}, {})
    with tally.phase("test"):
        pass

    tally.reset()

    assert vars(tally) == vars(fresh)
    assert (tally.bytes_up, tally.bytes_down, tally.replies, tally.seconds) == (0, 0, [], {})


def test_a_client_that_is_asked_twice_stands_once_with_its_counts_added_up() -> None:
    tally = Tally()
    facts = {"lr": 0.1, "images": 10, "confident": 4, "confidence": 7.5, "classes": [1, 3]}
    more = {"lr": 0.1, "images": 6, "confident": 0, "confidence": 2.0, "classes": [0, 0]}
    for loss, examples in ((1.0, 4), (4.0, 2)):
        update = Update({"w": torch.zeros(10)}, examples, {"loss": loss}, {})
        tally.received(Reply(3, update, "trained", "", facts))
    tally.received(Reply(5, None, "abstained", "", more))
    tally.received(Reply(3, None, "abstained", "", more))
    first, second = tally.replies
    assert (first.client, first.outcome, second.client, second.outcome) == (3, "trained", 5, "abstained")
    assert first.facts == {"lr": 0.1, "images": 26, "confident": 8, "confidence": 17.0, "classes": [2, 6]}
    assert first.update is not None
    assert (first.update.examples, first.update.terms) == (6, {"loss": pytest.approx((4 * 1.0 + 2 * 4.0) / 6)})
    assert tally.bytes_up == 2 * 40
