"""One measured risk is a cell; cells are computed by worker processes and kept in a file as soon as they are done."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from semifl.durable import replace_text
from semifl.errors import RunStopped
from semifl.randomness import Seed
from semifl.theory.kernel import BoxKernel
from semifl.theory.risk import excess_risk
from semifl.theory.settings import Setting
from semifl.theory.ssl import semi_supervised


@dataclass(frozen=True)
class Repetition:
    """One repetition: so many labels and unlabeled points; without unlabeled points the classifier is supervised."""

    setting: Setting
    labels: int
    unlabeled: int
    repetition: int
    seed: int = 0

    @property
    def key(self) -> str:
        return f"{self.setting.digest}/{self.labels}/{self.unlabeled}/{self.repetition}/{self.seed}"

    def risk(self) -> float:
        """The excess risk of the classifier trained in this repetition."""
        setting, problem = self.setting, self.setting.problem
        address = Seed(self.seed).under("theory", setting.digest, self.labels, self.unlabeled, self.repetition)
        labeled = problem.labeled(self.labels, address.numpy_at("labeled"))
        if self.unlabeled == 0:
            return excess_risk(problem, BoxKernel(*labeled, setting.schedule.supervised_h(self.labels)))
        model = semi_supervised(
            labeled,
            problem.unlabeled(self.unlabeled, address.numpy_at("unlabeled")),
            setting.initial(self.unlabeled),
            problem.augment,
            setting.schedule.delta(self.unlabeled),
            setting.schedule.h(self.unlabeled),
            address.numpy_at("augment"),
        )
        return excess_risk(problem, model)


def risk_of(cell: Repetition) -> float:
    return cell.risk()


def finish(
    cells: Sequence[Repetition], path: Path, workers: int, advance: Callable[[int], None] = lambda done: None
) -> dict[Repetition, float]:
    """The risk of every cell; those in the file are not computed again, and each new one is there at once."""
    known = _read(path)
    missing = sorted((cell for cell in cells if cell.key not in known), key=lambda cell: -cell.labels - cell.unlabeled)
    advance(len(cells) - len(missing))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file, closing(_computed(missing, workers)) as computed:
        for cell, risk in computed:
            known[cell.key] = risk
            file.write(json.dumps({"cell": cell.key, "risk": risk}) + "\n")
            file.flush()
            advance(1)
    return {cell: known[cell.key] for cell in cells}


def _computed(cells: Sequence[Repetition], workers: int) -> Generator[tuple[Repetition, float], None, None]:
    if workers == 1 or len(cells) < 2:
        yield from ((cell, cell.risk()) for cell in cells)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
    try:
        futures = {pool.submit(risk_of, cell): cell for cell in cells}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise RunStopped("a worker process died; what is finished is kept: give the same command again") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read(path: Path) -> dict[str, float]:
    """Finished cells; a last line that was cut short is dropped from the file, so that the next starts afresh."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        replace_text(path, text)
    known = {}
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            known[str(record["cell"])] = float(record["risk"])
    return known
