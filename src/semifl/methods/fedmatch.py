"""FedMatch (Jeong et al., ICLR 2021), labels at the server: weights in two parts, and clients that help each other.

Every weight is W = σ + ψ. The server learns σ from labels, the clients learn ψ from their pictures, each with the
other part fixed (disjoint learning). A client is held to what similar clients say of its pictures (inter-client
consistency) and trains on labels that it and they agree on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from sklearn.neighbors import KDTree
from torch import Tensor

from semifl.data.epochs import LabeledBatch, UnlabeledBatch
from semifl.federation.recipe import SemiSupervised
from semifl.federation.world import Client, ClientId, Cohort, Federation, Reply, Round, RoundResult, Server, Update
from semifl.fields import Count, NotNegative, Positive, Share, Whole
from semifl.learning.network import Network
from semifl.learning.server_optimizer import Momentum, Past, ServerOptimizer
from semifl.learning.targets import Beliefs, pseudo_labels
from semifl.learning.training import Fit, Memory
from semifl.learning.weights import Snapshot, Weights, add, changed, moved, scale
from semifl.randomness import Seed

Peers = dict[ClientId, tuple[Tensor, Weights]]  # what a client's latest model says of a picture of noise, and its ψ


class State(NamedTuple):
    σ: Weights
    ψ: Weights
    past: Past  # of the global step, which is ψ's
    peers: Peers  # the latest last


class Parts(NamedTuple):
    """What is sent to every client."""

    σ: Weights
    ψ: Weights


@dataclass(frozen=True)
class FedMatch(SemiSupervised):
    """Defaults are the authors' for labels at the server."""

    activity_rate: Share = 0.05  # share of the clients that take part in a round
    client_epochs: Count = 1  # at the clients
    server_epochs: Count = 1  # at the server
    client_batch: Count = 100  # pictures per step at a client
    server_batch: Count = 100  # pictures per step at the server
    lr: Positive = 1e-3  # η, annealed by a cosine over the rounds
    momentum: Share = 0.0  # of the local optimisers, server and clients
    nesterov: bool = False  # Nesterov's form of the local momentum
    weight_decay: NotNegative = 0.0  # of all weights, at every local step
    server_optimizer: ServerOptimizer = Momentum(momentum=0.0)  # the mean of ψ is the next ψ
    threshold: Share = 0.75  # confidence from which a picture takes part
    supervised_weight: NotNegative = 10.0  # λ_s
    consistency_weight: NotNegative = 1e-2  # λ_ICCS
    agreement_weight: NotNegative = 1e-2  # λ_a, of the agreement labels
    l1_weight: NotNegative = 1e-5  # of ψ
    l2_weight: NotNegative = 10.0  # of σ − ψ
    psi_share: NotNegative = 0.2  # ψ / σ at the start
    helpers: Whole = 2  # other clients whose models help a client
    helper_interval: Count = 10  # rounds between two deliveries of helpers
    helper_pool: Whole = 20  # latest client models that the server keeps to choose helpers from
    sparsity: NotNegative = 1e-5  # changes of ψ up to this size are not sent
    trained: Literal["all", "convolutions"] = "all"  # the released SemiFL program never trains the rest
    server_channels: Literal["all", "half"] = "all"  # of each tensor, that labels train; released program: half

    def start(self, weights: Weights) -> State:
        σ = scale(weights, 1 / (1 + self.psi_share))
        ψ = changed(weights, σ)
        return State(σ, ψ, self.server_optimizer.start(ψ), {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        _, ψ, past, peers = state
        S_t = self.cohort(clients, t)
        σ = self.server_update(t, state, server)
        model = self.model(σ, ψ, server, clients, S_t)

        helpers = self.choose_helpers(t, S_t, model, peers, server)
        replies = clients.each(S_t, Parts(σ, ψ), t, own=helpers.__getitem__)
        peers = dict(peers)
        changes = self.keep_peers(replies, Parts(σ, ψ), model, peers, server)
        ψ, past = self.server_optimizer.step(ψ, moved(ψ, self.aggregation(changes)), past)
        return RoundResult(State(σ, ψ, past, peers), model)

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return self.model(state.σ, state.ψ, server, clients, self.cohort(clients, t))

    def weights(self, state: State) -> Weights:
        return add(state.σ, state.ψ)

    def model(self, σ: Weights, ψ: Weights, server: Server, clients: Federation, S_t: Cohort) -> Snapshot:
        W = add(σ, ψ)
        return Snapshot(W, self.refresh(W, server, clients, S_t))

    # The server: σ from labels, and who helps whom

    def server_update(self, t: Round, state: State, server: Server) -> Weights:
        # With ψ fixed the gradient of σ is that of W, so W is trained and the whole change is σ's.
        plain = self.labeled_loss(server.labels, server.facts.classes)

        def loss(network: Network, batch: LabeledBatch) -> dict[str, Tensor]:
            return {"loss": self.supervised_weight * plain(network, batch)["loss"]}

        job = Fit(
            self.weights(state),
            self.server_batches(server, self.server_epochs),
            loss,
            replace(self.local_sgd(t), weight_decay=0.0),  # `own_gradient` has it
            server.seed.under("fit"),
            before_step=partial(self.own_gradient, other=state.ψ, half=self.server_channels == "half"),
        )
        return changed(server.fit(job).weights, state.ψ)

    def choose_helpers(
        self, t: Round, S_t: Cohort, model: Snapshot, peers: Peers, server: Server
    ) -> dict[ClientId, tuple[Weights, ...]]:
        """For each client the ψ of those whose models speak most like its own; of the global one if it is new."""
        nobody: dict[ClientId, tuple[Weights, ...]] = {client: () for client in S_t}
        if t.index % self.helper_interval or not peers or not self.helpers:
            return nobody
        heard = noise_output(model, server)
        chosen = {}
        for client in S_t:
            others = [peer for peer in peers if peer != client]
            own, _ = peers.get(client, (heard, {}))
            chosen[client] = tuple(peers[other][1] for other in nearest(own, others, peers, self.helpers))
        return chosen

    def keep_peers(
        self, replies: Iterable[Reply], parts: Parts, model: Snapshot, peers: Peers, server: Server
    ) -> Iterator[Weights]:
        """Pass the changes of ψ on, and keep the models they make, the oldest making room."""
        for reply in replies:
            if reply.update is None:
                continue
            change = reply.update.change
            if self.helper_pool:
                ψ = add(parts.ψ, change)
                peers.pop(reply.client, None)
                peers[reply.client] = (noise_output(Snapshot(add(parts.σ, ψ), model.stats), server), ψ)
                while len(peers) > self.helper_pool:
                    del peers[next(iter(peers))]
            yield change

    # The client: ψ from pictures

    def client_update(self, client: Client, message: tuple[Parts, tuple[Weights, ...]], t: Round) -> Update:
        (σ, ψ), sent = message
        helpers = sent or remembered(client.memory)
        beliefs = Beliefs(len(client.images))
        loss = partial(self.client_loss, σ=σ, helpers=[add(σ, helper) for helper in helpers], beliefs=beliefs)
        batches = self.client_batches(client)
        W = add(σ, ψ)
        sgd = replace(self.client_sgd(t), weight_decay=0.0)  # `own_gradient` has it
        job = Fit(W, batches, loss, sgd, client.seed.under("fit"), before_step=partial(self.own_gradient, other=σ))
        fitted = client.fit(job)
        beliefs.tell(client, self.threshold)
        change = self.thin_out(changed(changed(fitted.weights, σ), ψ))
        return Update(change, len(client.images), fitted.terms, to_remember(sent), sparse_bytes(change))

    def sent_model(self, message: tuple[Parts, tuple[Weights, ...]]) -> None:
        return None

    def sent_weights(self, message: tuple[Parts, tuple[Weights, ...]]) -> Weights:
        return message[0].ψ

    def client_loss(
        self, network: Network, batch: UnlabeledBatch, σ: Weights, helpers: list[Weights], beliefs: Beliefs
    ) -> dict[str, Tensor]:
        weak, strong = batch.views
        output = network(weak)
        pseudo = pseudo_labels(output.detach())
        beliefs.note(batch.positions, pseudo)
        confident = pseudo.confident(self.threshold)
        terms = {"regular": self.regular_loss(network, σ)}

        if bool(confident.any()):
            said = [network.forward_with(helper, weak)[confident] for helper in helpers]

            # Inter-client consistency: KL(helper ‖ local), mean over pictures and helpers
            if said:
                local = output[confident].log_softmax(dim=1)
                divergences = [
                    F.kl_div(local, each.log_softmax(dim=1), log_target=True, reduction="batchmean") for each in said
                ]
                terms["consistency"] = self.consistency_weight * torch.stack(divergences).mean()

            # The class that most of local model and helpers vote for, learned from the strong view
            agreed = agreement([output.detach()[confident], *said])
            terms["agreed"] = self.agreement_weight * F.cross_entropy(network(strong)[confident], agreed)

        return {"loss": torch.stack(list(terms.values())).sum(), **terms}

    def regular_loss(self, network: Network, σ: Weights) -> Tensor:
        """λ_L1 |ψ|₁ + λ_L2 ‖σ − ψ‖²: few changes that stay near what the labels taught."""
        pairs = [(W, σ[name].to(W.device)) for name, W in network.module.named_parameters() if name in σ]
        sparse = torch.stack([(W - fixed).abs().sum() for W, fixed in pairs]).sum()
        near = torch.stack([(2 * fixed - W).square().sum() for W, fixed in pairs]).sum()  # σ − ψ = 2σ − W
        return self.l1_weight * sparse + self.l2_weight * near

    def own_gradient(self, network: Network, other: Weights, half: bool = False) -> None:
        """From the gradient of W to that of one part: its own weight decay, and nothing of what it must not move.

        As in the released SemiFL program, half of the channels lose their gradient but not their decay.
        """
        with torch.no_grad():
            for name, W in network.module.named_parameters():
                if W.grad is None or name not in other:
                    continue
                if half:
                    W.grad[len(W) // 2 :] = 0
                if self.weight_decay:
                    W.grad.add_(W - other[name].to(W.device), alpha=self.weight_decay)
                if self.trained == "convolutions" and W.dim() != 4:
                    W.grad.zero_()

    def thin_out(self, change: Weights) -> Weights:
        return {name: tensor.where(tensor.abs() > self.sparsity, 0.0) for name, tensor in change.items()}


def agreement(outputs: list[Tensor]) -> Tensor:
    """The class with the most votes; of several the one that the models together find likeliest."""
    classes = outputs[0].shape[1]
    votes = torch.stack([F.one_hot(each.argmax(dim=1), classes) for each in outputs]).sum(dim=0)
    belief = torch.stack([each.softmax(dim=1) for each in outputs]).mean(dim=0)
    return (votes + 0.5 * belief).argmax(dim=1)


def nearest(own: Tensor, others: list[ClientId], peers: Peers, count: int) -> list[ClientId]:
    if not others:
        return []
    tree = KDTree(torch.stack([peers[other][0] for other in others]).numpy())
    found = tree.query(own.numpy()[None], k=min(count, len(others)), return_distance=False)
    return [others[place] for place in found[0]]


def noise_output(model: Snapshot, server: Server) -> Tensor:
    """What a model says of one picture of Gaussian noise, the same for all: models that agree there are alike."""
    shape = (1, server.facts.channels, server.facts.size, server.facts.size)
    noise = torch.randn(shape, generator=Seed(0).at("picture of noise"))
    # A model that has diverged says nothing, which is every class alike: it must not end the others' round.
    return server.outputs(model, noise).softmax(dim=1)[0].nan_to_num(1 / server.facts.classes)


def sparse_bytes(change: Weights) -> int:
    """On the wire: a value and a 32-bit place for each entry that changed, or the whole tensor where that is less."""
    return sum(min(8 * int(tensor.count_nonzero()), 4 * tensor.numel()) for tensor in change.values())


def to_remember(helpers: tuple[Weights, ...]) -> Memory:
    return {f"{number} {name}": tensor for number, ψ in enumerate(helpers) for name, tensor in ψ.items()}


def remembered(memory: Memory | None) -> tuple[Weights, ...]:
    helpers: dict[str, Weights] = {}
    for key, tensor in (memory or {}).items():
        number, _, name = key.partition(" ")
        helpers.setdefault(number, {})[name] = tensor
    return tuple(helpers.values())
