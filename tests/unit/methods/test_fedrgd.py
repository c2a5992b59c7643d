"""FedRGD: a replica of the server in each group, clients that go on from their group's average, two rounds by NumPy."""

import numpy as np
import pytest
import torch

from semifl.federation.memory import ClientMemory
from semifl.federation.world import Round
from semifl.methods.fedrgd import FedRGD
from semifl.randomness import Seed
from testbed import Testbed


def arrays(weights: dict) -> np.ndarray:
    return np.concatenate([tensor.double().numpy().ravel() for tensor in weights.values()])


def dealt(t: Round, S_t: tuple[int, ...], groups: int) -> dict[int, int]:
    """Who is in which group: the permutation is drawn at its address, its residues are the groups."""
    places = torch.randperm(len(S_t), generator=t.seed.at("groups")).tolist()
    return {client: place % groups for client, place in zip(S_t, places, strict=True)}


def test_two_groups_and_two_rounds_by_hand() -> None:
    testbed = Testbed(name="fedrgd", threshold=0.0, clients=5, iterations=3, client_batch=4, server_batch=3, lr=0.1)
    state = testbed.method.start(testbed.first)
    server, users = arrays(testbed.first), dict.fromkeys(range(5), arrays(testbed.first))
    for index in (1, 2):
        group_of = dealt(Round(index, 0.0, Seed(0).under("round", index)), tuple(range(5)), 2)
        state = testbed.round(index, state)
        # Every replica starts from the replicas' common average, every client from the average of its last group.
        replicas = [arrays(fitted.weights) for _, fitted in testbed.server.fits]
        assert len(replicas) == 2
        assert not np.allclose(*replicas)  # the same labels in another order
        for job, _ in testbed.server.fits:
            np.testing.assert_allclose(arrays(job.start), server, atol=1e-6)
        ((_, sent),) = testbed.clients.sent
        for client, weights in sent.items():
            np.testing.assert_allclose(arrays(weights), users[client], atol=1e-6)
        trained = {reply.client: users[reply.client] + arrays(reply.update.change) for reply in testbed.clients.replies}
        averages = [
            np.mean([replicas[g], *(trained[client] for client in trained if group_of[client] == g)], axis=0)
            for g in (0, 1)
        ]
        users = {client: averages[group_of[client]] for client in users}
        server = np.mean(averages, axis=0)
        np.testing.assert_allclose(arrays(state.weights), server, atol=1e-6)
    assert not np.allclose(averages[0], averages[1], atol=1e-3)  # the groups stay apart


def test_one_model_for_all_would_be_nothing_but_a_weight_of_the_server() -> None:
    """Why clients must go on from their own group: the replicas' mean is the same whoever is dealt where."""
    rng = np.random.default_rng(0)
    server, clients = rng.normal(size=3), rng.normal(size=(4, 3))
    means = [
        np.mean([np.mean([server, *clients[list(group)]], axis=0) for group in deal], axis=0)
        for deal in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    ]
    np.testing.assert_allclose(means, [server / 3 + clients.sum(axis=0) / 6] * 3)


def test_a_client_that_was_not_there_starts_from_the_replicas_model() -> None:
    testbed = Testbed(name="fedrgd", threshold=0.0, activity_rate=0.5, iterations=1)
    first = testbed.round(1, testbed.method.start(testbed.first))
    was_there = set(testbed.clients.sent[0][1])
    assert len(was_there) == 2
    for client in range(4):
        start = testbed.method.start_of(client, first)
        assert (start is first.weights) == (client not in was_there)


def test_a_group_without_an_answer_is_its_replica_and_without_clients_the_replicas_are_averaged() -> None:
    testbed = Testbed(name="fedrgd", iterations=2)
    testbed.clients._size = 0
    after = testbed.round(1, testbed.method.start(testbed.first))
    replicas = [arrays(fitted.weights) for _, fitted in testbed.server.fits]
    np.testing.assert_allclose(arrays(after.weights), np.mean(replicas, axis=0), atol=1e-6)


def test_the_groups_are_dealt_anew_every_round_and_differ_by_one_client_at_most() -> None:
    S_t = tuple(range(9))
    deals = [FedRGD().deal(S_t, Round(index, 0.0, Seed(0).under("round", index))) for index in range(5)]
    assert len({str(deal) for deal in deals}) == 5
    assert all(sorted([*deal.values()].count(g) for g in (0, 1)) == [4, 5] for deal in deals)


def test_everyone_trains_for_the_same_number_of_iterations_whatever_it_holds() -> None:
    testbed = Testbed(name="fedrgd", threshold=0.0, iterations=7, server_batch=3, client_batch=4)
    counts = []

    class Counting:
        def __init__(self, batches) -> None:
            self._batches = batches

        def __iter__(self):
            for number, batch in enumerate(self._batches, 1):
                counts[-1] = number
                yield batch

    import semifl.federation.sites as sites

    original = sites.fit

    def counted(network, job):
        counts.append(0)
        return original(network, job.__class__(**{**vars(job), "batches": Counting(job.batches)}))

    sites.fit = counted
    try:
        testbed.round(1, testbed.method.start(testbed.first))
    finally:
        sites.fit = original
    assert counts == [7] * 6  # two replicas and four clients


@pytest.mark.parametrize("kept", [True, False])
def test_momentum_is_kept_where_it_should_be(kept: bool, tmp_path) -> None:
    word = "kept" if kept else "fresh"
    testbed = Testbed(
        memory=ClientMemory(tmp_path),
        name="fedrgd",
        threshold=0.0,
        iterations=2,
        client_buffers=word,
        server_buffers=word,
    )
    state = testbed.round(1, testbed.method.start(testbed.first))
    before = [fitted.memory["momentum"] for _, fitted in testbed.server.fits]
    testbed.place.memory.forget_after(1)
    assert bool(testbed.place.memory.read(0, before=2)) == kept
    testbed.round(2, state)
    for (job, _), momentum in zip(testbed.server.fits, before, strict=True):
        assert (bool(job.memory) and torch.equal(job.memory["momentum"], momentum)) == kept


def test_the_learning_rate_rises_over_the_first_rounds_and_then_falls_by_the_cosine() -> None:
    method = FedRGD(lr=0.4, warmup_rounds=4)
    rates = [method.local_sgd(Round(index, (index - 1) / 8, Seed(0))).lr for index in range(1, 9)]
    falling = [0.4 * 0.5 * (1 + np.cos(np.pi * k / 8)) for k in range(8)]
    np.testing.assert_allclose(rates, [value * min(1, (k + 1) / 4) for k, value in enumerate(falling)])
