"""The hub's end of the wire on FLARE: a job in which our loop runs and sends packets to the sites of the job."""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from semifl.configuration.build import World
from semifl.configuration.config import read
from semifl.deploy.flare import streams
from semifl.deploy.flare.executor import PACKET
from semifl.deploy.flare.orphans import end_with_parent
from semifl.deploy.hub import Hub, Sites, run_federation
from semifl.deploy.kit import read_kit
from semifl.deploy.place import read_place
from semifl.deploy.remote import Answer, NotEnoughSites
from semifl.errors import RunStopped, UserError
from semifl.records.predictions import NAME as PREDICTIONS
from semifl.records.record import RoundRecord
from semifl.running.context import BaselineProgress
from semifl.toml import Table, dumps

TOPIC = "semifl"  # of an operator's questions to a running job
TASK = "packet"
OUTCOME = "outcome.json"
RESULTS = "semifl"  # the folder of a job's result that holds the run
GRACE = 5.0  # seconds after which FLARE's own clock is not waited for: it may have been set back
LOOK = 0.05  # seconds between two looks at tasks and at orders to stop
KEPT_AT_HUB = ("checkpoint", ".lock", PREDICTIONS)  # of a run directory, not for operators


class Interrupted(Exception):
    """The job ends here, after a complete round; the run goes on in another job, or when somebody wishes."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


class JobProgress:
    """What an operator can ask of a running job, kept up to date by the loop; also the loop's observer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records: list[RoundRecord] = []
        self.facts: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.sites: Sites | None = None
        self.members: list[str] = []
        self.gone: set[str] = set()
        self.wish = ""  # "paused" or "stopped": what an operator wants after this round

    def begin(self, world: World, first_round: int) -> None:
        assert self.sites is not None
        identity = self.sites.order["run"]
        earlier = [record for record in self.sites.directory.rounds() if record["round"] < first_round]
        with self.lock:  # an operator may not have heard of the last rounds before a hub was killed
            self.records = earlier
        self.facts |= {"config": for_operators(world.config.table()), "first": first_round, "identity": identity}

    def baseline(self, progress: BaselineProgress) -> None:
        self.facts["baseline"] = [] if progress.is_last else list(progress)
        self.obey()

    def labels_only(self, value: float) -> None:
        self.facts["labels_only"] = value

    def round(self, record: RoundRecord, best: float | None) -> None:
        with self.lock:
            self.records.append(record)
        self.obey()

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def obey(self) -> None:
        if self.wish:
            raise Interrupted(self.wish)

    def answer(self, topic: str, question: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """To an operator: what is new after the round they know, and how the sites do."""
        question = question if isinstance(question, dict) else {}
        if self.wish != "stopped":  # a site that comes back must not undo what an operator wants
            self.wish = str(question.get("wish") or self.wish)
        self.gone |= set(question.get("gone", ()))
        after = int(question.get("after", 0))
        with self.lock:
            new = [record for record in self.records if record["round"] > after]
        sites = self.sites.status() if self.sites else {}
        return {"rounds": new, "sites": sites, "members": self.members, "warnings": self.warnings, **self.facts}


class HubController(Controller):  # type: ignore[misc]  # FLARE has no types
    """Plays a run from where it stands. `run` is {"name": …, "table": the run's file}, as the operator submitted it."""

    def __init__(self, run: dict[str, Any]) -> None:
        super().__init__(task_check_period=LOOK)
        end_with_parent()
        self._run = run
        self._progress = JobProgress()

    def start_controller(self, fl_ctx: FLContext) -> None:
        fl_ctx.get_engine().register_app_command(TOPIC, self._progress.answer)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        folder = Path(fl_ctx.get_workspace().get_root_dir()).parent  # the kit
        results = Path(fl_ctx.get_workspace().get_run_dir(fl_ctx.get_job_id())) / RESULTS
        results.mkdir(parents=True, exist_ok=True)
        outcome = self._play(folder, abort_signal, fl_ctx)
        self.log_info(fl_ctx, f"semifl: {outcome['state']} {outcome['reason']}")
        if outcome["state"] != "refused":  # what is refused may have any name, and a name is a path here
            hand_over(read_kit(folder).runs / self._run["name"], results)
        (results / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """A site that answers after the deadline: the round has gone on without it."""

    def _play(self, folder: Path, abort_signal: Signal, fl_ctx: FLContext) -> dict[str, str]:
        os.environ.setdefault("SEMIFL_DATA", str(folder / "cache"))
        try:
            kit, place = read_kit(folder), read_place(folder)
            transport = FlareTransport(self, fl_ctx, abort_signal, self._progress)
            name, table = self._asked()
            run_federation(
                Hub(place.data, kit.runs, kit.sites, place.device), name, table, transport, self._progress, self._watch
            )
        except UserError as error:
            return {"state": "refused", "reason": str(error)}
        except Interrupted as error:
            return {"state": error.state, "reason": ""}
        except NotEnoughSites as error:
            return {"state": "waiting", "reason": str(error)}
        except RunStopped as error:
            return {"state": "failed", "reason": str(error)}
        except OSError as error:
            self.log_exception(fl_ctx, "the run cannot go on")
            return {"state": "failed", "reason": f"the hub: {error.strerror or type(error).__name__}"}
        except Exception as error:
            self.log_exception(fl_ctx, "the run cannot go on")
            return {"state": "failed", "reason": f"the hub failed ({type(error).__name__}); its logs say more"}
        return {"state": "finished", "reason": ""}

    def _asked(self) -> tuple[str, Table]:
        run = self._run
        if not isinstance(run, dict) or not isinstance(run.get("name"), str) or not isinstance(run.get("table"), dict):
            raise UserError("the job does not name a run and its configuration")
        return run["name"], run["table"]

    def _watch(self, sites: Sites) -> None:
        self._progress.sites = sites


class FlareTransport:
    """Packets as FLARE's tasks, one for each site of the job."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort_signal: Signal, progress: JobProgress) -> None:
        self._controller = controller
        self._context = fl_ctx
        self._abort = abort_signal
        self._progress = progress
        progress.members = [client.name for client in fl_ctx.get_engine().get_clients()]

    def exchange(self, packets: Mapping[str, bytes], seconds: float, largest: int) -> Iterator[Answer]:
        answers: queue.Queue[Answer] = queue.Queue()
        began = time.monotonic()
        tasks = {}
        for site, packet in packets.items():
            if self._is_gone(site):
                yield Answer(site, None, "it is not connected", 0.0)
            else:
                streams.HERE.expect(site, largest)
                tasks[site] = self._send(site, packet, seconds, answers, began)
        while tasks:
            if self._abort.triggered:
                raise Interrupted("aborted")
            late = time.monotonic() - began > seconds + GRACE
            for site in [site for site in tasks if late or self._is_gone(site)]:
                self._controller.cancel_task(tasks[site])
            try:
                answer = answers.get(timeout=LOOK)
            except queue.Empty:
                continue
            if tasks.pop(answer.site, None):  # the first answer counts: a cancelled task may still be answered
                yield answer

    def _is_gone(self, site: str) -> bool:
        if site not in self._progress.members or site in self._progress.gone:
            return True
        return bool(self._controller.get_client_disconnect_time(site))

    def _send(self, site: str, packet: bytes, seconds: float, answers: queue.Queue[Answer], began: float) -> Task:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            data = client_task.result.get(PACKET)
            client_task.result = None  # FLARE would keep it as long as the task
            reason = "" if isinstance(data, bytes) else "FLARE could not run its executor"
            answers.put(Answer(site, data if isinstance(data, bytes) else None, reason, time.monotonic() - began))

        def done(task: Task, fl_ctx: FLContext) -> None:
            waited = time.monotonic() - began
            lost = self._is_gone(site)
            reason = "it is not connected" if lost else f"no answer within {waited:.0f} s"
            answers.put(Answer(site, None, reason, waited))

        data = Shareable()
        data[PACKET] = packet
        task = Task(TASK, data, timeout=max(1, math.ceil(seconds)), result_received_cb=received, task_done_cb=done)
        self._controller.send(task, self._context, targets=[site])
        return task


def for_operators(table: Table) -> str:
    """A run's configuration, without the place of the hub's pictures."""
    return dumps({**table, "data": {**table["data"], "root": ""}})


def hand_over(run: Path, results: Path) -> None:
    """Copy what an operator may have into the job's result: everything but the checkpoints."""
    if not run.is_dir():
        return
    for path in run.iterdir():
        if path.name not in KEPT_AT_HUB and path.is_file():
            shutil.copy2(path, results / path.name)
    if (run / "config.toml").exists():
        (results / "config.toml").write_text(for_operators(read(run / "config.toml")), encoding="utf-8")
