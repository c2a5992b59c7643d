"""The ways to run jobs, by name. Another one is a file with a Pool, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from semifl.errors import UserError
from semifl.federation.cluster.address import Cluster
from semifl.federation.sites import Place
from semifl.federation.workers import Here, Log, Pool, Workers


def _here(place: Place, workers: int | Cluster, log: Log) -> Pool:
    return Here(place)


def _processes(place: Place, workers: int | Cluster, log: Log) -> Pool:
    assert isinstance(workers, int)
    place.share()
    return Workers(place, workers, on_loss=lambda code: log.event("worker lost", exit_code=code))


def _cluster(place: Place, workers: int | Cluster, log: Log) -> Pool:
    assert isinstance(workers, Cluster)
    with needing_dask():
        from semifl.federation.cluster.pool import ClusterPool
    return ClusterPool(place.for_other_machines(), workers, log)


@contextmanager
def needing_dask() -> Iterator[None]:
    """Around an import of what uses the engine, which is an extra."""
    try:
        yield
    except ImportError as error:
        raise UserError("--on needs an extra package: pip install 'semifl[dask]'") from error


def check_reachable(workers: int | Cluster) -> None:
    """A cluster that is not there is told before a run begins."""
    if isinstance(workers, Cluster):
        with needing_dask():
            from semifl.federation.cluster.team import connect
        connect(workers).close()


POOLS: dict[str, Callable[[Place, int | Cluster, Log], Pool]] = {
    "here": _here,
    "processes": _processes,
    "cluster": _cluster,
}


def open_pool(place: Place, workers: int | Cluster, log: Log) -> Pool:
    """For so many processes here, or the workers of a cluster."""
    name = "cluster" if isinstance(workers, Cluster) else "processes" if workers > 1 else "here"
    return POOLS[name](place, workers, log)
