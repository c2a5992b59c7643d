"""Pools: the same results in the same order wherever jobs run, and whatever happens to the workers."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import jobs
from semifl.errors import RunStopped
from semifl.federation.workers import AHEAD, Here, JobFailed, Pool, Workers, must, threads

PLACE = {"offset": torch.tensor([0.5, -0.5])}
HANG = 20  # seconds after which a pool that should answer at once is called stuck


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int]) -> list[int]:
    """Those of these processes that are still there after a good while."""
    for _ in range(100 * HANG):
        if not any(alive(pid) for pid in pids):
            return []
        time.sleep(0.01)
    return [pid for pid in pids if alive(pid)]


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    """A pool that most tests share, which is a test in itself: each leaves it usable."""
    pool = Workers(PLACE, 2, max_losses=100)
    yield pool
    pool.close()


def check_usable(pool: Pool) -> None:
    assert list(pool.run(jobs.fails_at, -1, range(5))) == [0, 10, 20, 30, 40]


def check_scaled(pool: Pool) -> None:
    items = [(f"item {n}", torch.arange(2.0) + n) for n in range(12)]

    # All results are kept while later ones arrive in the same shared memory.
    results = list(pool.run(jobs.scaled, {"factor": torch.tensor(3.0)}, items))

    assert [result["name"] for result in results] == [f"item {n}" for n in range(12)]
    assert [result["values"].tolist() for result in results] == [[3 * n + 0.5, 3 * (n + 1) - 0.5] for n in range(12)]
    assert [result["same"].tolist() for result in results] == [[float(n), float(n + 1)] for n in range(12)]


# results


def test_results_in_this_process() -> None:
    check_scaled(Here(PLACE))


def test_results_of_two_workers(two: Workers) -> None:
    check_scaled(two)


@pytest.mark.parametrize("count", [1, 3])
def test_results_of_other_numbers_of_workers(count: int) -> None:
    pool = Workers(PLACE, count)
    try:
        check_scaled(pool)
    finally:
        pool.close()


def test_results_come_in_order_though_the_first_is_slow(two: Workers) -> None:
    assert list(two.run(jobs.slow_first, 0.3, range(20))) == list(range(20))


@pytest.mark.parametrize("items", [[], [7], range(1, 4)])
def test_few_items_or_none(two: Workers, items: Sequence[int]) -> None:
    assert list(two.run(jobs.fails_at, 0, items)) == [10 * item for item in items]


def test_common_messages_of_any_size_one_after_the_other(two: Workers) -> None:
    for size in (1, 100_000, 2, 0, 300_000):
        factor = torch.full((size,), 2.0)
        results = list(two.run(jobs.scaled, {"factor": factor[:1].sum()}, [("x", torch.ones(2))] * 3))
        expected = 2.0 if size else 0.0
        assert [result["values"].tolist() for result in results] == [[expected + 0.5, expected - 0.5]] * 3


def test_items_and_results_may_grow(two: Workers) -> None:
    sizes = [1, 10, 100_000, 3, 200_000, 0, 50]
    items = [(str(size), torch.arange(float(size))) for size in sizes for _ in range(3)]

    results = list(two.run(jobs.echo, None, items))

    assert [len(values) for _, values in results] == [size for size in sizes for _ in range(3)]
    assert all(torch.equal(result[1], item[1]) for result, item in zip(results, items, strict=True))


def test_a_slow_item_does_not_let_results_pile_up(two: Workers) -> None:
    class Watched(Sequence[int]):
        asked: list[int] = []  # noqa: RUF012

        def __len__(self) -> int:
            return 100

        def __getitem__(self, at: Any) -> Any:
            self.asked.append(at)
            return at

    items = Watched()
    results = two.run(jobs.slow_first, 0.3, items)

    first = next(results)

    assert first == 0
    assert max(items.asked) < 2 * AHEAD * 2  # two workers
    assert list(results) == list(range(1, 100))


# threads


def test_every_job_has_one_thread(two: Workers) -> None:
    before = torch.get_num_threads()
    with threads(2):
        here = list(Here(None).run(jobs.threads_and_pid, None, [0, 1]))
        after_here = torch.get_num_threads()
        there = list(two.run(jobs.threads_and_pid, None, range(8)))

    assert [count for count, _ in [*here, *there]] == [1] * 10
    assert after_here == 2
    assert torch.get_num_threads() == before
    assert {pid for _, pid in here} == {os.getpid()}
    assert os.getpid() not in {pid for _, pid in there}


def test_threads_are_restored_after_an_error() -> None:
    before = torch.get_num_threads()

    with pytest.raises(ArithmeticError), threads(before + 1):
        raise ArithmeticError

    assert torch.get_num_threads() == before


# jobs that fail


def check_failure(pool: Pool) -> None:
    results = list(pool.run(jobs.fails_at, 3, range(10)))

    failure = results.pop(3)
    assert results == [0, 10, 20, 40, 50, 60, 70, 80, 90]  # the others go on
    assert isinstance(failure, JobFailed)
    assert failure.reason == "ValueError: item 3 is bad (tests/jobs.py:30)"
    assert "fails_at" in failure.trace  # for whoever wrote the job
    check_usable(pool)


def test_jobs_that_must_not_fail_raise_at_their_turn() -> None:
    results = must(Here(PLACE).run(jobs.fails_at, 3, range(10)))
    assert [next(results) for _ in range(3)] == [0, 10, 20]
    with pytest.raises(RunStopped, match="item 3 is bad"):
        next(results)


def test_an_item_that_fails_is_reported_at_its_turn_here() -> None:
    check_failure(Here(PLACE))


def test_an_item_that_fails_is_reported_at_its_turn_by_workers(two: Workers) -> None:
    check_failure(two)


def test_a_result_that_cannot_travel_is_a_failure(two: Workers) -> None:
    with pytest.raises(RunStopped, match="pickle"):
        list(must(two.run(jobs.unpicklable, None, [1, 2])))

    check_usable(two)


def test_a_job_that_cannot_travel_is_an_error_at_once(two: Workers) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        list(two.run(lambda place, common, item: item, None, [1, 2]))

    check_usable(two)


def test_an_item_that_cannot_travel_is_an_error_and_no_standstill() -> None:
    pool = Workers(None, 1)
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            list(pool.run(jobs.fails_at, -1, [1, lambda: None, 3]))
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=5)
    pool.close()

    assert len(outcome) == 1, "the pool waits for an answer to a job that it never sent"
    assert isinstance(outcome[0], (pickle.PicklingError, AttributeError))


# iterations that nobody finishes


def test_an_abandoned_iteration_leaves_the_pool_usable(two: Workers) -> None:
    results = two.run(jobs.fails_at, -1, range(50))
    assert next(results) == 0

    results.close()  # type: ignore[attr-defined]

    check_usable(two)


def test_an_iteration_nobody_began_leaves_the_pool_usable(two: Workers) -> None:
    two.run(jobs.fails_at, -1, range(50))

    check_usable(two)


# workers that die


def test_a_killed_worker_is_replaced_and_its_jobs_are_repeated(tmp_path: Path) -> None:
    codes: list[int | None] = []
    pool = Workers(None, 2, max_losses=3, on_loss=codes.append)
    try:
        results = list(pool.run(jobs.dies_once, str(tmp_path), range(9)))  # items 0, 3 and 6 kill their worker once
        check_usable(pool)
    finally:
        pool.close()

    assert [result.unique().tolist() for result in results] == [[float(n)] for n in range(9)]
    assert codes == [-signal.SIGKILL] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "3", "6"]


def test_a_worker_killed_between_two_runs_is_replaced(two: Workers) -> None:
    pids = {pid for _, pid in two.run(jobs.threads_and_pid, None, range(8))}
    os.kill(min(pids), signal.SIGKILL)
    assert wait_until_gone([min(pids)]) == []

    check_scaled(two)
    assert min(pids) not in {pid for _, pid in two.run(jobs.threads_and_pid, None, range(8))}


@pytest.mark.parametrize("items", [2, 3])  # with or without a job in the pipe that it never read
def test_a_worker_killed_while_it_answers_is_replaced(items: int) -> None:
    pool = Workers(None, 1)
    try:
        results = pool.run(jobs.talkative, 8_000_000, range(items))
        pid, first = next(results)
        time.sleep(0.5)  # let it fill the pipe with half of the second answer
        os.kill(pid, signal.SIGKILL)
        rest = [text for _, text in results]
    finally:
        pool.close()

    assert [text[:1] for text in (first, *rest)] == ["0", "1", "2"][:items]
    assert {len(text) for text in (first, *rest)} == {8_000_000}


def test_a_worker_killed_after_it_answered_is_replaced_if_its_memory_went_with_it() -> None:
    pool = Workers(None, 1)
    try:
        results = pool.run(jobs.pid_and_ones, None, [10, 100_000])
        pid, first = next(results)
        time.sleep(0.5)  # let it put the second answer into the pipe
        os.kill(pid, signal.SIGKILL)
        assert wait_until_gone([pid]) == []
        rest = [ones for _, ones in results]
    finally:
        pool.close()

    assert [int(ones.sum()) for ones in (first, *rest)] == [10, 100_000]


def test_a_job_that_always_kills_its_worker_ends_the_run() -> None:
    codes: list[int | None] = []
    pool = Workers(None, 1, max_losses=2, on_loss=codes.append)
    try:
        with pytest.raises(RunStopped, match=r"worker processes keep dying \(the last with exit code -9\)"):
            list(pool.run(jobs.dies, None, [1, 2, 3]))
    finally:
        pool.close()

    assert codes == [-signal.SIGKILL] * 3  # two allowed and the one too many


# the end


def test_closing_ends_the_workers() -> None:
    pool = Workers(None, 2)
    pids = [pid for _, pid in pool.run(jobs.threads_and_pid, None, range(8))]

    pool.close()

    assert wait_until_gone(pids) == []


PARENT = """
import sys
sys.path.insert(0, sys.argv[1])
import jobs
from semifl.errors import RunStopped
from semifl.federation.workers import Workers
if __name__ == "__main__":
    list(Workers(None, 2).run(jobs.forever, sys.argv[2], [0, 1]))
"""


def test_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    program, started = tmp_path / "parent.py", tmp_path / "started"
    program.write_text(PARENT)
    started.mkdir()
    tests = str(Path(jobs.__file__).parent)

    parent = subprocess.Popen([sys.executable, str(program), tests, str(started)])
    try:
        while len(list(started.iterdir())) < 2:  # until both workers are in the middle of a job
            assert parent.poll() is None
            time.sleep(0.02)
    finally:
        parent.kill()
        parent.wait()

    orphans = wait_until_gone([int(path.name) for path in started.iterdir()])
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    assert orphans == []
