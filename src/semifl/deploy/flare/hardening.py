"""FLARE with a gate before it: what every one of our engine's processes changes in FLARE before it starts.

Each change replaces a place where FLARE believes a message, or lets one peer's message end or exhaust a process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet import cell as streaming_cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, MessageType
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.drivers import aio_http_driver, socket_conn
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.hci.server.reg import ServerCommandRegister
from nvflare.fuel.utils.fobs import FOBSContextKey, fobs
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import JobFailureMsgKey, RequestHeader, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

from semifl.deploy.flare import gate, streams
from semifl.deploy.flare.gate import ANSWER, DATA, STREAM, Gate, Message
from semifl.deploy.flare.job import refuse_packed
from semifl.deploy.flare.local_socket import SCHEME, LocalSocketDriver
from semifl.deploy.flare.replacements import Replacement, replace_all

log = logging.getLogger(__name__)

MOST_JOBS = 2  # of a site at once: one that comes to its end, and the one that goes on with the run
LARGEST_FRAME = 4 << 20  # bytes that arrive at once; FLARE cuts what is longer into pieces of one megabyte
WINDOW = 16 << 20  # bytes that a sender may be ahead of its receipts
BACKLOG = 4 * WINDOW  # bytes of a peer that wait to be looked at: more means that it ignores receipts
QUIET = 60.0  # seconds in which the same refusal is logged once
CONNECTIONS = {
    "allow_adhoc_conns": False,
    "internal": {"scheme": SCHEME, "resources": {}},
    "streaming_window_size": WINDOW,
    "streaming_max_out_seq_chunks": BACKLOG >> 20,
}
TRANSPORT = (
    Replacement(CommConfigurator, "_configuration", lambda own: CONNECTIONS, "no file in a kit says otherwise"),
    Replacement(CommConfigurator, "_config_loaded", lambda own: True, "no file in a kit is read for it"),
)
READABLE = frozenset(  # what a message may be made of, besides numbers, words, lists and dicts
    [
        "nvflare.apis.shareable.Shareable",
        "nvflare.apis.fl_context.FLContext",
        "nvflare.apis.client.Client",
        "nvflare.private.admin_defs.Message",
        "nvflare.private.admin_defs.MsgHeader",
        "nvflare.apis.signal.Signal",
        "nvflare.apis.job_def.JobMetaKey",
    ]
)


def harden(sites: tuple[str, ...]) -> None:
    """Replace what the table names, once in a process, before FLARE opens its first connection."""
    replace_all(replacements(frozenset(sites)))
    streams.HERE.is_open = _is_gathered
    communicator.driver_mgr.register(LocalSocketDriver)


def replacements(sites: frozenset[str]) -> list[Replacement]:
    """Return everything that an engine's process changes in FLARE, and why."""
    processors = ClientRequestProcessors
    receive, look = _bounded_backlog()
    return [
        Replacement(CoreCell, "process_message", lambda own: _gated(own, sites), "every message passes the gate first"),
        Replacement(aio_http_driver, "MAX_FRAME_SIZE", lambda own: LARGEST_FRAME, "FLARE takes frames of 2 GB"),
        Replacement(socket_conn, "MAX_FRAME_SIZE", lambda own: LARGEST_FRAME, "FLARE takes frames of 2 GB"),
        *TRANSPORT,
        Replacement(ConnManager, "process_frame", receive, "who sends faster than is read is cut off"),
        Replacement(ConnManager, "process_frame_task", look, "it counts what has been read"),
        Replacement(fobs.Packer, "unpack", _plain, "FLARE's types can make the reader fetch something"),
        Replacement(streaming_cell, "_is_server_job_cell", lambda own: lambda info: False, "one message ends no job"),
        Replacement(FederatedServer, "process_job_failure", _forgiving, "one site's word ends no job"),
        Replacement(ServerCommandRegister, "process_command", _reduced_commands, "the commands that semifl needs"),
        Replacement(JobMetaValidator, "validate", _validated, "a packed job is judged before it is opened"),
        Replacement(FedAdminAgent, "_dispatch_request", _reduced_orders, "the orders that semifl needs"),
        Replacement(processors, "request_processors", _reduced_processors, "the orders that semifl needs"),
    ]


def _gated(obeys: Callable[..., Any], sites: frozenset[str]) -> Callable[..., None]:
    gates: dict[str, Gate] = {}  # one for each cell of the process
    told: dict[tuple[str, str], float] = {}

    def process_message(self: CoreCell, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
        try:
            seen = _read(endpoint, connection, message)
            gate = gates.setdefault(self.get_fqcn(), Gate(self.get_fqcn(), sites))
            reason = gate.refusal(seen) or _too_much(self, seen, message)
        except Exception as error:
            seen, reason = None, f"it cannot be read ({type(error).__name__})"
        if not reason:
            obeys(self, endpoint, connection, app_id, message)
            return
        sender = str(getattr(endpoint, "name", "?"))[:100]
        if time.monotonic() - told.get((sender, reason), -QUIET) >= QUIET:
            told[sender, reason] = time.monotonic()
            what = f"{seen.word} {seen.stream}" if seen else "a message"
            log.warning("refused from %s: %.200s: %.200s", sender, what, reason)

    return process_message


def _read(endpoint: Any, connection: Any, message: Any) -> Message:
    headers = message.headers
    properties = (connection.get_conn_properties() if connection else None) or {}
    scheme = connection.connector.params.get(DriverParams.SCHEME.value) if connection else ""
    piece = headers.get(MessageHeaderKey.CHANNEL) == STREAM
    words = [
        endpoint.name,
        properties.get(DriverParams.PEER_CN.value) or "",
        headers[MessageHeaderKey.MSG_TYPE],
        headers.get(MessageHeaderKey.CHANNEL) or "",
        headers.get(MessageHeaderKey.TOPIC) or "",
        f"{headers.get(StreamHeaderKey.CHANNEL)}/{headers.get(StreamHeaderKey.TOPIC)}" if piece else "",
        headers[MessageHeaderKey.ORIGIN],
        headers[MessageHeaderKey.DESTINATION],
    ]
    if not all(isinstance(word, str) for word in words):
        raise TypeError("a header is no word")
    return Message(words[0], scheme == SCHEME, *words[1:])


def _too_much(cell: CoreCell, seen: Message, message: Any) -> str:
    """Whether a message for this cell answers nothing that was asked, or is larger than was asked for."""
    if seen.destination != cell.get_fqcn() or seen.peer == cell.get_fqcn():
        return ""
    if seen.kind != MessageType.REQ:
        asked = message.headers.get(MessageHeaderKey.REQ_ID)
        asked = asked if isinstance(asked, list) else [asked]
        return "" if all(isinstance(each, str) and each in cell.waiters for each in asked) else "nobody asked"
    if (seen.channel, seen.topic) != (STREAM, DATA):
        return ""
    number = message.headers.get(StreamHeaderKey.STREAM_ID)
    declared = message.headers.get(StreamHeaderKey.SIZE, 0)
    if type(number) is not int or type(declared) is not int:
        return "it has no number or size"
    if seen.stream.startswith(f"{ANSWER}/") and not _is_gathered(seen.origin, number):
        asked = message.headers.get(StreamHeaderKey.STREAM_REQ_ID)
        if asked not in cell.get_fobs_context()[FOBSContextKey.CELL].requests_dict:
            return "nobody asked"
    size = len(message.payload) if message.payload else 0
    return streams.HERE.refusal(seen.origin, number, seen.stream, declared, size)


def _is_gathered(origin: str, number: int) -> bool:
    task = RxTask.rx_task_map.get((origin, number))
    return task is not None and not task.completed and not task.failed


def _bounded_backlog() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Cut off a peer that sends faster than this process reads; make this machine's own jobs wait."""
    waiting: dict[int, int] = {}
    room = threading.Condition()

    def receiving(receives: Callable[..., Any]) -> Callable[..., None]:
        def process_frame(self: ConnManager, sfm_conn: Any, frame: Any) -> None:
            own = sfm_conn.conn.connector.params.get(DriverParams.SCHEME.value) == SCHEME
            with room:
                while own and waiting.get(id(sfm_conn), 0) > BACKLOG and not self.stopped:
                    room.wait(0.1)
                if waiting.get(id(sfm_conn), 0) > BACKLOG:
                    log.warning("%s sends more than can be read: disconnected", sfm_conn.get_name())
                    sfm_conn.conn.close()
                    return
                waiting[id(sfm_conn)] = waiting.get(id(sfm_conn), 0) + len(frame)
            receives(self, sfm_conn, frame)

        return process_frame

    def looking(looks: Callable[..., Any]) -> Callable[..., None]:
        def process_frame_task(self: ConnManager, sfm_conn: Any, frame: Any) -> None:
            try:
                looks(self, sfm_conn, frame)
            finally:
                with room:
                    waiting[id(sfm_conn)] = waiting.get(id(sfm_conn), 0) - len(frame)
                    if waiting[id(sfm_conn)] <= 0:
                        del waiting[id(sfm_conn)]
                    room.notify_all()

        return process_frame_task

    return receiving, looking


def _plain(unpack: Callable[..., Any]) -> Callable[..., Any]:
    """FLARE's own types can stand for data that the reader would then fetch from wherever the message says."""

    def plain(self: Any, given: Any) -> Any:
        if type(given) is dict and fobs.FOBS_TYPE in given and given[fobs.FOBS_TYPE] not in READABLE:
            raise ValueError(f"no message holds a {str(given[fobs.FOBS_TYPE])[:100]}")
        return unpack(self, given)

    return plain


def _forgiving(reported: Callable[..., Any]) -> Callable[..., Any]:
    """FLARE ends a whole job for one site's word that its part has failed."""

    def process_job_failure(self: FederatedServer, request: Any) -> Any:
        if isinstance(request.payload, dict):
            request.payload = {**request.payload, JobFailureMsgKey.CODE: 0}
        return reported(self, request)

    return process_job_failure


def _reduced_commands(processes: Callable[..., Any]) -> Callable[..., Any]:
    """Take the commands of operators that semifl needs, and no others."""

    def process_command(self: ServerCommandRegister, conn: Any, command: Any) -> Any:
        words = command.split() if isinstance(command, str) else []
        name = words[0].rpartition(".")[2] if words else ""  # it may be written with the name of its group
        if name in gate.COMMANDS:
            return processes(self, conn, command)
        log.warning("refused command of an operator: %.100s", name)
        return conn.append_error("not authorized: semifl does not use this command")

    return process_command


def _validated(judges: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse an operator's job that is larger than any of semifl's, before the hub opens it."""

    def validate(self: JobMetaValidator, name: str, packed: Any) -> Any:
        reason = refuse_packed(packed)
        return (False, reason, {}) if reason else judges(self, name, packed)

    return validate


def _reduced_orders(dispatches: Callable[..., Any]) -> Callable[..., Any]:
    """Take the orders of the hub that semifl needs, and of jobs those that are no larger than semifl's, two at once."""
    starting = threading.Lock()

    def dispatch_request(self: FedAdminAgent, request: Any) -> Any:
        order = request.payload
        topic, job = getattr(order, "topic", None), order.get_header(RequestHeader.JOB_ID)
        peer = request.get_prop(MessagePropKey.ENDPOINT).name
        proper = topic in gate.ORDERS if peer == "server" else topic == gate.NOTICE
        proper = proper and (job is None or (isinstance(job, str) and bool(gate.JOB.fullmatch(job))))
        reason = "" if proper else "not authorized: semifl does not use this command"
        if proper and topic == gate.DEPLOY:  # FLARE would unpack it before it looks for a signature
            reason = refuse_packed(order.body) if isinstance(order.body, bytes) else "a packed job must be bytes"
        with starting if topic == gate.START else nullcontext():
            if topic == gate.START and len({*self.app_ctx.get_all_job_ids()} - {job}) >= MOST_JOBS:
                reason = reason or f"{MOST_JOBS} jobs are running here"
            if not reason:
                return dispatches(self, request)
        log.warning("refused from %s: order %.100s: %s", peer, topic, reason)
        return new_cell_message({}, error_reply(reason))

    return dispatch_request


def _reduced_processors(own: list[Any]) -> list[Any]:
    return [each for each in own if set(each.get_topics()) <= gate.ORDERS | {gate.NOTICE}]
