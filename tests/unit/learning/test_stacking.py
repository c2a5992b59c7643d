"""Networks that train side by side: each as if it were alone, and their passes really one."""

import threading
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from semifl.errors import UserError
from semifl.learning import stacking
from semifl.learning.network import Network
from semifl.learning.stacking import Forward, Seat, refuse_unstackable, side_by_side
from semifl.learning.training import SGD, AdamW, Fit, fit
from semifl.randomness import Seed

CLIENTS, SIDE, CLASSES = 4, 6, 3
SIZES = ((5, 5, 5), (5, 5, 3), (5,), (4, 5, 5, 2))  # of each client's batches: ragged, and of different number
PLAIN = SGD(0.05)
EVERYTHING = SGD(0.05, 0.8, nesterov=True, weight_decay=0.01, clip_norm=0.5, proximal=0.3, backbone_lr=0.5)


def model(norm: nn.Module | None = None) -> nn.Module:
    """No bias before a norm: its gradient is nothing but rounding, which AdamW would make as large as any other."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, bias=False),
            norm or nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3, stride=2, bias=False),
            nn.BatchNorm2d(4),
            nn.Flatten(),
            nn.Linear(4 * 2 * 2, CLASSES),
        )


def cross_entropy(network, batch):
    images, labels = batch
    return {"loss": F.cross_entropy(network(images), labels)}


def twice(network, batch):
    """Two passes and a term, as SemiFL's loss has; the second on pictures that the loss draws itself."""
    images, labels = batch
    first = F.cross_entropy(network(images), labels)
    second = F.cross_entropy(network(images + 0.3 * torch.randn(images.shape)), labels)
    return {"loss": first + 0.5 * second, "first": first}


def looking(network, batch):
    """A loss that looks at its own gradient, and is computed at shifted weights as well, as fl2's is."""
    images, labels = batch
    first = F.cross_entropy(network(images), labels)
    if len(images) == 3:  # not every step of every client does so
        return {"loss": first}
    shift = {name: 0.1 * gradient for name, gradient in network.gradients(first).items()}
    return {"loss": first + F.cross_entropy(network.forward_at(shift, images), labels)}


def batches(client):
    generator = torch.Generator().manual_seed(client)
    for size in SIZES[client]:
        images = torch.randn(size, 3, SIDE, SIDE, generator=generator)
        yield images, torch.randint(CLASSES, (size,), generator=generator)


def job(client, loss=cross_entropy, sgd=PLAIN, memory=None):
    start = {name: tensor + 0.01 * client for name, tensor in Network(model()).weights().items()}
    return Fit(start, batches(client), loss, sgd, Seed(client), memory)


def stacked(*jobs):
    """What side by side gives, a job that raises giving its exception."""
    network = Network(model())

    def one(ask, job):
        try:
            return fit(Seat(network, ask), job)
        except Exception as error:
            return error

    return side_by_side([partial(one, job=job) for job in jobs])


def assert_alike(fitted, alone):
    assert fitted.weights.keys() == alone.weights.keys()
    for name, tensor in alone.weights.items():
        torch.testing.assert_close(fitted.weights[name], tensor, rtol=0, atol=1e-5)
    assert fitted.memory.keys() == alone.memory.keys()
    for name, tensor in alone.memory.items():
        torch.testing.assert_close(fitted.memory[name], tensor, rtol=0, atol=1e-5)
    assert fitted.terms == pytest.approx(alone.terms, abs=1e-5)


@pytest.mark.parametrize("loss", [cross_entropy, twice, looking])
@pytest.mark.parametrize("sgd", [PLAIN, EVERYTHING, AdamW(0.01, 0.9, clip_norm=1.0)], ids=["plain", "all", "adamw"])
def test_each_is_trained_as_if_alone(loss, sgd) -> None:
    together = stacked(*(job(client, loss, sgd) for client in range(CLIENTS)))
    for client in range(CLIENTS):
        assert_alike(together[client], fit(Network(model()), job(client, loss, sgd)))


def test_momentum_that_was_kept_goes_on() -> None:
    kept = [fit(Network(model()), job(client)).memory for client in range(2)]
    together = stacked(*(job(client, memory=kept[client]) for client in range(2)))
    for client in range(2):
        alone = fit(Network(model()), job(client, memory=kept[client]))
        assert_alike(together[client], alone)
        assert not torch.equal(alone.memory["momentum"], fit(Network(model()), job(client)).memory["momentum"])


def test_a_pass_for_each_size_and_step(monkeypatch) -> None:
    heights = []
    whole = stacking.stacked_logits
    monkeypatch.setattr(
        stacking, "stacked_logits", lambda seats, images: heights.append(len(seats)) or whole(seats, images)
    )
    stacked(*(job(client) for client in range(CLIENTS)))
    # Steps of 5 5 5 4, of 5 5 5 (the third client has ended), of 5 3 5, and of 2 alone.
    assert heights == [3, 1, 3, 2, 1, 1]


def test_the_same_bits_every_time() -> None:
    first, second = (stacked(*(job(client, twice) for client in range(3))) for _ in range(2))
    assert all(
        torch.equal(a.weights[name], b.weights[name]) for a, b in zip(first, second, strict=True) for name in a.weights
    )


def test_the_generator_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    stacked(job(0, twice), job(1, twice))
    assert torch.equal(torch.rand(3), expected)


def failing(network, batch, after):
    if next(after) == 1:
        raise ValueError("enough")
    return cross_entropy(network, batch)


def test_one_that_fails_leaves_and_the_others_go_on() -> None:
    together = stacked(job(0), job(1, partial(failing, after=count())), job(3))
    assert isinstance(together[1], ValueError)
    assert_alike(together[0], fit(Network(model()), job(0)))
    assert_alike(together[2], fit(Network(model()), job(3)))


def test_pictures_that_do_not_fit_are_their_own_clients_failure() -> None:
    wrong = replace(job(1), batches=[(torch.randn(5, 2, SIDE, SIDE), torch.zeros(5, dtype=torch.int64))])
    together = stacked(job(0), wrong)
    assert isinstance(together[1], RuntimeError)
    assert_alike(together[0], fit(Network(model()), job(0)))


def test_one_that_diverges_does_not_reach_the_others() -> None:
    together = stacked(job(0), job(1, sgd=SGD(1e30)))
    assert not all(tensor.isfinite().all() for tensor in together[1].weights.values())
    assert_alike(together[0], fit(Network(model()), job(0)))


def test_nothing_to_learn_from_is_no_step() -> None:
    def sometimes(network, batch):
        terms = cross_entropy(network, batch)
        return terms if len(batch[0]) == 5 else {}

    together = stacked(job(1, sometimes), job(3, sometimes))
    assert_alike(together[0], fit(Network(model()), job(1, sometimes)))
    assert_alike(together[1], fit(Network(model()), job(3, sometimes)))


def test_an_interrupt_leaves_no_thread_behind(monkeypatch) -> None:
    def interrupted(seats, images):
        raise KeyboardInterrupt

    before = set(threading.enumerate())
    monkeypatch.setattr(stacking, "stacked_logits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stacked(job(0), job(1))
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_constants_of_a_model_are_not_copied() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)))
    seat = Seat(network, lambda wish: None)
    assert seat.module[1].weight is network.module[1].weight
    assert seat.module[2].weight is not network.module[2].weight


def test_in_evaluation_nobody_is_asked() -> None:
    network = Network(model())
    asked = []
    seat = Seat(network, asked.append)
    seat.module.eval()
    seat(torch.randn(2, 3, SIDE, SIDE))
    assert not asked
    seat.module.train()
    seat(torch.randn(2, 3, SIDE, SIDE))
    assert isinstance(asked[0], Forward)


class Deciding(nn.Module):
    """Looks at a number, which vmap cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = model()

    def forward(self, images):
        return self.rest(images if images.sum() > 0 else -images)


def test_a_model_that_vmap_cannot_take_is_refused() -> None:
    pictures = torch.zeros(2, 3, SIDE, SIDE)
    refuse_unstackable(Network(model()), pictures)
    for unfit in (nn.Sequential(model(), nn.Dropout(0.5)), Deciding()):
        with pytest.raises(UserError, match=r"cannot be stacked.*set stack = 1"):
            refuse_unstackable(Network(unfit), pictures)


def test_a_model_with_groupnorm_is_trained_as_if_alone() -> None:
    kin = Network(model(nn.GroupNorm(2, 4)))
    together = side_by_side([partial(lambda ask, job: fit(Seat(kin, ask), job), job=job(client)) for client in (1, 3)])
    for fitted, client in zip(together, (1, 3), strict=True):
        assert_alike(fitted, fit(Network(model(nn.GroupNorm(2, 4))), job(client)))


def test_in_bf16_in_the_direction_of_one_alone() -> None:
    kin = Network(model(), precision="bf16")
    together = side_by_side([partial(lambda ask, job: fit(Seat(kin, ask), job), job=job(client)) for client in (0, 1)])
    for fitted, client in zip(together, (0, 1), strict=True):
        alone, start = fit(Network(model(), precision="bf16"), job(client)), job(client).start
        ours, theirs = (
            torch.cat([(each[n] - start[n]).flatten() for n in start]) for each in (fitted.weights, alone.weights)
        )
        assert F.cosine_similarity(ours, theirs, dim=0) > 0.99  # bf16 has two decimal digits
