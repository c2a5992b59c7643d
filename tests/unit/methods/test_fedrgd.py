"""FedRGD: groups that each contain the server, and a fixed number of iterations."""

import numpy as np
import torch

from semifl.federation.world import Reply, Round, Update
from semifl.methods.fedrgd import FedRGD
from semifl.randomness import Seed
from testbed import Testbed

SENT = {"w": torch.tensor([0.5])}


def reply(client: int, value: float) -> Reply:
    return Reply(client, Update({"w": torch.tensor([value]) - SENT["w"]}, 1, {}, {}), "trained", "", {})


def dealt(S_t: tuple[int, ...], t: Round, groups: int) -> list[list[int]]:
    """Who is in which group: the permutation is drawn at its address, its residues are the groups."""
    places = torch.randperm(len(S_t), generator=t.seed.at("groups")).tolist()
    return [[client for client, place in zip(S_t, places, strict=True) if place % groups == g] for g in range(groups)]


def test_each_group_is_averaged_with_the_server_and_then_the_groups() -> None:
    t, S_t = Round(1, 0.0, Seed(3)), (2, 5, 7, 8, 9)
    values = {2: 1.0, 5: 2.0, 7: 4.0, 8: 8.0, 9: 16.0}
    groups = dealt(S_t, t, 2)
    assert sorted(map(len, groups)) == [2, 3]
    expected = np.mean([np.mean([100.0, *(values[client] for client in group)]) for group in groups])
    mean = FedRGD().group_average(SENT, {"w": torch.tensor([100.0])}, (reply(c, v) for c, v in values.items()), S_t, t)
    np.testing.assert_allclose(mean["w"].item(), expected, rtol=1e-6)


def test_a_group_that_did_not_answer_is_left_out_and_the_server_stands_alone_if_none_did() -> None:
    t, S_t, server = Round(1, 0.0, Seed(3)), (0, 1, 2, 3), {"w": torch.tensor([10.0])}
    first, _ = dealt(S_t, t, 2)
    replies = [reply(client, 4.0) if client in first else Reply(client, None, "failed", "", {}) for client in S_t]
    mean = FedRGD().group_average(SENT, server, replies, S_t, t)
    np.testing.assert_allclose(mean["w"].item(), (10 + 4 * len(first)) / (1 + len(first)), rtol=1e-6)
    assert FedRGD().group_average(SENT, server, [], S_t, t) is server


def test_the_groups_are_dealt_anew_every_round() -> None:
    S_t = tuple(range(10))
    deals = {str(dealt(S_t, Round(index, 0.0, Seed(0).under("round", index)), 2)) for index in range(5)}
    assert len(deals) == 5


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
    assert counts == [7] * 5  # the server and four clients


def test_the_average_is_the_next_model() -> None:
    testbed = Testbed(name="fedrgd", threshold=0.0, groups=1, iterations=2)
    after = testbed.round(1, testbed.method.start(testbed.first))
    ((_, server),) = testbed.server.fits
    models = [server.weights, *testbed.trained()]
    for name, tensor in after.weights.items():
        expected = np.mean([model[name].double().numpy() for model in models], axis=0)
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)
