"""Runs for MLflow: a server that MLFLOW_TRACKING_URI names, or else files in ./mlruns."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from semifl.running.trackers import Settings, Tracker, keep_id, known_id
from semifl.toml import scalar

EXPERIMENT = "semifl"
LONGEST = 500  # letters of a value that MLflow takes
AT_ONCE = 100  # of what MLflow takes in one message


class MlflowRun:
    def __init__(self, client: Any, run: str) -> None:
        self._client = client
        self._run = run

    def write(self, numbers: dict[str, float], round: int) -> None:
        now = int(1000 * time.time())
        metrics = [Metric(name, float(value), now, round) for name, value in numbers.items()]
        for first in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[first : first + AT_ONCE])

    def close(self) -> None:
        self._client.set_terminated(self._run)


def open_tracker(directory: Path, settings: Settings) -> Tracker:
    """The run that MLflow knows already, if this one goes on; numbers told twice are the same."""
    address = os.environ.get("MLFLOW_TRACKING_URI")
    if not address:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        address = Path("mlruns").absolute().as_uri()
    client = MlflowClient(tracking_uri=address)
    run, told = known_id(directory, "mlflow")
    if told:
        client.update_run(run, status="RUNNING")
        return MlflowRun(client, run)
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    number = experiment.experiment_id if experiment else client.create_experiment(name)
    run = client.create_run(number, run_name=directory.name).info.run_id
    keep_id(directory, "mlflow", run)
    params = [Param(key, scalar(value)[:LONGEST]) for key, value in settings.items()]
    for first in range(0, len(params), AT_ONCE):
        client.log_batch(run, params=params[first : first + AT_ONCE])
    return MlflowRun(client, run)
