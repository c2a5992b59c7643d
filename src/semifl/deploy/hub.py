"""The hub's side of a run in a real federation: the same loop as in a simulation, its clients reached by packets."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from semifl.configuration.build import World, build_world
from semifl.configuration.config import VIEWS, Config, decode, from_section, spec_of
from semifl.deploy import wire
from semifl.deploy.answers import read_hello
from semifl.deploy.order import refuse_code, refuse_name, refuse_needs, write_order
from semifl.deploy.pictures import HUB_PICTURES
from semifl.deploy.remote import Known, Layer, NotEnoughSites, RemoteFederation, Told, Transport
from semifl.deploy.settings import Settings
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.federation.tally import Tally
from semifl.federation.world import Federation, Method
from semifl.learning import batchnorm
from semifl.records.directory import RunDirectory
from semifl.records.record import Summary
from semifl.running.context import Observer
from semifl.running.loop import as_begun, changes, start_or_resume
from semifl.toml import Table

ASKED_OF_HUB = ("root", "sites", "partition", "clients", "labeled")  # keys of [data] that the hub fills in itself
HELLO_SECONDS = 120.0  # a site may have thousands of pictures to decode before its first answer
GOODBYE_SECONDS = 120.0  # under Flower a site reads its pictures for this as for any packet
TRIED = "round tried"  # the event: too few sites answered
SLOW = 2.0  # times the others' seconds from which a site is called slow


@dataclass(frozen=True)
class Hub:
    """What the hub has: its pictures, the folder of its runs, and who its sites are."""

    data: Path
    runs: Path
    sites: tuple[str, ...]
    device: str = "cpu"


@dataclass
class Sites:
    """The clients of a run that live elsewhere, and what became of each in the round at hand."""

    transport: Transport
    order: Table
    settings: Settings
    directory: RunDirectory
    method: Method
    layers: dict[str, Layer]
    refused: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    tried: dict[int, set[str]] = field(default_factory=dict)  # who was silent when a round was tried before

    @property
    def pictures(self) -> list[int]:
        return [self.counts.get(site, 0) for site in self.order["sites"]]

    def federation(self, tally: Tally) -> Federation:
        # In most runs no round was ever tried twice, and nobody reads all records in every round.
        silent = self.tried.get(len(self.directory.rounds()) + 1, set()) if self.tried else set()
        known = Known(self.refused, silent, self.counts)
        return RemoteFederation(
            self.transport, self.order, self.settings, self.method, self.layers, tally, self.tell, known
        )

    def greet(self) -> None:
        """Ask everyone whether they follow the order; one that does not is named and left out until the next job."""
        packet = wire.pack("hello", {"order": self.order})
        packets = dict.fromkeys(self.order["sites"], packet)
        for answer in self.transport.exchange(packets, HELLO_SECONDS, wire.room_for([])):
            site, outcome, reason = answer.site, "ready", ""
            try:
                if answer.data is None:
                    outcome, reason = "missing", answer.reason
                else:
                    hello = read_hello(answer.data, wire.room_for([]))
                    self.counts[site] = hello.pictures
                    self.directory.add_event("site joined", site=site, **hello.model_dump())
            except UserError as error:
                outcome, reason = "refused", str(error)
                self.refused[site] = reason
            if reason:
                self.directory.add_event(f"site {outcome}", site=site, reason=reason)
            self.last[site] = {"outcome": outcome, "reason": reason}
        if len(self.refused) == len(self.order["sites"]):
            raise UserError(f"every site refuses this run: {next(iter(self.refused.values()))}")

    def part(self) -> None:
        """The run is over: sites need not keep frozen features; one that does not hear it keeps them until the next."""
        packet = wire.pack("goodbye", {"order": self.order})
        packets = {site: packet for site in self.order["sites"] if site not in self.refused}
        for answer in self.transport.exchange(packets, GOODBYE_SECONDS, wire.room_for([])):
            if answer.data is None:
                self.directory.add_event("site keeps features", site=answer.site, reason=answer.reason)

    def tell(self, told: Told) -> None:
        if told.round is None:
            self.directory.add_event(told.outcome, site=told.site, reason=told.reason)
            return
        entry = {"round": told.round, "outcome": told.outcome, "reason": told.reason, "seconds": round(told.seconds, 2)}
        spent = told.spent.model_dump() if told.spent else {}
        self.last[told.site] = entry | ({"spent": spent} if spent else {})
        if told.outcome == "late":
            self.directory.add_event("late", round=told.round, site=told.site, reason=told.reason)
        if spent:
            self.directory.add_event("privacy spent", round=told.round, site=told.site, **spent)

    def status(self) -> dict[str, dict[str, Any]]:
        """What became of each site's last turn; one that takes much longer than the others is called slow."""
        seconds = sorted(entry["seconds"] for entry in self.last.values() if entry.get("outcome") == "trained")
        usual = seconds[(len(seconds) - 1) // 2] if seconds else 0.0
        return {
            site: entry | ({"slow": True} if _is_slow(entry, usual) else {})
            for site, entry in sorted(self.last.items())
        }


def hub_config(table: Table, hub: Hub) -> Config:
    """A run's file as the hub understands it: its own pictures, and the sites of the project."""
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    data = table.pop("data", {})
    if not isinstance(data, dict) or data.pop("name", "folder") not in ("folder", HUB_PICTURES):
        raise UserError('a real federation learns from folders of pictures: set data.name = "folder"')
    refuse_code(table, "")
    for view in VIEWS:
        if data.get(view):
            raise UserError(f"data.{view} is code, and a site runs what is built into semifl: leave it out")
    _refuse_outside(data.get("csv", ""))
    data = {key: value for key, value in data.items() if key not in ASKED_OF_HUB}
    table["data"] = {"name": HUB_PICTURES, "root": str(hub.data), "sites": list(hub.sites), **data}
    config = decode(table)
    refuse_needs(config)
    return config


def _refuse_outside(csv: Any) -> None:
    """An operator names files in the hub's folder of pictures, and no others: sentences would tell what they hold."""
    parts = PurePath(csv).parts if isinstance(csv, str) else ()
    if PurePath(*parts).is_absolute() or ".." in parts or not str(csv).isprintable():
        raise UserError("data.csv must name a file inside the hub's folder of pictures: without '..' or a leading '/'")


def read_settings(table: Table) -> tuple[Settings, Table]:
    """The section [deploy] of a run's file, and the rest of it."""
    rest = dict(table)
    section = rest.pop("deploy", {})
    if not isinstance(section, dict):
        raise UserError("deploy must be a section, [deploy], not a value")
    return from_section(Settings, section, "deploy"), rest


def run_federation(
    hub: Hub,
    name: str,
    table: Table,
    transport: Transport,
    observer: Observer,
    watch: Callable[[Sites], None] = lambda sites: None,
) -> Summary:
    """Start the run of this name, or go on with it after its last complete round."""
    refuse_name(name)
    settings, table = read_settings(table)
    config = hub_config(table, hub)
    if settings.min_updates > len(hub.sites):
        raise UserError(f"deploy.min_updates = {settings.min_updates}, but the project has {len(hub.sites)} sites")
    directory = RunDirectory(hub.runs / name)
    directory.path.mkdir(parents=True, exist_ok=True)
    world = build_world(config)
    _refuse_another(directory, world.config)
    order = write_order(world, _identity(directory.path), hub.sites)
    if finished := directory.summary():
        return finished
    sites = Sites(transport, order, settings, directory, world.config.method.thing, _layers(world))
    watch(sites)
    sites.greet()
    if len(sites.refused) > len(hub.sites) - settings.min_updates:
        site, reason = next(iter(sites.refused.items()))
        raise UserError(f"too few sites follow this run's order; {site}: {reason}")
    sites.tried = _tried(directory, set(hub.sites) - set(sites.refused))
    try:
        result = start_or_resume(world, directory.path, device=hub.device, observer=observer, elsewhere=sites)
    except NotEnoughSites as error:
        directory.add_event(TRIED, round=error.round, silent=list(error.silent))
        raise
    if getattr(spec_of(config.model), "views", 0):
        sites.part()
    return result


def _layers(world: World) -> dict[str, Layer]:
    module, facts = world.model_factory()(), world.data.facts
    named = batchnorm.layers(module)
    batchnorm.stop_tracking(module)
    values = batchnorm.values_per_picture(module, facts.channels, facts.size)
    return {name: Layer(layer.num_features, values.get(name, 0)) for name, layer in named.items()}


def _refuse_another(directory: RunDirectory, config: Config) -> None:
    """A name stands for one run: with another configuration it would mix two."""
    if not (directory.path / "config.toml").exists():
        return
    if changed := changes(directory, as_begun(config, directory)):
        raise UserError(f"the hub has another run of this name, so this one needs a --name of its own: {changed[0]}")


def _tried(directory: RunDirectory, willing: set[str]) -> dict[int, set[str]]:
    """Rounds that too few sites answered, and who did not; when all have had a turn, they begin anew."""
    found: dict[int, set[str]] = {}
    for event in directory.lines("events.jsonl"):
        if event.get("event") == TRIED:
            now = set(event["silent"])
            so_far = found.get(event["round"], set()) | now
            found[event["round"]] = now if so_far >= willing else so_far
    return found


def _identity(folder: Path) -> str:
    """Tells this run from an earlier one of the same name, whose memories sites may still have."""
    path = folder / "identity"
    if not path.exists():
        replace_text(path, f"{folder.name}.{secrets.token_hex(4)}\n")
    return path.read_text(encoding="utf-8").strip()


def _is_slow(entry: dict[str, Any], usual: float) -> bool:
    seconds = entry.get("seconds", 0.0)
    return entry.get("outcome") == "late" or (seconds > SLOW * usual and seconds > usual + 1)
