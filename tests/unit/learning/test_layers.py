"""Parts of models: what a strided shortcut computes, and that narrow ones leave the memory of others alone."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from semifl.learning.layers import conv

# Plain convolutions of these sizes end such a process with "free(): invalid next size" or the like.
TRAIN = """
import torch
from semifl.learning.layers import conv
for inputs in range(1, 9):
    for _ in range(20):
        layer = conv(inputs, 2 * inputs, 1, 2).to(memory_format=torch.channels_last)
        x = torch.randn(10, inputs, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
        y = layer(x)
        y.backward(torch.randn_like(y))
"""


@pytest.mark.parametrize("inputs", [4, 16])
def test_a_strided_shortcut_by_hand(inputs: int) -> None:
    layer = conv(inputs, 6, 1, 2).double()
    x = torch.randn(3, inputs, 5, 5, dtype=torch.double, requires_grad=True)
    W, seen = layer.weight.detach().numpy()[:, :, 0, 0], x.detach().numpy()[:, :, ::2, ::2]
    y = layer(x)
    np.testing.assert_allclose(y.detach().numpy(), np.einsum("oc,nchw->nohw", W, seen), rtol=1e-10)
    y.sum().backward()
    expected = np.zeros(x.shape)
    expected[:, :, ::2, ::2] = W.sum(axis=0)[None, :, None, None]
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        layer.weight.grad.numpy()[:, :, 0, 0], np.tile(seen.sum(axis=(0, 2, 3)), (6, 1)), rtol=1e-10
    )


def test_narrow_shortcuts_corrupt_no_memory() -> None:
    environment = {**os.environ, "MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", TRAIN], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
