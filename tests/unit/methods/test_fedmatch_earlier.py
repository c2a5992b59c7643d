"""FedMatch as SemiFL's program ran it until August 2022: which half of the channels each side trains."""

import numpy as np
import pytest

from semifl.errors import UserError
from testbed import Testbed


def test_each_side_trains_its_half_of_the_channels() -> None:
    """The next model is the server's first half and the clients' mean second half, stepped from the server's model."""
    fields = {"weight_decay": 0.0, "threshold": 0.0, "client_batch": 4, "server_batch": 3}
    testbed = Testbed(name="fedmatch_earlier", **fields)
    state = testbed.method.start(testbed.first)
    velocity = {name: np.zeros(tensor.shape) for name, tensor in testbed.first.items()}
    for index in (1, 2):
        sent = {name: tensor.double().numpy() for name, tensor in state.weights.items()}
        state = testbed.round(index, state)
        ((_, server),) = testbed.server.fits
        clients = testbed.trained()
        for name, tensor in state.weights.items():
            half = len(tensor) // 2
            W_s = server.weights[name].double().numpy()
            W_u = np.mean([each[name].double().numpy() for each in clients], axis=0)
            np.testing.assert_array_equal(W_s[half:], sent[name][half:])
            if index == 1:  # afterwards kept momentum may move what this round's gradient does not
                np.testing.assert_allclose(W_u[:half], sent[name][:half], atol=1e-7)
            mean = np.concatenate([W_s[:half], W_u[half:]])
            velocity[name] = 0.5 * velocity[name] + (W_s - mean)
            np.testing.assert_allclose(tensor.numpy(), W_s - velocity[name], atol=1e-5)
    assert any(np.abs(each).max() > 1e-3 for each in velocity.values())


def test_it_has_no_alternate_training() -> None:
    with pytest.raises(UserError, match='training must be "parallel"'):
        Testbed(name="fedmatch_earlier", training="alternate")
