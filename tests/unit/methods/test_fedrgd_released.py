"""FedRGD as SemiFL's tables ran it: two groups that each count the server as one of them, by NumPy."""

import numpy as np
import pytest
import torch

from semifl.errors import UserError
from semifl.methods.fedrgd_released import FedRGDReleased
from testbed import Testbed


@pytest.mark.parametrize("clients", [2, 4, 10])
def test_its_average_is_that_of_two_groups_with_the_server_in_each(clients: int) -> None:
    rng = np.random.default_rng(clients)
    server, models = rng.normal(), rng.normal(size=clients)
    half = clients // 2
    expected = np.mean([np.mean([server, *models[:half]]), np.mean([server, *models[half:]])])
    joined = FedRGDReleased().joined(
        *({"w": torch.tensor([float(value)], dtype=torch.float64)} for value in (server, models.mean())),
        S_t=tuple(range(clients)),
    )
    np.testing.assert_allclose(joined["w"].item(), expected, rtol=1e-12)


def test_the_global_step_starts_from_the_servers_model() -> None:
    testbed = Testbed(name="fedrgd_released", threshold=0.0, client_batch=4, server_batch=3)
    state = testbed.method.start(testbed.first)
    velocity = {name: np.zeros(tensor.shape) for name, tensor in testbed.first.items()}
    for index in (1, 2):
        state = testbed.round(index, state)
        ((_, server),) = testbed.server.fits
        clients = testbed.trained()
        for name, tensor in state.weights.items():
            W_s = server.weights[name].double().numpy()
            mean = W_s / 3 + 2 / 3 * np.mean([each[name].double().numpy() for each in clients], axis=0)
            velocity[name] = 0.5 * velocity[name] + (W_s - mean)
            np.testing.assert_allclose(tensor.numpy(), W_s - velocity[name], atol=1e-5)


def test_it_has_no_alternate_training() -> None:
    with pytest.raises(UserError, match='training must be "parallel"'):
        Testbed(name="fedrgd_released", training="alternate")
