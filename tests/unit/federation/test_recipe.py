"""What federated methods share: weights of rare classes, and bad values named."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data.epochs import LabeledBatch
from semifl.federation.recipe import Recipe, State, balancing_weights
from semifl.federation.world import RoundResult
from semifl.learning.network import Network
from semifl.learning.weights import Snapshot
from semifl.methods.semifl import SemiFL
from semifl.records.directory import RunDirectory
from semifl.running.loop import start
from toys import toy_table


def test_rare_classes_weigh_as_much_as_common_ones() -> None:
    labels = torch.tensor([0] * 6 + [2] * 2)
    weights = balancing_weights(labels, 3)
    # 8 labels of 2 classes that are there: 8 / (2 · 6) and 8 / (2 · 2); nobody has class 1.
    np.testing.assert_allclose(weights.numpy(), [8 / 12, 0.0, 2.0], rtol=1e-6)
    assert float(weights[labels].mean()) == pytest.approx(1.0)


def test_the_weighted_loss_by_hand() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network = Network(module)
    A, b = module[1].weight.detach().double().numpy(), module[1].bias.detach().double().numpy()
    x, y = np.random.default_rng(0).normal(size=(5, 4)), np.array([0, 0, 2, 1, 2])
    z = x @ A.T + b
    each = np.log(np.exp(z).sum(axis=1)) - z[np.arange(5), y]
    site = torch.tensor([0, 0, 0, 1, 2, 2])
    weight = np.array([6 / (3 * 3), 6 / (3 * 1), 6 / (3 * 2)])
    batch = LabeledBatch(torch.tensor(x, dtype=torch.float32).view(5, 1, 2, 2), torch.tensor(y))
    balanced = Recipe(class_weights=True).labeled_loss(site, 3)(network, batch)["loss"].item()
    plain = Recipe().labeled_loss(site, 3)(network, batch)["loss"].item()
    assert balanced == pytest.approx((weight[y] * each).sum() / weight[y].sum(), rel=1e-5)
    assert plain == pytest.approx(each.mean(), rel=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        {"activity_rate": 1.5},
        {"client_epochs": 0},
        {"lr": 0.0},
        {"proximal": -1.0},
        {"weight_decay": float("inf")},
    ],
)
def test_bad_values_are_named(bad: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(bad))} must"):
        Recipe(**bad)


class Message(NamedTuple):
    model: Snapshot
    thresholds: Tensor


@dataclass(frozen=True)
class Richer(SemiFL):
    """SemiFL that sends a tensor beside its model."""

    def round(self, t, state, server, clients):
        S_t = self.cohort(clients, t)
        W = self.server_fit(t, state.weights, server).weights
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        replies = clients.each(S_t, Message(model, torch.zeros(3)), t)
        mean = self.aggregate(replies, W)
        return RoundResult(State(*self.server_optimizer.step(W, mean, state.past)), model)

    def client_update(self, client, message, t):
        return super().client_update(client, message.model, t)

    def sent_weights(self, message):
        return super().sent_weights(message.model)

    def sent_model(self, message):
        return message.model


@pytest.mark.parametrize("local_norm", [False, True])
def test_a_method_that_sends_more_than_a_model_trains_as_its_parent(tmp_path, local_norm: bool) -> None:
    keys = {"client_epochs": 1, "server_epochs": 1, "threshold": 0.0, "local_norm": local_norm}
    digests = []
    for name in ("semifl", f"{__name__}:Richer"):
        table = {**toy_table(), "rounds": 2, "labels_only": False, "method": {"name": name, **keys}}
        start(decode(table), tmp_path / name)
        digests.append([record["digest"] for record in RunDirectory(tmp_path / name).rounds()])
    assert digests[0] == digests[1]
    assert len(digests[0]) == 2


def test_a_client_knows_its_number(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def client_update(self, client, model, t):
        seen.append((client.index, len(client.images)))

    monkeypatch.setattr(SemiFL, "client_update", client_update)
    config = decode({**toy_table(), "rounds": 1, "labels_only": False, "method": {"activity_rate": 1.0}})
    start(config, tmp_path / "run")
    assert seen == list(enumerate(build_world(config).division.clients.counts.tolist()))
