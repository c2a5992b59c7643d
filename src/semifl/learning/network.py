"""A model made ready for federated training: its trainable parameters lie in one vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn

from semifl.errors import UserError
from semifl.learning import batchnorm
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.precision import Precision, casting
from semifl.learning.weights import Shapes, Snapshot, Weights, shapes


def parameters_of(build: Callable[[], nn.Module]) -> int:
    """How many numbers a model has, built without memory for them, so that one of absurd size costs nothing."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return sum(each.numel() for each in build().parameters())


def shapes_of(build: Callable[[], nn.Module]) -> Shapes:
    """What the weights of such a model look like as they travel, without memory for them."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return shapes({name: each for name, each in build().named_parameters() if each.requires_grad})


class Stretch(NamedTuple):
    """A piece of a network's vector as a parameter of its own."""

    vector: nn.Parameter
    place: slice  # in the whole
    is_head: bool


class Network:
    """An `nn.Module` whose trainable parameters and gradients are views of one vector each.

    An optimiser step, a norm or a copy then touches one tensor instead of a hundred. Parameters that need no gradient
    and buffers other than BatchNorm's are constants of the model: they stay as built and never travel.

    Whatever the precision of its passes, the vector, its gradient and all that is computed from logits are fp32.
    """

    def __init__(
        self,
        module: nn.Module,
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
        compiled: bool = False,
    ) -> None:
        batchnorm.stop_tracking(module)
        self.device = torch.device(device)
        self.precision = precision
        self.module = module.to(self.device)
        trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._shapes = {name: tuple(p.shape) for name, p in trainable.items()}
        if not trainable:
            raise UserError("the model has no weights to train")
        total = sum(p.numel() for p in trainable.values())
        vector = next(iter(trainable.values())).detach().new_empty(total)
        self.vector = nn.Parameter(vector)  # what the optimiser sees
        self.vector.grad = torch.zeros_like(vector)
        self._parts = self.parts_of(vector)
        gradients = self.parts_of(self.vector.grad)
        for name, part in self._parts.items():
            trainable[name].data = part.copy_(trainable[name].detach())
            trainable[name].grad = gradients[name]
        self._compiled: Callable[[Tensor], Tensor] | None = torch.compile(self.module) if compiled else None

    def __call__(self, images: Tensor) -> Tensor:
        # Only training has the same few sizes of batches again and again, which is when compiling pays.
        forward = self._compiled if self._compiled and self.module.training else self.module
        with casting(self.device, self.precision):
            logits: Tensor = forward(images)
        return widened(logits)

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the vector's."""
        loss.backward()  # type: ignore[no-untyped-call]

    def gradients(self, loss: Tensor) -> Weights:
        """The loss's gradient by name, for a loss that looks at it; the passes it came from can be used again."""
        named = {name: each for name, each in self.module.named_parameters() if each.requires_grad}
        found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, materialize_grads=True)
        return dict(zip(named, found, strict=True))

    def stretches(self) -> list[Stretch]:
        """The vector cut where the last linear layer begins and ends, so that its steps can be others."""
        linear = [f"{name}." for name, module in self.module.named_modules() if isinstance(module, nn.Linear)]
        assert self.vector.grad is not None
        cuts, start = [], 0
        for is_head, names in groupby(self._shapes, key=lambda name: bool(linear) and name.startswith(linear[-1])):
            stop = start + sum(torch.Size(self._shapes[name]).numel() for name in names)
            piece = nn.Parameter(self.vector.data[start:stop])
            piece.grad = self.vector.grad[start:stop]
            cuts.append(Stretch(piece, slice(start, stop), is_head))
            start = stop
        return cuts

    def with_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and what the last linear layer made them from."""
        linear = [module for module in self.module.modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise UserError("the model has no linear layer whose input could serve as features")
        seen: list[Tensor] = []
        hook = linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            with casting(self.device, self.precision):
                logits: Tensor = self.module(images)  # not a compiled one, which would pass the hook by
        finally:
            hook.remove()
        return widened(logits), widened(seen[-1])

    def frozen(self, images: Tensor) -> Tensor:
        """What the frozen part of a model that has one makes of pictures."""
        self.module.eval()
        with torch.inference_mode(), casting(self.device, self.precision):
            few = torch.split(images, self.module.at_once)  # type: ignore[arg-type]
            features = torch.cat([self.module.frozen(part) for part in few])  # type: ignore[operator]
        return widened(features)

    def forward_at(self, shift: Weights, images: Tensor) -> Tensor:
        """Logits of the model with its weights shifted; a gradient of them is that of the shifted model."""
        shifted = {name: each + shift[name] for name, each in self.module.named_parameters() if name in shift}
        with casting(self.device, self.precision):
            logits: Tensor = torch.func.functional_call(self.module, shifted, (images,))
        return widened(logits)

    def forward_with(self, weights: Weights, images: Tensor) -> Tensor:
        """Logits of the same model with other weights, without a gradient: an average teacher, a frozen helper."""
        with torch.no_grad(), casting(self.device, self.precision):
            logits: Tensor = torch.func.functional_call(self.module, weights, (images,))
        return widened(logits)

    def statistics(self, blocks: Iterable[Tensor]) -> BatchNormStats:
        """What BatchNorm meets in these blocks, each normalised by itself."""
        with casting(self.device, self.precision):
            return batchnorm.collect(self.module, blocks)

    def trained(self) -> Weights:
        """The parameters themselves, by name: they change with the next step."""
        return self._parts

    def average_into(self, average: Weights, decay: float) -> None:
        """Let an average of past weights follow these, in place: decay · average + (1 − decay) · weights."""
        with torch.no_grad():
            for name, part in self._parts.items():
                average[name].lerp_(part, 1 - decay)

    def load(self, weights: Weights) -> None:
        """Take these weights over, by name."""
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if shapes != self._shapes:
            raise ValueError("these weights are not of this model: names or shapes differ")
        with torch.no_grad():
            for name, part in self._parts.items():
                part.copy_(weights[name])

    def load_snapshot(self, model: Snapshot) -> None:
        """Take a whole model over and be ready to infer."""
        self.load(model.weights)
        batchnorm.load(self.module, model.stats)
        self.module.eval()

    def weights(self) -> Weights:
        """A copy of the weights as they are now, on the CPU: there they are averaged, written down and sent."""
        whole = torch.empty(len(self.vector), dtype=self.vector.dtype)
        copy = {name: piece.view(self._shapes[name]) for name, piece in self._pieces(whole).items()}
        for name, part in self._parts.items():
            copy[name].copy_(part)
        return copy

    def parts_of(self, vectors: Tensor) -> Weights:
        """The pieces of one vector, or of several, in the shapes of the parameters.

        Convolutions run a little faster channels-last.
        """
        views = {}
        for name, piece in self._pieces(vectors).items():
            shape, many = self._shapes[name], vectors.shape[:-1]
            if len(shape) == 4:
                outputs, inputs, height, width = shape
                views[name] = piece.view(*many, outputs, height, width, inputs).movedim(-1, -3)
            else:
                views[name] = piece.view(*many, *shape)
        return views

    def _pieces(self, vectors: Tensor) -> Weights:
        lengths = [torch.Size(shape).numel() for shape in self._shapes.values()]
        return dict(zip(self._shapes, torch.split(vectors, lengths, dim=-1), strict=True))


def widened(output: Tensor) -> Tensor:
    """Softmax, losses and what they add up to need more digits than a convolution."""
    return output.float() if output.dtype == torch.bfloat16 else output
