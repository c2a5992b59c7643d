"""Statistics that ride along with updates, against those of all pictures together, in NumPy."""

import numpy as np
import pytest
import torch

from semifl.learning.batchnorm import Moments
from semifl.learning.norm_correction import SHIFT, SQUARE, corrected, learned, measured, unchanged
from semifl.learning.weights import average, changed


def moments(values: np.ndarray) -> Moments:
    """Of values [n, channels]; the variance is that of the values themselves, so that equal shares pool exactly."""
    return Moments(len(values), torch.tensor(values.mean(axis=0)), torch.tensor(values.var(axis=0)))


@pytest.fixture
def sites() -> list[np.ndarray]:
    """Two clients of the same size whose means lie apart, as with few classes each."""
    rng = np.random.default_rng(0)
    return [rng.normal(-1.0, 2.0, (50, 3)), rng.normal(4.0, 0.5, (50, 3))]


def told(sites: list[np.ndarray], sent: dict[str, Moments]) -> dict[str, torch.Tensor]:
    """The mean change of the clients' measures."""
    changes = [changed(measured({"norm": moments(each)}, sent), unchanged(sent)) for each in sites]
    mean = average((change, 1.0) for change in changes)
    assert mean is not None
    return mean


def test_one_round_makes_the_statistics_those_of_all_clients(sites: list[np.ndarray]) -> None:
    server = {"norm": moments(np.random.default_rng(1).normal(0.5, 1.0, (8, 3)))}
    correction = learned(unchanged(server), told(sites, server), 1.0)
    everybody = np.concatenate(sites)
    after = corrected(server, correction)["norm"]
    np.testing.assert_allclose(after.mean.numpy(), everybody.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(after.var.numpy(), everybody.var(axis=0), rtol=1e-5)


def test_later_rounds_measure_in_units_of_what_was_sent(sites: list[np.ndarray]) -> None:
    """A correction that is right already stays, though clients measure from other statistics than the server's."""
    server = {"norm": moments(np.random.default_rng(1).normal(0.5, 1.0, (8, 3)))}
    right = learned(unchanged(server), told(sites, server), 1.0)
    again = learned(right, told(sites, corrected(server, right)), 0.2)
    for name, tensor in right.items():
        np.testing.assert_allclose(again[name].numpy(), tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_half_a_step_by_hand() -> None:
    """The server has mean 0 and variance 1; the correction so far says mean 1, variance 4; clients say 3 and 16."""
    server = {"norm": Moments(9, torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))}
    so_far = {SHIFT + "norm": torch.tensor([1.0]), SQUARE + "norm": torch.tensor([4.0])}
    sent = corrected(server, so_far)
    clients = {"norm": Moments(9, torch.tensor([3.0]), torch.tensor([16.0]))}
    change = changed(measured(clients, sent), unchanged(sent))
    assert change[SHIFT + "norm"].item() == pytest.approx((3 - 1) / 2)
    assert change[SQUARE + "norm"].item() == pytest.approx((16 + 2**2) / 4 - 1)
    after = corrected(server, learned(so_far, change, 0.5))["norm"]
    assert after.mean.item() == pytest.approx(2.0)  # half of the way from 1 to 3
    assert after.var.item() == pytest.approx(8.0)  # and from 4 to 16, as factors


def test_what_cannot_be_measured_changes_nothing() -> None:
    sent = {"norm": Moments(9, torch.ones(2), torch.ones(2))}
    assert all(torch.equal(tensor, unchanged(sent)[name]) for name, tensor in measured({}, sent).items())


def test_no_variance_vanishes() -> None:
    """Noise on the changes, or clients that lie apart from each other, may ask for a negative one."""
    sent = {"norm": Moments(9, torch.zeros(1), torch.ones(1))}
    change = {SHIFT + "norm": torch.tensor([3.0]), SQUARE + "norm": torch.tensor([-0.5])}
    assert learned(unchanged(sent), change, 1.0)[SQUARE + "norm"].item() == pytest.approx(0.05)


def test_layers_without_a_correction_stay() -> None:
    server = {"norm": Moments(9, torch.ones(2), torch.ones(2))}
    assert corrected(server, {}) == server


def test_a_channel_that_is_dead_at_the_server_is_no_unit() -> None:
    """It says 0.5 of all the server's pictures and 2.0 of the client's: of the two channels only the other learns."""
    sent = {"norm": Moments(9, torch.tensor([0.5, 0.0]), torch.tensor([0.0, 4.0]))}
    told = measured({"norm": Moments(9, torch.tensor([2.0, 1.0]), torch.tensor([1.0, 1.0]))}, sent)
    assert told[SHIFT + "norm"].tolist() == [0.0, 0.5]
    assert told[SQUARE + "norm"].tolist() == [1.0, 0.5]  # (1 + 1²) / 4
