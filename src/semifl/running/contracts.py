"""What every method promises, tried on a configuration: the tests of the package, for a person's own method too.

A contract is a function that raises `ContractBroken` with a sentence, and else returns why it could not be tried, or
nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from semifl import toml
from semifl.configuration.build import World, build_world
from semifl.configuration.config import Config, Stop, decode
from semifl.errors import RunStopped, UserError
from semifl.federation.local import LocalFederation
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here, JobFailed, threads
from semifl.federation.world import Reply, Round
from semifl.learning import trees
from semifl.learning.weights import Snapshot, Weights, distance
from semifl.randomness import Seed
from semifl.running.context import Silent, check_training
from semifl.running.loop import resume, start

ROUNDS = 2  # the least in which something can be forgotten between two
NEEDS = {"client_labels", "pooled_images"}
OF_A_CLIENT = {
    *("facts", "images", "seed", "memory", "index"),
    *("fit", "outputs", "statistics", "pseudo_labels", "observe"),
}
# A training so short that additions in another order stay near their rounding, and do not grow as in a long one.
SHORT = {"client_epochs": 1, "server_epochs": 1, "lr": 0.001}
MOST_APART = 0.02  # Largest distance of stacked clients' model, as a share of the way that the round goes.


class ContractBroken(Exception):
    """A method does not do what semifl relies on; the message is one sentence that says what to do."""


def shortened(config: Config) -> Config:
    """Return the same experiment as a few rounds in which clients train on all they have."""
    run = replace(config.run, rounds=ROUNDS, labels_only=False, guard=False, stack=1)
    method = replace(config.method, thing=config.method.thing.busiest())
    return replace(config, run=run, stop=Stop(), method=method)


def is_frozen(config: Config) -> str:
    """Be a frozen dataclass with known needs."""
    method = config.method.thing
    cls: Any = type(method)
    if not cls.__dataclass_params__.frozen:
        raise ContractBroken(
            "its class is no @dataclass(frozen=True): what changes between rounds belongs to the State"
        )
    if not isinstance(method.needs, frozenset) or not method.needs <= NEEDS:
        raise ContractBroken(f"needs = {method.needs!r} should be a frozenset of {' and '.join(sorted(NEEDS))}")
    return ""


def survives_toml(config: Config) -> str:
    """Have fields that config.toml can hold."""
    again = decode(config.table())
    if again.method != config.method or toml.dumps(again.table()) != toml.dumps(config.table()):
        raise ContractBroken("its fields are others after they were written to TOML and read again: use plain values")
    return ""


def same_seed_same_bits(config: Config) -> str:
    """Give the same bits for the same seed."""
    with TemporaryDirectory() as folder:
        first, again = (_outcome(config, Path(folder) / name) for name in ("first", "again"))
    if difference := _difference(first, again):
        raise ContractBroken(
            f"two runs with one seed differ in {difference}: draw random numbers from seed.at(…) alone"
        )
    return ""


def other_seed_other_bits(config: Config) -> str:
    """Give other bits for another seed."""
    other = replace(config, run=replace(config.run, seed=config.run.seed + 1))
    with TemporaryDirectory() as folder:
        models = [_outcome(each, Path(folder) / str(at)).model for at, each in enumerate((config, other))]
    if models[0] == models[1]:
        raise ContractBroken("two seeds give the same model: nothing it does depends on the seed")
    return ""


def resumes_exactly(config: Config) -> str:
    """Give the same bits when a run is interrupted and resumed."""
    with TemporaryDirectory() as folder:
        whole, cut = _outcome(config, Path(folder) / "whole"), Path(folder) / "cut"
        try:
            start(config, cut, observer=_Interrupt())
        except _Interrupted:
            resume(cut)
        if difference := _difference(whole, _read(cut)):
            raise ContractBroken(
                f"a run that was interrupted and resumed differs in {difference}: keep all that changes between rounds "
                "in the State or in Update.memory"
            )
    return ""


def uses_the_protocol(config: Config) -> str:
    """See clients only through what they offer, and return a Snapshot and a State that a checkpoint can hold."""
    stage = _staged(config)
    method, state = stage.method, stage.first
    allowed = OF_A_CLIENT | ({"labels"} if "client_labels" in method.needs else set())
    clients = stage.clients(_Shielding(method, allowed))
    for index in range(1, ROUNDS + 1):
        t = _round(config, index)
        state, model = _played(stage, t, state, clients)
        if not isinstance(model, Snapshot):
            raise ContractBroken(f"round returns {type(model).__name__} as the model of the round, not a Snapshot")
        _check_state(method, state, stage.place)
    return ""


def works_alone(config: Config) -> str:
    """Work in a federation that nobody has joined, as the labels-only model does."""
    stage = _staged(config)
    if "client_labels" in stage.method.needs:
        return "it needs labeled clients, so it has no labels-only model"
    server = stage.server.alone()
    state, _ = stage.method.round(_round(config, 1), stage.first, server.at(_round(config, 1)), stage.clients(size=0))
    _check_state(stage.method, state, stage.place)
    stage.method.finish(_round(config, 2), state, server.at(_round(config, 2)), stage.clients(size=0))
    return ""


def stacks(config: Config) -> str:
    """Train clients side by side as one by one, for the option `stack`."""
    try:
        check_training(_staged(config).place, replace(config, run=replace(config.run, stack=2)))
    except UserError as error:
        return str(error)
    config = _with_fields(config, SHORT)
    alone, replies = round_of_all(config, stack=1)
    for height in (2, 3):
        together, stacked = round_of_all(config, height)
        outcomes = [[reply.outcome for reply in each] for each in (replies, stacked)]
        if outcomes[0] != outcomes[1]:
            raise ContractBroken(f"clients end otherwise when {height} are stacked: {outcomes[1]}, not {outcomes[0]}")
        moved = distance(alone, config.method.thing.weights(_staged(config).first))
        if distance(together, alone) > MOST_APART * moved:
            raise ContractBroken(
                f"clients of which {height} are stacked learn something else: let the loss do nothing but what "
                "torch.func.vmap can follow, and keep nothing between batches"
            )
    return ""


CONTRACTS: tuple[Callable[[Config], str], ...] = (
    is_frozen,
    survives_toml,
    uses_the_protocol,
    works_alone,
    same_seed_same_bits,
    other_seed_other_bits,
    resumes_exactly,
    stacks,
)


class Verdict(NamedTuple):
    """What became of one contract: what it asks, the error that broke it, and why it could not be tried."""

    asked: str
    error: Exception | None
    untried: str


def check_contracts(config: Config) -> Iterator[Verdict]:
    """Try each contract in turn; whatever a method raises breaks the contract that was tried."""
    short = shortened(config)
    for contract in CONTRACTS:
        asked = (contract.__doc__ or "").rstrip(".")
        try:
            yield Verdict(asked, None, contract(short))
        except UserError:  # the configuration cannot be run at all
            raise
        except Exception as error:
            yield Verdict(asked, error, "")


class _Outcome(NamedTuple):
    model: bytes
    rounds: list[dict[str, Any]]


def _outcome(config: Config, directory: Path) -> _Outcome:
    start(config, directory)
    return _read(directory)


def _read(directory: Path) -> _Outcome:
    records = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return _Outcome((directory / "model.safetensors").read_bytes(), [{**record, "seconds": None} for record in records])


def _difference(one: _Outcome, other: _Outcome) -> str:
    for before, after in zip(one.rounds, other.rounds, strict=False):
        if keys := [key for key in before if json.dumps(before[key]) != json.dumps(after.get(key))]:
            return f"{', '.join(keys)} of round {before['round']}"
    return "the final model" if one.model != other.model else ""


class _Interrupted(BaseException):
    """Ends a run between two rounds."""


class _Interrupt(Silent):
    def round(self, record: Any, best: float | None) -> None:
        raise _Interrupted


@dataclasses.dataclass
class _Stage:
    """A world in this process, to play single rounds of a method."""

    world: World
    place: Place
    server: ServerSite
    tally: Tally
    first: Any  # the State before round 1

    @property
    def method(self) -> Any:
        return self.world.config.method.thing

    def clients(self, method: Any = None, size: int | None = None, stack: int = 1) -> LocalFederation:
        count = len(self.world.division.clients) if size is None else size
        return LocalFederation(Here(self.place), count, method or self.method, self.tally, stack=stack)


def _staged(config: Config) -> _Stage:
    world = build_world(config)
    place, tally = world.place(None, "cpu"), Tally()
    server = ServerSite(place, world.division.server, world.data.labels, Here(place), 1, tally)
    with threads(1):
        first = config.method.thing.start(place.network.weights())
    return _Stage(world, place, server, tally, first)


def _round(config: Config, index: int) -> Round:
    return Round(index, (index - 1) / ROUNDS, Seed(config.run.seed).under("round", index))


def _played(stage: _Stage, t: Round, state: Any, clients: LocalFederation) -> Any:
    """Return what a round gives; a client's broken contract is told as one."""
    stage.tally.reset()
    try:
        with threads(1):
            return stage.method.round(t, state, stage.server.at(t), clients)
    except RunStopped as error:
        cause = error.__cause__
        if isinstance(cause, JobFailed) and cause.kind == ContractBroken.__name__:
            raise ContractBroken(cause.reason.partition(": ")[2]) from error
        raise


def _check_state(method: Any, state: Any, place: Place) -> None:
    try:
        trees.flatten(state, [])
    except Exception as error:
        raise ContractBroken(f"its State cannot be written to a checkpoint: {error}") from error
    names, wanted = set(method.weights(state)), {name for name, _ in place.build().named_parameters()}
    if names != wanted:
        some = sorted(names ^ wanted)[0]
        raise ContractBroken(f"weights(state) should be all parameters of the model and no others: {some!r} is not so")


def round_of_all(config: Config, stack: int) -> tuple[Weights, list[Reply]]:
    """Return the model after a round in which everybody takes part, and what became of each client."""
    config = _with_fields(config, {"activity_rate": 1.0})
    stage = _staged(config)
    state, _ = _played(stage, _round(config, 1), stage.first, stage.clients(stack=stack))
    return stage.method.weights(state), stage.tally.replies


def _with_fields(config: Config, values: dict[str, Any]) -> Config:
    """Return the configuration with those of the values that the method has a field for."""
    method: Any = config.method.thing
    known = {each.name for each in dataclasses.fields(method)}
    changed = replace(method, **{name: value for name, value in values.items() if name in known})
    return replace(config, method=replace(config.method, thing=changed))


class _Guarded:
    """A client that raises on anything the protocol does not name."""

    def __init__(self, site: object, allowed: set[str]) -> None:
        object.__setattr__(self, "_site", site)
        object.__setattr__(self, "_allowed", allowed)

    def __getattr__(self, attribute: str) -> Any:
        if attribute not in object.__getattribute__(self, "_allowed"):
            raise ContractBroken(f"client_update looks at client.{attribute}, which no client has in a real federation")
        return getattr(object.__getattribute__(self, "_site"), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise ContractBroken(f"client_update sets client.{attribute}: what a client keeps belongs to Update.memory")


class _Shielding:
    """A method whose clients are guarded."""

    def __init__(self, method: Any, allowed: set[str]) -> None:
        self._method, self._allowed = method, allowed

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._method, attribute)

    def client_update(self, client: Any, message: Any, t: Round) -> Any:
        return self._method.client_update(_Guarded(client, self._allowed), message, t)
