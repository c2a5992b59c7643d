"""The hub's side under Flower: `flwr run` starts it at the SuperLink, with the nodes as sites."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from semifl.configuration.build import World
from semifl.configuration.config import read
from semifl.deploy.flower.transport import FlowerTransport
from semifl.deploy.hub import Hub, read_settings, run_federation
from semifl.deploy.remote import NotEnoughSites
from semifl.errors import UserError
from semifl.records.metrics import Metric, standing
from semifl.records.record import RoundRecord, Summary, absent
from semifl.running.context import Silent
from semifl.toml import Table

FIRST_WAIT = 60.0  # seconds that sites have to connect before a run starts with those that are there
PAUSE = 10.0  # seconds before sites that did not answer are asked again


app = ServerApp()


@app.main()  # type: ignore[untyped-decorator, unused-ignore]
def main(grid: Grid, context: Context) -> None:
    """Play the run that the run configuration names, or go on with it after its last complete round."""
    config = context.run_config
    hub = make_hub(config)
    table = read(Path(_needed(config, "config")).expanduser())
    result = persist(hub, _needed(config, "name"), table, FlowerTransport(grid), 60 * float(config.get("patience", 60)))
    print(f"done: accuracy {result['accuracy']:.2f} %, in {hub.runs / str(config['name'])}", flush=True)


class Lines(Silent):
    """One line for each round, on what becomes Flower's log of the run; and when the last of them was."""

    def __init__(self) -> None:
        self.last = time.monotonic()
        self.metric: Metric = "accuracy"

    def begin(self, world: World, first_round: int) -> None:
        self.metric = world.config.run.metric
        print(f"rounds {first_round} to {world.config.run.rounds}", flush=True)

    def round(self, record: RoundRecord, best: float | None) -> None:
        self.last = time.monotonic()
        missing = "".join(f", {len(clients)} {name}" for name, clients in absent(record).items())
        facts = f"{standing(record, best, self.metric)}{missing}, {record['seconds']['total']:.1f} s"
        print(f"round {record['round']}: {facts}", flush=True)

    def warn(self, message: str) -> None:
        print(message, flush=True)


def make_hub(config: Mapping[str, Any]) -> Hub:
    """Where the hub has its things, out of the flat keys of a Flower run configuration."""
    sites = tuple(name.strip() for name in _needed(config, "sites").split(",") if name.strip())
    if len(set(sites)) != len(sites):
        raise UserError(f"sites = {config['sites']!r} names a site twice")
    return Hub(Path(_needed(config, "hub-data")).expanduser(), Path(_needed(config, "runs")).expanduser(), sites)


def persist(hub: Hub, name: str, table: Table, transport: FlowerTransport, patience: float) -> Summary:
    """Play; while too few sites answer, go on after the last complete round as soon as they are back.

    After `patience` seconds without a round the run ends; the next `flwr run` with its name goes on with it.
    """
    enough, lines = read_settings(table)[0].min_updates, Lines()
    transport.gather(hub.sites, len(hub.sites), FIRST_WAIT)
    while True:
        if transport.gather(hub.sites, enough, lines.last + patience - time.monotonic()) < enough:
            raise UserError(
                f"fewer than {enough} of the sites {', '.join(hub.sites)} are connected: is each registered?"
            )
        try:
            return run_federation(hub, name, table, transport, lines)
        except NotEnoughSites as error:
            print(f"{error}; waiting for them", flush=True)
            if time.monotonic() > lines.last + patience:
                raise
            time.sleep(PAUSE)


def _needed(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key, "")
    if not isinstance(value, str) or not value:
        raise UserError(f"the run configuration has no {key!r}: add it to -c '{key}=\"...\" ...'")
    return value
