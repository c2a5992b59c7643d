"""train and load: from data, a model and a method to a Result, by the same loop that `semifl run` goes through."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from torch import nn

from semifl import registry
from semifl.api.data import FederatedData
from semifl.api.models import Model, choose
from semifl.api.processes import why_not
from semifl.api.result import Classifier, Result
from semifl.api.watching import OnRound, watching
from semifl.configuration.build import build_model
from semifl.configuration.config import METHODS, Chosen, Config, Run, Stop, WarmStart, decode
from semifl.configuration.health import Health
from semifl.data.dataset import Facts
from semifl.errors import RunStopped, UserError
from semifl.federation.world import Method
from semifl.fields import Checked, Count
from semifl.learning.devices import find_device
from semifl.learning.precision import Wanted
from semifl.plain import plain
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric
from semifl.report.curves import draw_curves
from semifl.report.page import write_report
from semifl.running.loop import start_or_resume
from semifl.toml import Table
from semifl.trained.modelfile import load_model


def train(
    method: Method | str = "semifl",
    *,
    model: Model,
    on: FederatedData,
    rounds: int = 100,
    seed: int = 0,
    workers: int = 1,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = True,
    on_round: OnRound | None = None,
    progress: bool = True,
    metric: Metric = "accuracy",
    test_every: int = 1,
    positive: str = "",
    start: Literal["model", "labels"] = "model",
    labels_only: bool = True,
    guard: bool = False,
    threads: int = 0,
    precision: Wanted = "fp32",
    stack: int = 1,
    compile: bool = False,
    minutes: float = 0.0,
    patience: int = 0,
    max_failures: int = 0,
    health: Health | None = None,
) -> Result:
    """Train a classifier from the server's labels and the clients' unlabeled pictures.

    method        SemiFL(threshold=0.9), any other method of `semifl.methods`, or a name: "fedmatch"
    model         a torch module, which keeps the weights it has; a function or class that builds one and may ask for
                  `channels`, `size` and `classes`; one of `semifl.models`; a name: "wide_resnet", "package.module:Net"
    on            who has which pictures
    workers       processes that train clients; the result does not depend on their number
    device        auto, cpu, cuda or mps
    out           the run directory; by default runs/<method>-seed-<seed>, or the next free name
    resume        whether an `out` that holds a run, made from exactly the same things, is continued; another run is
                  never touched
    on_round      called with each round's record, a line of rounds.jsonl; if it returns False (or raises
                  StopIteration) the run ends in order, with its final model
    progress      show how it goes, in a terminal or a notebook
    metric        what decides which model is better: accuracy, balanced_accuracy, auc or f1
    test_every    rounds; the first, the best by labels held out and the final model are tested in any case
    positive      of two classes the one whose finding counts as positive; by default the second
    start         what the rounds begin with: the model as it is, or once the labels alone have trained it
    labels_only   also train the same model without clients, to see what they bring
    guard         judge the clients' work by held-out labels and go back where it does harm; needs on.validation
    threads       of the server's own training, part of the result's bits; 0 chooses 1 or 2 by the size of a step
    precision     of the network's passes: fp32, bf16, or auto, which is bf16 where the hardware is fast at it
    stack         clients that one process trains side by side, for a GPU; part of the result's last bits
    compile       the networks by torch.compile, which needs a compiler; part of the result's last bits
    minutes       end after so long; 0: never
    patience      end after so many rounds without a better metric on the validation part; 0: never
    max_failures  clients whose code may raise before the run stops
    health        what to do about signs that a run goes astray
    """
    _check_things(on, health, on_round, out)
    chosen_model, model_keys = choose(model)
    try:
        how = _How(workers, device, resume, progress)
        stop = Stop(minutes=minutes, patience=patience)
        run = Run(
            seed=seed,
            rounds=rounds,
            threads=threads,
            precision=precision,
            stack=stack,
            compile=compile,
            metric=metric,
            test_every=test_every,
            positive=positive,
            start=start,
            labels_only=labels_only,
            guard=guard,
            max_failures=max_failures,
        )
    except ValueError as error:  # it names the argument itself
        raise UserError(str(error)) from error
    config = Config(
        run=run,
        stop=stop,
        health=health or Health(),
        split=on.split,
        data=on.source,
        model=chosen_model,
        warm_start=WarmStart(),
        method=_choose_method(method),
        views=on.views,
        model_keys=model_keys,
    )
    directory = Path(out) if out is not None else _free_directory(config)
    if not how.resume and (directory / "config.toml").exists():
        raise UserError(f"{directory} already holds a run: pass resume=True to go on with it, or choose another out")
    _run(config, directory, how, on_round)
    return load(directory, model, how.device)


def load(directory: str | Path, model: Model | None = None, device: str = "auto") -> Result:
    """The Result of a finished run; a model that was handed over in Python must be handed over again."""
    run = RunDirectory(Path(directory))
    summary = run.summary()
    if summary is None:
        raise UserError(f"{directory} holds no finished run")
    build = None if model is None else partial(_build, *choose(model))
    trained = load_model(run.model, find_device(device), build)
    classifier = Classifier(trained.network.module, trained.facts).to(trained.network.device)
    return Result(run.path, classifier, summary, run.rounds())


def _build(chosen: Chosen[Any], keys: Table, facts: Facts) -> nn.Module:
    return build_model(chosen.thing, keys, facts, 0, WarmStart())


@dataclass(frozen=True)
class _How(Checked):
    """What a program asks for and no configuration holds, because the result does not depend on it."""

    workers: Count
    device: str
    resume: bool
    progress: bool


def _check_things(on: Any, health: Any, on_round: Any, out: Any) -> None:
    """Before anything is written: what is no plain value has the type that it should."""
    if not isinstance(on, FederatedData):
        raise UserError(f"on must be a FederatedData, not {type(on).__name__}")
    if health is not None and not isinstance(health, Health):
        raise UserError(f"health must be a semifl.Health, not {type(health).__name__}")
    if on_round is not None and not callable(on_round):
        raise UserError(f"on_round must be a function of a round's record, not {type(on_round).__name__}")
    if out is not None and not isinstance(out, (str, PathLike)):
        raise UserError(f"out must be the path of a folder, not {type(out).__name__}")


def _run(config: Config, directory: Path, how: _How, on_round: OnRound | None) -> None:
    workers, device = how.workers, find_device(how.device)
    reason = why_not((config.model.thing, config.views, config.method.thing)) if workers > 1 else ""
    if reason:
        warnings.warn(
            f"one worker instead of {workers}, as the others could not be told what to do: {reason}; "
            "put it into a module of its own and import it",
            stacklevel=3,
        )
        workers = 1
    with watching(how.progress, on_round) as observer:
        try:
            start_or_resume(config, directory, workers, device, observer)
        except RunStopped as error:
            again = f"call train with the same things and out={str(directory)!r} to go on"
            raise RunStopped(f"{error}; every finished round is kept: {again}") from error
    try:
        draw_curves(directory)
        write_report([directory], directory / "report.html")
    except OSError as error:  # a result without its report is still a result
        warnings.warn(f"the report could not be written: {error.strerror}", stacklevel=3)


def _choose_method(method: Method | str) -> Chosen[Method]:
    if isinstance(method, str):
        return decode({"method": {"name": method}}).method
    if not dataclasses.is_dataclass(method) or isinstance(method, type) or not hasattr(method, "round"):
        raise UserError(f"method must be a method such as SemiFL(threshold=0.9), or the name of one, not {method!r}")
    values = {each.name: plain(getattr(method, each.name)) for each in dataclasses.fields(method)}
    return Chosen(registry.name_of(METHODS, method), type(method)(**values))


def _free_directory(config: Config) -> Path:
    """runs/METHOD-seed-N, or the first free name after it: a run is never overwritten."""
    wanted = Path("runs") / f"{config.method.name.rpartition(':')[2]}-seed-{config.run.seed}"
    if not wanted.exists():
        return wanted
    return next(path for number in count(2) if not (path := wanted.with_name(f"{wanted.name}-{number}")).exists())
