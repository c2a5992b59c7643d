"""Several networks of one kind that train side by side: each by the one training loop, with their passes made one.

Whoever trains runs in a thread of its own, and only one thread runs at a time: until it asks for a pass of its network.
When all have asked, `torch.func.vmap` computes the passes of those whose batches are of one size at once. Nothing is
padded, so that BatchNorm meets a network's own batch and nothing else. Losses, gradients' norms and optimisers stay
each network's own.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from semifl.errors import UserError
from semifl.learning.network import Network, widened
from semifl.learning.precision import casting
from semifl.learning.weights import Weights

# Where vmap has no rule for an operation it takes one network after the other, which is as right as it is slow.
warnings.filterwarnings("ignore", "There is a performance drop because we have not yet implemented the batching rule")
T = TypeVar("T")
Ask = Callable[["Wish"], Any]  # waits for the others, and gives what was asked for


class Forward(NamedTuple):
    """Logits of pictures; with a graph if something is to be learned from them."""

    seat: Seat
    images: Tensor
    learning: bool


class Slope(NamedTuple):
    """A loss's gradient, to be looked at."""

    seat: Seat
    loss: Tensor


class Backward(NamedTuple):
    """A loss's gradient, added to the network's."""

    seat: Seat
    loss: Tensor


Wish = Forward | Slope | Backward


class Seat(Network):
    """A network like `kin`, whose passes in training are computed together with those of the others."""

    def __init__(self, kin: Network, ask: Ask) -> None:
        constants = {id(each): each for each in kin.module.parameters() if not each.requires_grad}
        super().__init__(copy.deepcopy(kin.module, constants), kin.device, kin.precision)
        self.kin = kin
        self._ask = ask

    def __call__(self, images: Tensor) -> Tensor:
        if not self.module.training:
            return super().__call__(images)
        logits: Tensor = self._ask(Forward(self, images, torch.is_grad_enabled()))
        return logits

    def backward(self, loss: Tensor) -> None:
        self._ask(Backward(self, loss))

    def gradients(self, loss: Tensor) -> Weights:
        found: Weights = self._ask(Slope(self, loss))
        return found


def side_by_side(tasks: Sequence[Callable[[Ask], T]]) -> list[T]:
    """What each task gives; a task must not raise, for the others would hear of it."""
    guests = [_Guest(task) for task in tasks]
    with torch.random.fork_rng(devices=[]):
        try:
            for guest in guests:
                guest.go_on(None)
            while waiting := [guest for guest in guests if guest.wish]:
                _serve(waiting)
        finally:
            for guest in guests:
                guest.dismiss()
    return [guest.outcome for guest in guests]


def refuse_unstackable(network: Network, images: Tensor) -> None:
    """A model that cannot be stacked is told at once: these are two pictures, or what it sees in their place."""
    network.module.train()
    seats = [Seat(network, lambda wish: None) for _ in range(2)]
    try:
        torch.stack(list(stacked_logits(seats, [images, images]))).sum().backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever a person's own code may raise
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            "this model cannot be stacked, as it draws random numbers (dropout) or does what torch.func.vmap cannot: "
            f"leave out stack, or set stack = 1 ({reason})"
        ) from error


def stacked_logits(seats: Sequence[Seat], images: Sequence[Tensor]) -> Sequence[Tensor]:
    """Of each seat's network for its own pictures; gradients reach each one's vector."""
    first = seats[0]

    def one(weights: Weights, images: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(first.module, weights, (images,))
        return logits

    with casting(first.device, first.precision):
        if len(seats) == 1:
            return [widened(one(first.parts_of(first.vector), images[0]))]
        weights = first.parts_of(torch.stack([seat.vector for seat in seats]))
        return widened(torch.func.vmap(one, randomness="error")(weights, torch.stack(list(images)))).unbind()


class _Guest(Generic[T]):
    """A task in a thread of its own, which runs only between `go_on` and its next wish."""

    def __init__(self, task: Callable[[Ask], T]) -> None:
        self._task = task
        self._threads = torch.get_num_threads()  # a thread begins with the machine's
        self._may_run, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        self._answer: Any = None
        self._dismissed = False
        self.wish: Wish | None = None
        self.outcome: T
        threading.Thread(target=self._live, daemon=True).start()

    def go_on(self, answer: Any) -> None:
        self._answer, self.wish = answer, None
        self._may_run.release()
        self._rests.acquire()

    def dismiss(self) -> None:
        """Let it end where it stands: nobody will answer any more."""
        self._dismissed = True
        self._may_run.release()

    def _ask(self, wish: Wish) -> Any:
        drawn = torch.get_rng_state()  # the others draw from the same generator
        self.wish = wish
        self._rests.release()
        self._may_run.acquire()
        if self._dismissed:
            raise _Dismissed
        torch.set_rng_state(drawn)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def _live(self) -> None:
        self._may_run.acquire()
        if self._dismissed:
            return
        torch.set_num_threads(self._threads)
        try:
            self.outcome = self._task(self._ask)
        except _Dismissed:
            pass
        finally:
            self._rests.release()


class _Dismissed(BaseException):
    """Unwinds a task that nobody waits for."""


def _serve(waiting: Sequence[_Guest[Any]]) -> None:
    """Passes first: only when nobody needs one are all graphs there, and only then may one step back through them."""
    kind = next(kind for kind in ANSWERS if any(isinstance(guest.wish, kind) for guest in waiting))
    asking = [guest for guest in waiting if isinstance(guest.wish, kind)]
    try:
        answers = ANSWERS[kind]([guest.wish for guest in asking])
    except Exception as error:  # it is theirs: out of memory, say
        answers = [error] * len(asking)
    for guest, answer in zip(asking, answers, strict=True):
        guest.go_on(answer)


def _forward(wishes: Sequence[Any]) -> list[Tensor | Exception]:
    alike: dict[Any, list[int]] = {}
    for place, (seat, images, learning) in enumerate(wishes):
        alike.setdefault((id(seat.kin), images.shape, images.dtype, learning), []).append(place)
    logits: dict[int, Tensor | Exception] = {}
    for places in alike.values():
        logits |= dict(zip(places, _pass_of([wishes[place] for place in places]), strict=True))
    return [logits[place] for place in range(len(wishes))]


def _pass_of(wishes: Sequence[Forward]) -> Sequence[Tensor | Exception]:
    """Of batches of one size."""
    try:
        with torch.set_grad_enabled(wishes[0].learning):
            return stacked_logits([wish.seat for wish in wishes], [wish.images for wish in wishes])
    except Exception as error:  # not of those with batches of another size
        return [error] * len(wishes)


def _slopes(wishes: Sequence[Any]) -> list[Weights]:
    """A network's own weights are in its own loss alone, so the gradient of the sum is everybody's own."""
    vectors = [wish.seat.vector for wish in wishes]
    found = torch.autograd.grad(_sum(wishes), vectors, retain_graph=True, materialize_grads=True)
    return [wish.seat.parts_of(each) for wish, each in zip(wishes, found, strict=True)]


def _backward(wishes: Sequence[Any]) -> list[None]:
    _sum(wishes).backward()  # type: ignore[no-untyped-call]
    return [None] * len(wishes)


def _sum(wishes: Sequence[Any]) -> Tensor:
    return torch.stack([wish.loss for wish in wishes]).sum()


# In the order in which they are served.
ANSWERS: dict[type[Any], Callable[[Sequence[Any]], list[Any]]] = {
    Forward: _forward,
    Slope: _slopes,
    Backward: _backward,
}
