"""Methods that talk to clients in their own way give the same bits here and in worker processes."""

import json
from pathlib import Path

import pytest

from semifl.configuration.config import decode
from semifl.running.loop import start
from toys import toy_table


@pytest.mark.parametrize(
    "method",
    [
        {"name": "fedsgd_fixmatch", "laps": 2, "threshold": 0.3},
        {"name": "fedrgd", "iterations": 2, "threshold": 0.3},
        {"name": "balanced", "warmup_steps": 4, "server_steps": 2},
    ],
)
def test_workers_leave_no_trace(method: dict, tmp_path: Path) -> None:
    table = {**toy_table(), "rounds": 2, "labels_only": False}
    table["method"] = {"activity_rate": 0.5, "server_batch": 4, "client_batch": 4, **method}
    digests = []
    for workers in (1, 2):
        start(decode(table), tmp_path / str(workers), workers)
        lines = (tmp_path / str(workers) / "rounds.jsonl").read_text().splitlines()
        digests.append([json.loads(line)["digest"] for line in lines])
    assert digests[0] == digests[1]
