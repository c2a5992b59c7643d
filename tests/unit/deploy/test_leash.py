"""A trainer that takes more than its site's policy allows is ended, and the hub learns which limit it met."""

import os
import threading
import time
from pathlib import Path

import pytest
import torch

from semifl.data.dataset import Facts
from semifl.deploy.leash import memory_of, on_a_leash
from semifl.deploy.order import refuse_memory
from semifl.deploy.policy import Limits, Policy, read_policy
from semifl.errors import RunStopped, UserError
from semifl.federation.workers import Workers

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


def greedy(place: object, common: object, item: int) -> int:
    """Takes `item` bytes, really, and holds them for a while."""
    taken = torch.ones(item // 4)
    time.sleep(3)
    return int(taken.numel())


def idle(place: object, common: object, item: float) -> float:
    time.sleep(item)
    return item


@needs_proc
def test_memory_beyond_the_limit_ends_the_trainer() -> None:
    trainer = Workers(None, 1, max_losses=0)
    try:
        with on_a_leash(trainer, Limits(most_gigabytes=1.0)) as leash, pytest.raises(RunStopped):
            next(trainer.run(greedy, None, [1_500_000_000]))
        assert (
            leash.broken == "its training took more memory than the 1 GB that its policy allows (limits.most_gigabytes)"
        )
    finally:
        trainer.close()


def test_what_stays_within_the_limits_is_left_alone() -> None:
    trainer = Workers(None, 1, max_losses=0)
    try:
        with on_a_leash(trainer, Limits()) as leash:
            assert next(trainer.run(idle, None, [0.5])) == 0.5
        assert leash.broken == ""
    finally:
        trainer.close()


def test_time_beyond_the_limit_ends_the_trainer() -> None:
    limits = Limits()
    object.__setattr__(limits, "most_minutes", 0.5 / 60)  # the least that a policy can say is a minute
    trainer = Workers(None, 1, max_losses=0)
    try:
        with on_a_leash(trainer, limits) as leash, pytest.raises(RunStopped):
            next(trainer.run(idle, None, [20.0]))
        assert "limits.most_minutes" in leash.broken
    finally:
        trainer.close()


@needs_proc
def test_memory_is_that_of_the_process() -> None:
    before = memory_of(os.getpid())
    block = torch.ones(50_000_000)
    assert memory_of(os.getpid()) - before == pytest.approx(block.numel() * 4, rel=0.1)
    assert memory_of(2**22 + 1) == 0  # no such process


def test_an_order_for_more_memory_is_refused_by_name(tmp_path) -> None:
    facts = Facts(("a", "b"), (0.5,), (0.2,), True, 1, 100)
    policy = Policy(limits=Limits(most_gigabytes=1.0))
    # Four copies of four bytes for each of 60 million parameters are 0.96 GB, 4,000 pictures of 10,000 bytes 0.04.
    refuse_memory(60_000_000, facts, 4_000, policy)
    with pytest.raises(UserError, match=r"more memory than the 1 GB .* allows \(limits\.most_gigabytes\)$"):
        refuse_memory(60_000_000, facts, 4_500, policy)
    (tmp_path / "policy.toml").write_text("[limits]\nmost_gigabytes = 2.5\n")
    assert read_policy(tmp_path / "policy.toml").limits.most_gigabytes == 2.5


@needs_proc
def test_a_trainer_in_this_process_is_watched_as_this_process() -> None:
    """As under Flower, where there is no other to end."""

    class InThisProcess:
        def __init__(self) -> None:
            self.killed = threading.Event()

        def pids(self) -> list[int]:
            return []

        def kill(self) -> None:
            self.killed.set()

    limits, trainer = Limits(), InThisProcess()
    object.__setattr__(limits, "most_gigabytes", memory_of(os.getpid()) / 2e9)  # half of what this process has
    with on_a_leash(trainer, limits) as leash:  # type: ignore[arg-type]
        assert trainer.killed.wait(10)
    assert "limits.most_gigabytes" in leash.broken
