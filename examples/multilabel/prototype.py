"""Several findings per picture: a prototype of what docs/decisions/0016-several-findings.md describes. No feature.

It is built from the project's own parts (the one training loop, views, static BatchNorm, addressed randomness) and has
what they lack: sigmoid outputs, labels that may be unknown, a threshold per finding chosen on held-out labels, an AUC
per finding. `python prototype.py [rounds]` trains labels only, then the same server with four clients, on digits whose
findings are: even, five or more, and drawn with a closed loop. A third of the server's labels is unknown.
"""

import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import normalize, strong, weak
from semifl.data.dataset import Facts
from semifl.data.datasets.digits import Digits
from semifl.learning.metrics import auc, best_threshold
from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, cosine, fit
from semifl.learning.weights import Snapshot, Weights
from semifl.models.cnn import Cnn
from semifl.randomness import Seed

FINDINGS = ("even", "five or more", "a loop")
LOOPS = (0, 6, 8, 9)
UNKNOWN = -1.0
SURE = 0.9  # how sure a client must be that a finding is there, or is not
LABELED, HELD_OUT, CLIENTS, EPOCHS, BATCH = 40, 40, 4, 3, 10


class Batch(NamedTuple):
    pictures: Tensor  # normalised
    findings: Tensor  # 1, 0 or UNKNOWN, [n, findings]


def findings_of(digits: Tensor) -> Tensor:
    return torch.stack([digits % 2 == 0, digits >= 5, torch.isin(digits, torch.tensor(LOOPS))], dim=1).float()


def masked_loss(network: Network, batch: Batch) -> dict[str, Tensor]:
    """Binary cross-entropy of the findings that are known."""
    known = batch.findings != UNKNOWN
    if not bool(known.any()):
        return {}
    terms = F.binary_cross_entropy_with_logits(network(batch.pictures), batch.findings.clamp(0), reduction="none")
    return {"loss": (terms * known).sum() / known.sum()}


def train(network: Network, start: Weights, images: Tensor, targets: Tensor, facts: Facts, lr: float, seed: Seed,
          kind: str) -> Weights:  # fmt: skip
    """A few passes over pictures and what is believed of them, in weak or strong views."""
    batches = []
    for epoch in range(EPOCHS):
        generator = seed.at("view", epoch)
        view = weak(images, facts, generator) if kind == "weak" else strong(images, facts, "fixmatch", generator)
        order = torch.randperm(len(images), generator=seed.at("order", epoch))
        batches += [Batch(normalize(view[part], facts), targets[part]) for part in order.split(BATCH) if len(part) > 1]
    return fit(network, Fit(start, batches, masked_loss, SGD(lr, clip_norm=1.0), seed)).weights


def shares(network: Network, weights: Weights, server: Tensor, images: Tensor, facts: Facts) -> Tensor:
    """The probability of every finding, with the BatchNorm statistics of the server's pictures."""
    network.load(weights)
    stats = network.statistics([normalize(server, facts)])
    network.load_snapshot(Snapshot(weights, stats))
    with torch.inference_mode():
        return network(normalize(images, facts)).sigmoid().double().clone()


def believed(probabilities: Tensor) -> Tensor:
    """Each finding by itself: there, not there, or nobody knows."""
    sure = (probabilities >= SURE) | (probabilities <= 1 - SURE)
    return torch.where(sure, (probabilities > 0.5).double(), UNKNOWN).float()


def areas(probabilities: Tensor, truth: Tensor) -> list[float]:
    pairs = torch.stack([1 - probabilities, probabilities], dim=2)
    return [auc(pairs[:, each], truth[:, each].long()) for each in range(len(FINDINGS))]


def run(rounds: int, with_clients: bool) -> dict[str, dict[str, float]]:
    data, seed = Digits().load(), Seed(0)
    order = torch.randperm(len(data.images), generator=seed.at("who"))
    server, held, rest = order.split([LABELED, HELD_OUT, len(order) - LABELED - HELD_OUT])
    targets = findings_of(data.labels[server])
    targets[torch.rand(targets.shape, generator=seed.at("unknown")) < 1 / 3] = UNKNOWN
    torch.manual_seed(0)
    network = Network(Cnn(width=8).build(1, data.facts.size, len(FINDINGS)))
    weights, own = network.weights(), data.images[server]
    for t in range(1, rounds + 1):
        here, lr = seed.under("round", t), cosine(0.03, (t - 1) / rounds)
        weights = train(network, weights, own, targets, data.facts, lr, here.under("server"), "weak")
        updates = []
        for client, part in enumerate(rest.chunk(CLIENTS) if with_clients else ()):
            pictures, at = data.images[part], here.under("client", client)
            view = weak(pictures, data.facts, at.at("label"))
            pseudo = believed(shares(network, weights, own, view, data.facts))
            kept = (pseudo != UNKNOWN).any(dim=1)
            if int(kept.sum()) > BATCH:
                updates.append(train(network, weights, pictures[kept], pseudo[kept], data.facts, lr, at, "strong"))
        if updates:
            weights = {name: torch.stack([each[name] for each in updates]).mean(dim=0) for name in weights}
    weights = train(network, weights, own, targets, data.facts, 0.003, seed.under("last"), "weak")
    test, truth = (shares(network, weights, own, data.test_images, data.facts), findings_of(data.test_labels))
    chosen, answers = shares(network, weights, own, data.images[held], data.facts), findings_of(data.labels[held])
    return {
        finding: {"auc": area, "threshold": best_threshold(chosen[:, at], answers[:, at] == 1)}
        for at, (finding, area) in enumerate(zip(FINDINGS, areas(test, truth), strict=True))
    }


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.set_num_threads(1)  # two that wait for each other are slow on a busy machine
    for name, with_clients in (("labels only", False), ("with clients", True)):
        for finding, numbers in run(rounds, with_clients).items():
            print(f"{name}: {finding}: AUC {numbers['auc']:.1f} %, threshold {numbers['threshold']:.2f}")
