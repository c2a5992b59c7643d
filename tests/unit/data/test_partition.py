"""Who holds what: no picture lost or shared, counts right, every way to divide as it promises."""

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from semifl.data import partition
from semifl.data.dataset import UNKNOWN, Dataset, Facts
from semifl.data.mapped import place_of
from semifl.data.partition import PARTITIONS, BySite, Classes, Dirichlet, Holdings, Iid, Partition
from semifl.errors import UserError
from semifl.randomness import Seed

quick = settings(deadline=None, max_examples=40)


def dataset(labels: Tensor, classes: int, sites: int = 0, site_of: Tensor | None = None) -> Dataset:
    facts = Facts(tuple(f"class {c}" for c in range(classes)), (0.0,), (1.0,), False, 1, 1)
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    nothing = torch.zeros(0, dtype=torch.int64)
    return Dataset(facts, images, labels, images[:0], nothing, None, tuple(f"s{s}" for s in range(sites)), site_of)


def random_data(pictures: int, classes: int, seed: int = 0) -> Dataset:
    return dataset(torch.randint(classes, (pictures,), generator=torch.Generator().manual_seed(seed)), classes)


def every_third_is_the_servers(data: Dataset) -> Tensor:
    return torch.nonzero(torch.arange(len(data.labels)) % 3 != 0).flatten()


def assert_divides(holdings: Holdings, positions: Tensor, dropped: int = 0) -> None:
    """Each position has at most one owner, and all but `dropped` have one; each client's positions are sorted."""
    held = [holdings[client].tolist() for client in range(len(holdings))]
    together = sorted(position for each in held for position in each)
    assert len(together) == len(positions) - dropped
    assert len(set(together)) == len(together)
    assert set(together) <= set(positions.tolist())
    assert all(each == sorted(each) for each in held)
    assert holdings.counts.tolist() == [len(each) for each in held]


def same(a: Holdings, b: Holdings) -> bool:
    return torch.equal(a.order, b.order) and torch.equal(a.offsets, b.offsets)


# Holdings


def test_holdings_by_hand() -> None:
    positions, owners = torch.tensor([30, 10, 20, 50, 40]), torch.tensor([2, 0, UNKNOWN, 2, 0])

    holdings = Holdings.of(positions, owners, clients=4)

    assert len(holdings) == 4
    assert [holdings[client].tolist() for client in range(4)] == [[10, 40], [], [30, 50], []]
    assert holdings.counts.tolist() == [2, 0, 2, 0]


def test_holdings_of_nothing() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)

    assert Holdings.of(nothing, nothing, clients=3).counts.tolist() == [0, 0, 0]


# What holds for all


ANY: list[tuple[Partition, int]] = [
    (Iid(), 7),
    (Classes(2), 10),
    (Dirichlet(0.3, 5), 7),
    (Dirichlet(0.05, 20), 20),
]


@pytest.mark.parametrize(("partition", "clients"), ANY, ids=str)
def test_the_same_seed_gives_the_same_holdings_and_another_gives_others(partition: Partition, clients: int) -> None:
    data = random_data(900, 5)
    positions = every_third_is_the_servers(data)

    first, again, other = (partition.divide(data, positions, clients, Seed(seed)) for seed in (0, 0, 1))

    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize(("partition", "clients"), ANY, ids=str)
def test_the_labels_of_the_servers_pictures_do_not_matter(partition: Partition, clients: int) -> None:
    data = random_data(900, 5)
    positions = every_third_is_the_servers(data)
    relabeled = data.labels.clone()
    relabeled[::3] = UNKNOWN

    one = partition.divide(data, positions, clients, Seed(0))
    other = partition.divide(dataset(relabeled, 5), positions, clients, Seed(0))

    assert same(one, other)


@pytest.mark.parametrize("partition", [Iid(), Classes(2), Dirichlet()], ids=str)
@pytest.mark.parametrize("clients", [0, -1])
def test_a_federation_has_a_client(partition: Partition, clients: int) -> None:
    with pytest.raises(UserError) as caught:
        partition.divide(random_data(50, 5), torch.arange(50), clients, Seed(0))

    assert str(caught.value) == f"data.clients must be at least 1, not {clients}"


@pytest.mark.parametrize("partition", [Iid(), Classes(2), Dirichlet(minimum=1)], ids=str)
def test_more_clients_than_pictures_are_refused(partition: Partition) -> None:
    with pytest.raises(UserError) as caught:
        partition.divide(random_data(90, 5), torch.arange(40), 45, Seed(0))

    assert str(caught.value) == "data.clients = 45 is more than the 40 unlabeled pictures there are"


@pytest.mark.parametrize(("partition", "name"), [(Classes(), "classes"), (Dirichlet(), "dirichlet")])
def test_dividing_by_class_needs_classes(partition: Partition, name: str) -> None:
    labels = random_data(100, 5).labels
    labels[50] = UNKNOWN

    with pytest.raises(UserError) as caught:
        partition.divide(dataset(labels, 5), torch.arange(100), 5, Seed(0))

    assert str(caught.value) == (
        f'data.partition.name = "{name}" divides by class, but these unlabeled pictures have no known class: '
        'use "iid" or "site"'
    )


def test_the_names_in_the_configuration() -> None:
    assert list(PARTITIONS.items()) == [("iid", Iid), ("classes", Classes), ("dirichlet", Dirichlet), ("site", BySite)]


# iid


@quick
@given(clients=st.integers(1, 60), extra=st.integers(0, 200), seed=st.integers(0, 99))
def test_iid_gives_everyone_the_same_number(clients: int, extra: int, seed: int) -> None:
    data = random_data(3 * (clients + extra), 4)
    positions = every_third_is_the_servers(data)

    holdings = Iid().divide(data, positions, clients, Seed(seed))

    assert set(holdings.counts.tolist()) == {len(positions) // clients}
    assert_divides(holdings, positions, dropped=len(positions) % clients)


def test_iid_does_not_look_at_labels() -> None:
    data = random_data(500, 5)
    unknown = dataset(torch.full((500,), UNKNOWN), 5)

    one, other = (Iid().divide(each, torch.arange(500), 10, Seed(3)) for each in (data, unknown))

    assert same(one, other)


def test_iid_drops_at_random_too() -> None:
    left_over = set()
    for seed in range(40):
        holdings = Iid().divide(random_data(11, 2), torch.arange(11), 2, Seed(seed))
        left_over |= set(range(11)) - set(holdings.order.tolist())

    assert len(left_over) >= 8  # 40 draws of 11: fewer than 8 distinct have a chance below one in a million


def test_iid_mixes_the_classes() -> None:
    # 100 pictures of each of 10 clients from two classes in sorted order: about 50 each, σ = 5.
    data = dataset(torch.arange(2).repeat_interleave(500), 2)

    holdings = Iid().divide(data, torch.arange(1000), 10, Seed(0))

    ones = [int(data.labels[holdings[client]].sum()) for client in range(10)]
    assert all(25 < count < 75 for count in ones)


# classes


@quick
@given(
    classes=st.integers(2, 12),
    per_client=st.integers(1, 4),
    factor=st.integers(1, 5),
    least=st.integers(0, 9),
    seed=st.integers(0, 99),
    data_draw=st.data(),
)
def test_classes_deals_equal_shards(
    classes: int, per_client: int, factor: int, least: int, seed: int, data_draw: st.DataObject
) -> None:
    clients = classes * factor  # the product is a multiple of the classes
    shards = per_client * factor  # of each class
    sizes = [shards + least + data_draw.draw(st.integers(0, 20)) for _ in range(classes)]
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    positions = torch.arange(len(labels))

    holdings = Classes(per_client).divide(dataset(labels, classes), positions, clients, Seed(seed))

    assert_divides(holdings, positions)
    shards_held = np.zeros(clients)
    shards_of_class = np.zeros(classes)
    for client in range(clients):
        of_class = np.bincount(labels[holdings[client]].numpy(), minlength=classes)
        assert (of_class > 0).sum() <= per_client
        for label in np.flatnonzero(of_class):
            # k shards of ⌊size/shards⌋ or one more each; there is one k that fits, unless shards are tiny.
            low, high = sizes[label] // shards, -(-sizes[label] // shards)
            fitting = [k for k in range(1, per_client + 1) if k * low <= of_class[label] <= k * high]
            assert fitting, (of_class[label], low, high)
            if len(fitting) == 1:
                shards_held[client] += fitting[0]
                shards_of_class[label] += fitting[0]
    assert shards_held.max() <= per_client
    assert shards_of_class.max() <= shards


def test_classes_with_one_class_each_shows_the_shards() -> None:
    # 23 pictures in 5 shards: 4 or 5 pictures each, three of them 5.
    labels = torch.arange(2).repeat_interleave(23)

    holdings = Classes(1).divide(dataset(labels, 2), torch.arange(46), 10, Seed(0))

    for label in (0, 1):
        mine = [holdings[client] for client in range(10) if (labels[holdings[client]] == label).all()]
        assert sorted(len(each) for each in mine) == [4, 4, 5, 5, 5]
    assert_divides(holdings, torch.arange(46))


def test_classes_are_dealt_at_random() -> None:
    # Four clients with one of two classes each: all six ways to deal must come up.
    labels = torch.arange(2).repeat_interleave(10)

    deals = set()
    for seed in range(100):
        holdings = Classes(1).divide(dataset(labels, 2), torch.arange(20), 4, Seed(seed))
        deals.add(tuple(int(labels[holdings[client][0]]) for client in range(4)))

    assert len(deals) == 6


def test_classes_does_not_know_the_order_of_the_pictures() -> None:
    # Within a class pictures are shuffled: a client's shard is no run of neighbours.
    labels = torch.arange(2).repeat_interleave(100)

    holdings = Classes(1).divide(dataset(labels, 2), torch.arange(200), 4, Seed(0))

    assert all(int(holdings[client].diff().max()) > 1 for client in range(4))


@pytest.mark.parametrize(("per_client", "clients"), [(2, 4), (1, 3), (3, 7)])
def test_classes_that_cannot_be_dealt_evenly_are_refused(per_client: int, clients: int) -> None:
    with pytest.raises(UserError) as caught:
        Classes(per_client).divide(random_data(500, 5), torch.arange(500), clients, Seed(0))

    assert str(caught.value) == (
        f"data.partition.per_client × data.clients = {per_client} × {clients} shards cannot be "
        "dealt evenly over 5 classes: make the product a multiple of 5"
    )


def test_a_class_too_small_for_its_shards_is_named() -> None:
    labels = torch.cat([torch.zeros(50, dtype=torch.int64), torch.ones(3, dtype=torch.int64)])

    with pytest.raises(UserError) as caught:
        Classes(1).divide(dataset(labels, 2), torch.arange(53), 8, Seed(0))

    assert str(caught.value) == (
        "class 'class 1' has 3 unlabeled pictures, too few to cut into 4 shards: use fewer data.clients"
    )


def test_per_client_is_at_least_one() -> None:
    with pytest.raises(ValueError, match=r"^per_client must be at least 1, not 0$"):
        Classes(0)


# dirichlet


@quick
@given(
    alpha=st.floats(0.01, 10),
    minimum=st.integers(1, 10),
    clients=st.integers(1, 20),
    extra=st.integers(0, 100),
    classes=st.integers(1, 10),
    seed=st.integers(0, 99),
)
def test_dirichlet_divides_everything_and_respects_the_minimum(
    alpha: float, minimum: int, clients: int, extra: int, classes: int, seed: int
) -> None:
    pictures = minimum * clients + extra
    # Every class has a picture, the last one too: what happens otherwise is a test of its own.
    labels = torch.cat([random_data(pictures, classes, seed).labels, torch.arange(classes)])
    data = dataset(labels, classes)
    positions = torch.arange(len(labels))

    holdings = Dirichlet(alpha, minimum).divide(data, positions, clients, Seed(seed))

    assert_divides(holdings, positions)
    assert len(holdings) == clients
    assert int(holdings.counts.min()) >= minimum


@pytest.mark.parametrize("seed", range(4))
def test_dirichlet_works_with_classes_that_have_no_unlabeled_picture(seed: int) -> None:
    # With a tiny α each class goes to one client; then everyone has an even share before the last, empty class.
    labels = torch.arange(2).repeat_interleave(10)

    holdings = Dirichlet(0.01, 1).divide(dataset(labels, 3), torch.arange(20), 2, Seed(seed))

    assert_divides(holdings, torch.arange(20))


def test_dirichlet_small_alpha_is_more_unequal_than_large() -> None:
    data = random_data(5000, 10)

    def entropy(alpha: float) -> float:
        """Mean entropy of the clients' classes, in nats."""
        holdings = Dirichlet(alpha, 1).divide(data, torch.arange(5000), 20, Seed(0))
        entropies = []
        for client in range(20):
            shares = np.bincount(data.labels[holdings[client]].numpy(), minlength=10) / len(holdings[client])
            entropies.append(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
        return float(np.mean(entropies))

    assert entropy(0.05) < entropy(0.5) < entropy(100) <= np.log(10)


def test_dirichlet_with_large_alpha_spreads_evenly() -> None:
    # Dir(α) over 4 clients has a standard deviation of about √(3/16 / (4α)), 0.2 % here: 250 ± 2 of every class.
    data = dataset(torch.arange(2).repeat_interleave(1000), 2)

    holdings = Dirichlet(1e4, 1).divide(data, torch.arange(2000), 4, Seed(0))

    first_class = [int((data.labels[holdings[client]] == 0).sum()) for client in range(4)]
    assert all(abs(count - 250) < 15 for count in first_class)


@quick
@given(clients=st.integers(2, 12), alpha=st.floats(0.05, 5), seed=st.integers(0, 999))
def test_dirichlet_gives_no_more_to_whoever_has_an_even_share(clients: int, alpha: float, seed: int) -> None:
    # Classes are dealt in order. The last client gets what rounding leaves over, up to one picture of each.
    data = random_data(300, 5, seed)

    holdings = Dirichlet(alpha, 1).divide(data, torch.arange(300), clients, Seed(seed))

    of_class = np.stack([np.bincount(data.labels[holdings[c]].numpy(), minlength=5) for c in range(clients)])
    before = np.cumsum(of_class, axis=1) - of_class
    more = np.where(before >= 300 / clients, of_class, 0)
    assert more[:-1].max() == 0  # a repair does not change that: it gives to those who have nothing
    assert more[-1].max() <= 1


def test_the_repair_moves_as_few_pictures_as_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_data(200, 4)
    unrepaired: list[np.ndarray] = []
    repair = Dirichlet._top_up

    def spy(self: Dirichlet, owners: np.ndarray, *rest: object) -> np.ndarray:
        unrepaired.append(owners.copy())
        return repair(self, owners, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Dirichlet, "_top_up", spy)
    monkeypatch.setattr(Dirichlet, "ATTEMPTS", 2)

    holdings = Dirichlet(0.05, 9).divide(data, torch.arange(200), 20, Seed(0))

    assert len(unrepaired) == 1
    before = np.bincount(unrepaired[0], minlength=20)
    after = holdings.counts.numpy()
    owners = np.empty(200, dtype=np.int64)
    for client in range(20):
        owners[holdings[client].numpy()] = client
    lacking = np.maximum(9 - before, 0)
    assert lacking.sum() > 0  # there was something to repair
    assert (owners != unrepaired[0]).sum() == lacking.sum()
    np.testing.assert_array_equal(after[before < 9], 9)
    assert (after[before >= 9] <= before[before >= 9]).all()
    assert after.min() == 9
    assert_divides(holdings, torch.arange(200))


def test_the_repair_can_level_everybody() -> None:
    # 10 pictures for each of 30 clients of 300: only the even division is left.
    holdings = Dirichlet(0.1, 10).divide(random_data(300, 5), torch.arange(300), 30, Seed(0))

    assert holdings.counts.tolist() == [10] * 30
    assert_divides(holdings, torch.arange(300))


def test_a_minimum_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        Dirichlet(0.3, 11).divide(random_data(109, 5), torch.arange(109), 10, Seed(0))

    assert str(caught.value) == (
        "data.partition.minimum = 11 pictures for each of 10 clients is more than the 109 unlabeled pictures allow"
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dirichlet(alpha=0.0), "alpha must be above 0, not 0.0"),
        (lambda: Dirichlet(alpha=-1.0), "alpha must be above 0, not -1.0"),
        (lambda: Dirichlet(alpha=float("nan")), "alpha must be above 0, not nan"),
        (lambda: Dirichlet(minimum=0), "minimum must be at least 1, not 0"),
    ],
)
def test_settings_of_dirichlet_are_checked(build: Callable[[], Dirichlet], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        build()


# site


def test_everyone_keeps_what_is_theirs() -> None:
    site_of = torch.tensor([UNKNOWN, 2, 0, 0, UNKNOWN, 1, 2, 2])
    data = dataset(torch.full((8,), UNKNOWN), 3, sites=3, site_of=site_of)

    holdings = BySite().divide(data, torch.tensor([1, 2, 3, 5, 6, 7]), 3, Seed(0))

    assert [holdings[client].tolist() for client in range(3)] == [[2, 3], [5], [1, 6, 7]]


@quick
@given(sites=st.integers(1, 30), pictures=st.integers(1, 300), seed=st.integers(0, 99))
def test_sites_lose_and_share_nothing(sites: int, pictures: int, seed: int) -> None:
    site_of = torch.randint(-1, sites, (pictures,), generator=torch.Generator().manual_seed(seed))
    positions = torch.nonzero(site_of != UNKNOWN).flatten()
    data = dataset(torch.full((pictures,), UNKNOWN), 3, sites, site_of)

    holdings = BySite().divide(data, positions, sites, Seed(seed))

    assert_divides(holdings, positions)
    assert all((site_of[holdings[site]] == site).all() for site in range(sites))


def test_data_without_sites_cannot_be_divided_by_site() -> None:
    with pytest.raises(UserError) as caught:
        BySite().divide(random_data(10, 2), torch.arange(10), 2, Seed(0))

    expected = 'data.partition.name = "site" needs data that come by site, such as folders clients/<site>/'
    assert str(caught.value) == expected


def test_as_many_clients_as_sites() -> None:
    data = dataset(torch.zeros(4, dtype=torch.int64), 1, sites=2, site_of=torch.tensor([0, 1, 0, 1]))

    with pytest.raises(UserError) as caught:
        BySite().divide(data, torch.arange(4), 3, Seed(0))

    assert str(caught.value) == "data.clients = 3, but the data come from 2 sites: leave data.clients out"


# many clients


@pytest.mark.parametrize(
    ("partition", "pictures"),
    [(Iid(), 50_000), (Classes(2), 50_000), (Dirichlet(0.3, 2), 50_000), (BySite(), 50_000)],
    ids=str,
)
def test_ten_thousand_clients(partition: Partition, pictures: int) -> None:
    labels = random_data(pictures, 10).labels
    generator = torch.Generator().manual_seed(1)
    data = dataset(labels, 10, 10_000, torch.randint(10_000, (pictures,), generator=generator))

    holdings = partition.divide(data, torch.arange(pictures), 10_000, Seed(0))

    assert len(holdings) == 10_000
    assert torch.equal(holdings.order.sort().values, torch.arange(pictures))
    assert int(holdings.counts.sum()) == pictures
    if not isinstance(partition, BySite):
        assert int(holdings.counts.min()) >= 2
    if isinstance(partition, Iid):
        assert holdings.counts.unique().tolist() == [5]
    if isinstance(partition, Classes):
        owners = torch.arange(10_000).repeat_interleave(holdings.counts)
        pairs = torch.unique(owners * 10 + labels[holdings.order])
        assert int(torch.bincount(pairs // 10).max()) == 2


def test_a_long_table_lies_in_a_file_as_long_as_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MANY", 6)
    short = Holdings(torch.tensor([4, 1, 0]), torch.tensor([0, 2, 3]))
    assert short.spilled() is short
    assert short.order.dtype == torch.int64
    table = Holdings(torch.tensor([5, 7, 0, 1, 2, 9]), torch.tensor([0, 2, 2, 6])).spilled()
    place = place_of(table.order)
    assert place is not None
    assert Path(place.path).read_bytes() == np.array([5, 7, 0, 1, 2, 9], dtype=np.int32).tobytes()
    assert [table[client].tolist() for client in range(3)] == [[5, 7], [], [0, 1, 2, 9]]
    assert table[0].dtype == torch.int64  # as an index should be
    assert table.counts.tolist() == [2, 0, 4]
    del table
    gc.collect()
    assert not Path(place.path).exists()
