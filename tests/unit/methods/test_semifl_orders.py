"""The two orders of a round, and the last fine-tune, seen from the server: who is asked for what, when."""

import pytest
import torch

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.federation.local import LocalFederation
from semifl.federation.sites import ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.randomness import Seed
from toys import toy_table


class Watched(ServerSite):
    """A server that writes down what it is asked to do."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.diary: list[str] = []

    def fit(self, job):
        self.diary.append("fit")
        return super().fit(job)

    def statistics(self, weights):
        self.diary.append("statistics")
        return super().statistics(weights)


class WatchedClients(LocalFederation):
    diary: list[str]

    def each(self, *arguments):
        self.diary.append("clients")
        return super().each(*arguments)


def run_rounds(norm: str = "batch", rounds: int = 2, **method):
    table = toy_table(**method)
    table["model"] = {"name": "cnn", "width": 2, "norm": norm}
    world = build_world(decode(table))
    place, tally = world.place(None, "cpu"), Tally()
    server = Watched(place, world.division.server, world.data.labels, Here(place), 1, tally)
    chosen = world.config.method.thing
    clients = WatchedClients(Here(place), len(world.division.clients), chosen, tally)
    clients.diary = server.diary
    state = chosen.start(place.network.weights())
    diaries = []
    for index in range(1, rounds + 1):
        t = Round(index, 0.0, Seed(0).under("round", index))
        state, _ = chosen.round(t, state, server.at(t), clients)
        diaries.append(list(server.diary))
        server.diary.clear()
    model = chosen.finish(Round(rounds + 1, 0.0, Seed(0).under("round", rounds + 1)), state, server, clients)
    return diaries, list(server.diary), state, model


def test_the_papers_order() -> None:
    diaries, last, _, _ = run_rounds()
    assert diaries == [["fit", "statistics", "clients"]] * 2
    assert last == ["fit", "statistics"]  # T + 1 fine-tunes


def test_the_reference_order_computes_statistics_once_a_round() -> None:
    diaries, last, state, model = run_rounds(name="semifl_released", statistics="server")
    # Round 1 needs those of the random network; from then on those of the end of the round before are sent.
    assert diaries == [["statistics", "clients", "fit", "statistics"], ["clients", "fit", "statistics"]]
    assert last == []  # T fine-tunes: the tested model is the final one
    assert all(model.weights[name] is state.weights[name] for name in state.weights)


def test_without_batchnorm_the_reference_order_still_ends_without_another_fine_tune() -> None:
    diaries, last, _, model = run_rounds(norm="group", name="semifl_released")
    assert "fit" not in last
    assert model.stats == {}
    assert all(diary.count("fit") == 1 for diary in diaries)


@pytest.mark.parametrize(("rate", "rounding", "size"), [(0.1, "floor", 1), (0.29, "floor", 29), (0.291, "floor", 29)])
def test_cohort_sizes(rate: float, rounding: str, size: int) -> None:
    chosen = decode(toy_table(activity_rate=rate, cohort_rounding=rounding)).method.thing
    assert chosen.cohort_size(100 if rate > 0.2 else 5) == size
    ceiling = decode(toy_table(activity_rate=rate, cohort_rounding="ceil")).method.thing
    assert ceiling.cohort_size(100) == {0.1: 10, 0.29: 29, 0.291: 30}[rate]


def test_statistics_of_everyone_differ_from_the_servers() -> None:
    *_, of_server = run_rounds(statistics="server", threshold=1.0)
    *_, of_all = run_rounds(statistics="all", threshold=1.0)
    name = next(iter(of_server.stats))
    assert of_all.stats[name].number > of_server.stats[name].number
    assert not torch.equal(of_all.stats[name].mean, of_server.stats[name].mean)
