"""An operator's side of a run: which ends of jobs count as failures, and who is let in again when."""

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from semifl.deploy.flare import session
from semifl.deploy.flare import supervisor as module
from semifl.deploy.flare.session import HubLine, _is_open
from semifl.deploy.flare.supervisor import Supervisor
from semifl.errors import RunStopped


class Mirrored:
    """As many rounds as each job brings."""

    known = 0

    def result(self):
        return {"rounds": self.known}


@pytest.fixture
def naps(monkeypatch):
    taken = []
    monkeypatch.setattr(module.time, "sleep", taken.append)
    return taken


def seen_through(jobs):
    """What becomes of a run whose jobs end so: a state, and how many rounds are known then."""
    said, script = [], iter(jobs)
    supervisor = Supervisor(None, "run", {}, Mirrored(), said.append)

    def one_job():
        state, supervisor.mirror.known = next(script)
        return {"state": state, "reason": "round 3: nobody" if state == "waiting" else ""}

    supervisor._one_job = one_job
    return supervisor._see_through()


def test_a_round_waits_for_silent_sites_longer_and_longer_and_never_gives_up(naps):
    result = seen_through([("paused", 2), *[("waiting", 2)] * 8, ("waiting", 3), ("waiting", 3), ("finished", 9)])
    assert result == {"rounds": 9}
    # Ten seconds, doubled each time, five minutes at the most; a new round begins it anew.
    assert naps == [20, 40, 80, 160, 300, 300, 300, 300, 10, 20]


def test_jobs_that_end_because_a_site_came_back_are_no_failures(naps):
    assert seen_through([*[("paused", 0)] * 30, ("finished", 1)]) == {"rounds": 1}
    assert naps == []


def test_five_jobs_in_a_row_that_fail_end_the_run(naps):
    with pytest.raises(RunStopped, match="5 jobs in a row"):
        seen_through([("ended", 1), *[("lost", 1), ("waiting", 1)] * 5])


def test_a_site_that_keeps_leaving_is_let_in_less_and_less_often():
    supervisor = Supervisor(None, "run", {}, Mirrored(), print)
    now, let_in = 1000.0, []
    for _ in range(1500):  # it is back every five seconds, for two hours
        if supervisor._may_return("clinic", now):
            let_in.append(now - 1000.0)
        now += 5.0
    # After 30, 60, 120 … seconds, an hour at the most.
    assert let_in == [0.0, 30.0, 90.0, 210.0, 450.0, 930.0, 1890.0, 3810.0, 7410.0]
    assert supervisor._may_return("another", now)
    later = now + 11 * 3600.0  # more than ten times as long as it had to wait
    assert supervisor._may_return("clinic", later)
    assert not supervisor._may_return("clinic", later + 25.0)
    assert supervisor._may_return("clinic", later + 30.0)


@pytest.mark.parametrize(
    ("job", "is_open"),
    [
        ({"status": "SUBMITTED", "submit_time": 50.0}, True),  # queued before the hub was restarted at 100
        (
            {"status": "RUNNING", "submit_time": 50.0, "start_time": "1970-01-01T00:01:50+00:00"},
            True,
        ),  # and begun since
        ({"status": "RUNNING", "submit_time": 50.0, "start_time": "1970-01-01T00:01:30+00:00"}, False),
        ({"status": "DISPATCHED", "submit_time": 150.0, "start_time": ""}, True),
        ({"status": "RUNNING", "submit_time": 150.0, "start_time": "1970-01-01T00:02:35+00:00"}, True),
        ({"status": "FINISHED:COMPLETED", "submit_time": 150.0}, False),
    ],
)
def test_a_restarted_hub_knows_which_of_its_jobs_it_runs(job, is_open):
    assert _is_open(job, 100.0, 0.0) == is_open


def test_a_job_that_is_on_its_way_is_forgotten_only_when_it_stays_so(monkeypatch):
    """Queued at 50, the hub was restarted at 100; a dispatched job tells no start, whoever began it."""
    clock = [1000.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: clock[0])
    line = HubLine.__new__(HubLine)
    line._on_its_way = {}
    job = {"job_id": "a", "status": "DISPATCHED", "submit_time": 50.0, "start_time": ""}

    def is_open(job):
        return _is_open(job, 100.0, line._waited(job))

    assert is_open(job)
    clock[0] += 59.0
    assert is_open(job)
    assert is_open({**job, "status": "RUNNING", "start_time": "1970-01-01T00:01:50+00:00"})
    assert is_open({**job, "job_id": "b"})  # seen for the first time now
    clock[0] += 2.0
    assert not is_open(job)
    assert is_open({**job, "job_id": "b"})
