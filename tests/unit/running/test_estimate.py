"""What `semifl check` says of a run before it begins."""

from dataclasses import replace

import pytest

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.running import estimate as under_test
from semifl.running.estimate import estimate
from toys import toy_table


@pytest.mark.parametrize("warmup_steps", [0, 400])
def test_work_that_only_the_first_round_has_is_not_counted_for_all(
    warmup_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six labels in batches of two are three steps an epoch; ten steps are four epochs, so twelve steps."""
    table = toy_table()
    table["method"] = {
        "name": "balanced",
        "server_batch": 2,
        "server_epochs": 1,
        "server_steps": 10,
        "warmup_steps": warmup_steps,
    }
    seen = []
    timed = under_test._timed_fit

    def counting(network, job):
        batches = list(job.batches)
        seen.append(len(batches))
        return timed(network, replace(job, batches=batches))

    monkeypatch.setattr(under_test, "_timed_fit", counting)
    estimate(build_world(decode(table)), 1, "cpu")
    assert seen[0] == 12
