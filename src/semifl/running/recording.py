"""What is written down of a round: the tally of what happened, as one record; and where a run was started."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import cast

import numpy
import torch

from semifl import __version__
from semifl.configuration.code import own_code
from semifl.federation.signals import recorded
from semifl.federation.tally import Tally
from semifl.federation.world import Round
from semifl.learning.evaluation import Score
from semifl.learning.metrics import EVEN
from semifl.provenance import package_commit, package_digest
from semifl.records.metrics import METRICS
from semifl.records.record import ABSENT, JSON, Measured, SideTerms
from semifl.toml import Table


def measure(t: Round, tally: Tally, update_norm: float, positive: int) -> Measured:
    """All that a round's record says of what happened, but for what is then made of it."""
    replies, score, validation = tally.replies, tally.score, tally.validation
    means = _mean_terms(tally)
    absent: dict[str, list[int]] = {name: [] for name in ABSENT}
    for reply in replies:
        if reply.outcome in absent:
            absent[reply.outcome].append(reply.client)
    measured: JSON = {
        "round": t.index,
        "lr": tally.lr if tally.lr is not None else next((r.facts["lr"] for r in replies if "lr" in r.facts), None),
        **(scores(score, positive, validation) if score else {}),
        "loss": _finite(score.loss) if score else None,
        **({f"validation_{name}": getattr(validation, name) for name in METRICS} if validation else {}),
        "server_loss": _finite(tally.server_terms.get("loss")),
        "client_loss": _finite(means.get("loss")),
        "cohort": [reply.client for reply in replies],
        **absent,
        **recorded([reply.facts for reply in replies]),
        "agreement": means.get("agreement"),
        "terms": _terms(tally, means),
        "update_norm": _finite(update_norm),
        "bytes_up": tally.bytes_up,
        "bytes_down": tally.bytes_down,
    }
    return cast(Measured, measured)


def scores(test: Score, positive: int, held_out: Score | None) -> dict[str, float]:
    """How good a model is on the test pictures; of two classes also at the threshold that labels held out call for."""
    found = {name: getattr(test, name) for name in (*METRICS, "calibration_error")}
    if test.probabilities.shape[1] != 2:
        return found
    threshold = held_out.best_threshold(positive) if held_out else EVEN
    decision = test.decision(positive, threshold)
    return found | {f"{'decision_' * (name == 'threshold')}{name}": each for name, each in decision._asdict().items()}


def _terms(tally: Tally, client_means: dict[str, float | None]) -> SideTerms:
    """Return every named loss term: the server's, and the mean over the clients."""
    return {
        "server": {name: _finite(value) for name, value in tally.server_terms.items()},
        "clients": {name: _finite(value) for name, value in client_means.items()},
    }


def _mean_terms(tally: Tally) -> dict[str, float | None]:
    """Return the mean over clients of each number that their training measured, weighted by examples."""
    sums, examples = dict[str, float](), dict[str, int]()
    for update in (reply.update for reply in tally.replies if reply.update):
        for name, value in update.terms.items():
            sums[name] = sums.get(name, 0) + value * update.examples
            examples[name] = examples.get(name, 0) + update.examples
    return {name: total / examples[name] if examples[name] else None for name, total in sums.items()}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def environment(config: Table) -> JSON:
    """Return where, how and with which code a run was started, so that a number can be traced."""
    commit, modified = package_commit() or (None, None)
    return {
        "semifl": __version__,
        "commit": commit,
        "modified": modified,
        "digest": package_digest(),
        "own_code": {name: code._asdict() for name, code in own_code(config).items()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
