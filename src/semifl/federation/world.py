"""The four nouns through which a method sees the world: Server, Client, Federation, Round.

A Client has pictures and no attribute for labels: the promise of the paper is a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from semifl.data.augment import Kind
from semifl.data.dataset import Facts
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.targets import PseudoLabels
from semifl.learning.training import Fit, Fitted, Memory
from semifl.learning.weights import Snapshot, Weights
from semifl.randomness import Seed

ClientId = int
Cohort = tuple[ClientId, ...]  # S_t, in ascending order
Outcome = Literal["trained", "abstained", "failed", "late", "rejected"]


@dataclass(frozen=True)
class Round:
    """One round of communication: its number from 1, how far the run is (0 at its first round), its random streams."""

    index: int
    progress: float
    seed: Seed

    @property
    def rng(self) -> torch.Generator:
        """The stream that draws the cohort."""
        return self.seed.at("cohort")


class Update(NamedTuple):
    """What a client gives, and what stays with it."""

    change: Weights  # always a difference to what the client was sent (`Method.sent_weights`)
    examples: int  # how many it rests on
    terms: dict[str, float]  # the mean of every named loss term
    memory: Memory
    wire_bytes: int | None = None  # of the change, where its zeros need not travel


class Work(NamedTuple):
    """What a round asks of a client at most."""

    passes: float  # over its pictures
    steps: int


class Reply(NamedTuple):
    """What became of one client in one round."""

    client: ClientId
    update: Update | None
    outcome: Outcome
    reason: str
    facts: dict[str, Any]


class Participant(Protocol):
    """Pictures and the means to learn from them."""

    facts: Facts
    images: Tensor  # uint8
    seed: Seed  # this site's streams in this round

    def fit(self, job: Fit) -> Fitted: ...


class Server(Participant, Protocol):
    """The site with the labels."""

    labels: Tensor

    def statistics(self, weights: Weights, pooled: bool = False) -> BatchNormStats:
        """BatchNorm statistics of the server's own pictures, or of those pooled with them as well."""
        ...

    def outputs(self, model: Snapshot, images: Tensor) -> Tensor:
        """Logits of normalised pictures, in evaluation mode."""
        ...


class Client(Participant, Protocol):
    """A site without labels."""

    index: ClientId  # its number: of the simulation's clients, or among the sites of a real run
    memory: Memory | None  # what this client kept from its last participation

    def outputs(self, model: Snapshot, images: Tensor) -> Tensor:
        """Logits of uint8 pictures, in evaluation mode."""
        ...

    def statistics(self, weights: Weights) -> BatchNormStats:
        """BatchNorm statistics of the client's own pictures; none if they are too few to take a variance of."""
        ...

    def pseudo_labels(self, model: Snapshot, images: Tensor) -> PseudoLabels:
        """What the model says of uint8 pictures, in evaluation mode."""
        ...

    def observe(
        self,
        pseudo: PseudoLabels,
        confident: Tensor,
        positions: Tensor | None = None,
        said: Tensor | None = None,
    ) -> None:
        """Count what the client believes of its pictures, or of those at `positions`; only sums leave this call.

        `said` is what the model takes them for, where the client may believe otherwise.
        """
        ...


class PooledServer(Server, Protocol):
    """A server that also holds every client's pictures: the world of methods that need "pooled_images"."""

    pooled_images: Tensor  # uint8
    pooled_labels: Tensor  # only where the method also needs "client_labels"


class LabeledClient(Client, Protocol):
    """A client that knows its labels: the world of methods that need "client_labels"."""

    labels: Tensor


Message = Any


class Federation(Protocol):
    """Where clients live."""

    @property
    def max_share(self) -> float:
        """Largest part of a mean that one client's update may be; 1 where clients are trusted."""
        ...

    def __len__(self) -> int: ...

    def sample(self, count: int, rng: torch.Generator) -> Cohort:
        """`count` distinct clients, uniformly."""
        ...

    def each(
        self, cohort: Cohort, message: Message, t: Round, own: Callable[[ClientId], Message] | None = None
    ) -> Iterator[Reply]:
        """The method's `client_update` at every client of the cohort; replies in its order, as they are ready.

        The message is the same for all; with `own` each client gets the pair (message, its own part).

        A change that is not of the names, shapes and types that the client was sent, or not finite, is rejected with
        its reason.
        """
        ...

    def statistics(self, weights: Weights, of: Cohort, own: BatchNormStats | None = None) -> Iterator[BatchNormStats]:
        """BatchNorm statistics of each client's pictures; `own` are the server's, for who cannot trust its clients."""
        ...

    def everyone(self) -> Cohort: ...


class Preview(NamedTuple):
    """What the report may show of a method: the views it trains on, and from which confidence it believes a label."""

    strong_view: Kind | None = None
    mix_beta: float | None = None
    threshold: float = 0.0


class RoundResult(NamedTuple):
    """What a round returns."""

    state: Any  # the method's State
    model: Snapshot  # the one that stands for the round: it is tested and recorded


class Method(Protocol):
    """A federated method: fields are hyper-parameters, State is all that changes between rounds."""

    @property
    def needs(self) -> frozenset[str]:
        """What it requires beyond the paper's world: "client_labels", "pooled_images"."""
        ...

    def start(self, weights: Weights) -> Any:
        """The State before the first round; its structure never changes afterwards."""
        ...

    def round(self, t: Round, state: Any, server: Server, clients: Federation) -> RoundResult: ...

    def client_update(self, client: Any, message: Any, t: Round) -> Update | None:
        """What one client does with what it is sent; None to abstain."""
        ...

    def finish(self, t: Round, state: Any, server: Server, clients: Federation) -> Snapshot:
        """The model to keep, after the last round."""
        ...

    def weights(self, state: Any) -> Weights:
        """The global model's weights in a State, to be recorded."""
        ...

    def sent_weights(self, message: Any) -> Weights:
        """Of what one client is sent, the weights that its change is a difference to."""
        ...

    def sent_model(self, message: Any) -> Snapshot | None:
        """Of what one client is sent, the model, if it is one that can be used as it is."""
        ...

    def client_work(self, pictures: int) -> Work:
        """What is asked of a client with so many pictures in a round."""
        ...

    @property
    def wants_statistics(self) -> Literal["server", "cohort", "all"]:
        """Whose pictures the BatchNorm statistics come from."""
        ...

    def preview(self) -> Preview: ...

    def busiest(self) -> Any:
        """The same method with clients that train on all they have, whose work is the most a round can cost."""
        ...

    def plain_server(self) -> Any:
        """The method whose server uses its labels as everybody would; None where this one does no more with them."""
        ...
