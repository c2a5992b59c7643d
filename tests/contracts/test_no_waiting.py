"""No loss asks a device for a number in the middle of an epoch: whoever asks waits until all before it is done.

Every training of a round is played again on "meta", a device without content: whatever needs a number from it raises.
"""

import copy
from dataclasses import replace

import pytest
import torch

from semifl import registry
from semifl.configuration.build import build_world
from semifl.configuration.config import METHODS, decode
from semifl.federation import sites
from semifl.federation.local import LocalFederation
from semifl.federation.sites import ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.learning import training
from semifl.learning.network import Network
from semifl.objectives import OBJECTIVES
from semifl.randomness import Seed
from toys import method_table as table

# The network of the moment decides which pictures a step is about, so each step waits once for what it says.
DECIDES_AT_EACH_STEP = {"fedmatch", "fedmatch_earlier", "fedrgd_released", "fedsgd_fixmatch", "semifl_ablated"}


def play_on_nothing(fits: list[tuple[Network, training.Fit]]) -> None:
    for network, job in fits:
        nothing = Network(copy.deepcopy(network.module), "meta")
        nothing.module.train()
        stretches = job.sgd.stretches(nothing)
        # Another kernel than the fused one, which does not know this device; both are told all they need beforehand.
        optimizer = torch.optim.SGD(job.sgd.rates(stretches), lr=job.sgd.lr, momentum=job.sgd.momentum)
        training.train(nothing, job, optimizer)


def fits_of_a_round(toy: dict, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Network, training.Fit]]:
    seen = []

    def noted(network: Network, job: training.Fit) -> training.Fitted:
        job = replace(job, batches=list(job.batches))
        seen.append((network, replace(job, loss=copy.deepcopy(job.loss), memory=None)))
        return training.fit(network, job)

    monkeypatch.setattr(sites, "fit", noted)
    world = build_world(decode(toy))
    place, tally = world.place(None, "cpu"), Tally()
    method = world.config.method.thing
    server = ServerSite(place, world.division.server, world.data.labels, Here(place), 1, tally)
    clients = LocalFederation(Here(place), len(world.division.clients), method, tally)
    t = Round(1, 0.0, Seed(0).under("round", 1))
    method.round(t, method.start(place.network.weights()), server.at(t), clients)
    assert seen
    return seen


@pytest.mark.parametrize("name", registry.names(METHODS))
def test_of_a_method(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = fits_of_a_round(table(name), monkeypatch)
    if name not in DECIDES_AT_EACH_STEP:
        play_on_nothing(fits)
        return
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):  # or it should leave the list
        play_on_nothing(fits)


@pytest.mark.parametrize("name", registry.names(OBJECTIVES))
def test_of_an_objective(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = table("centralized")
    toy["method"] = {**toy["method"], "objective": {"name": name}}
    play_on_nothing(fits_of_a_round(toy, monkeypatch))
