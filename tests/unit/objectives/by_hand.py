"""A linear model of 2 × 2 pictures in three classes, and the arithmetic of losses in NumPy float64."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from semifl.data.epochs import LabeledBatch, PairedBatch, UnlabeledBatch
from semifl.learning.network import Network

CLASSES, PIXELS = 3, 4
Array = np.ndarray


def linear_network(scale: float = 1.0) -> Network:
    torch.manual_seed(3)
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, CLASSES)))
    with torch.no_grad():
        network.vector.mul_(scale)
    return network


def pair(labeled: int, unlabeled: int, views: int, seed: int = 0) -> PairedBatch:
    """A batch of random pictures; the views of a picture have nothing in common, which no loss can tell."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(labeled, 1, 2, 2, generator=generator)
    labels = torch.randint(CLASSES, (labeled,), generator=generator)
    seen = tuple(torch.randn(unlabeled, 1, 2, 2, generator=generator) for _ in range(views))
    return PairedBatch(LabeledBatch(images, labels), UnlabeledBatch(seen, torch.arange(unlabeled)))


def parameters(network: Network) -> Array:
    """Weight and bias, [classes, pixels + 1]."""
    named = network.weights()
    return np.concatenate([array(named["1.weight"]), array(named["1.bias"])[:, None]], axis=1)


def array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def logits(W: Array, images: Tensor | Array) -> Array:
    flat = (array(images) if isinstance(images, Tensor) else images).reshape(len(images), -1)
    return flat @ W[:, :-1].T + W[:, -1]


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def one_hot(labels: Tensor | Array, classes: int = CLASSES) -> Array:
    return np.eye(classes)[np.asarray(labels)]


def cross_entropies(z: Array, targets: Array) -> Array:
    """Of each picture, with a distribution over classes for its target."""
    return -(targets * np.log(softmax(z))).sum(axis=1)


def sharpened(p: Array, temperature: float) -> Array:
    powered = p ** (1 / temperature)
    return powered / powered.sum(axis=1, keepdims=True)


def labeled_loss(W: Array, batch: PairedBatch) -> float:
    return cross_entropies(logits(W, batch.labeled.images), one_hot(batch.labeled.labels)).mean()


def gradient(loss: Callable[[Array], float], W: Array, step: float = 1e-6) -> Array:
    """By central differences."""
    result = np.zeros_like(W)
    for index in np.ndindex(W.shape):
        shift = np.zeros_like(W)
        shift[index] = step
        result[index] = (loss(W + shift) - loss(W - shift)) / (2 * step)
    return result


def assert_gradient(network: Network, loss: Tensor, expected: Callable[[Array], float]) -> None:
    """The program's gradient is that of the loss by hand, which holds its targets fixed."""
    network.vector.grad.zero_()
    loss.backward()
    found = network.module[1]
    ours = np.concatenate([array(found.weight.grad), array(found.bias.grad)[:, None]], axis=1)
    np.testing.assert_allclose(ours, gradient(expected, parameters(network)), rtol=1e-3, atol=1e-5)
