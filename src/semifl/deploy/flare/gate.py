"""Who may say what to whom on FLARE's network of cells: everything that is not written here is refused.

FLARE obeys a message if the message itself does not ask for a check. So every process of ours looks at each message
before FLARE does, by the name that the other end's certificate has shown, and lets through what semifl needs.
A version of FLARE with new commands brings nothing new to this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from semifl.deploy.project import E_MAIL

Role = Literal["hub", "hub job", "site", "site job", "operator", "stranger"]

JOB = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # as FLARE names jobs; no folder of ours is named so
OPERATOR = re.compile(r"_admin_[0-9a-f-]+")  # FLARE's name for the cell of an operator's session
STREAM = "sm__STREAM"  # FLARE's channel for pieces of longer messages, which name their own channel
DATA, ACK, ERROR = "sm__DATA", "sm__ACK", "sm__ERROR"
BYE = "cellnet.channel/bye"
ANSWER = "return_only"

# What each receiver takes from each origin, as channel/topic.
MESSAGES: dict[tuple[Role, Role], frozenset[str]] = {
    ("hub", "site"): frozenset(
        ["task/challenge", "task/register", "task/heart_beat", "task/quit", "task/report_job_failure", BYE]
    ),
    ("hub", "site job"): frozenset([BYE]),
    ("hub", "operator"): frozenset(["task/challenge", "task/register", "task/quit", BYE]),
    ("hub", "hub job"): frozenset(
        [f"server_parent_listener/{topic}" for topic in ("get_clients", "heartbeat", "update_run_status")] + [BYE]
    ),
    ("hub job", "hub"): frozenset([BYE]),
    ("site", "hub"): frozenset(["admin/admin", BYE]),
    ("site", "site job"): frozenset(["admin/train.notify_job_status", BYE]),
    ("site job", "site"): frozenset(["client_command/abort", "client_command/abort_task", BYE]),
    ("site job", "hub"): frozenset([BYE]),
    ("operator", "hub"): frozenset([BYE]),
}
PACKET, LETTERS_ANSWER = "return_only/server_command:get_task", "server_command/submit_update"
_ASKED_OF_HUB_JOB = (
    "server_command/get_task",
    LETTERS_ANSWER,
    *(f"aux_communication/__{topic}__" for topic in ("sync_runner", "task_check", "job_heartbeat")),
)
_ASKED_OF_HUB: tuple[str, ...] = ("hci_channel/command", "aux_communication/ObjectStreamer.Request")
_ASKED_OF_HUB += ("aux_communication/ObjectStreamer.Abort", "download_service__/download_service__download")
_COMMANDS_TO_HUB_JOB = tuple(
    f"server_command/{topic}" for topic in ("app_command", "abort", "get_run_info", "handle_dead_job")
)


def _answers(requests: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"{ANSWER}/{request.replace('/', ':')}" for request in requests)


STREAMS: dict[tuple[Role, Role], frozenset[str]] = {
    ("hub", "operator"): frozenset(_ASKED_OF_HUB),
    ("operator", "hub"): _answers(_ASKED_OF_HUB),
    ("hub job", "hub"): frozenset(_COMMANDS_TO_HUB_JOB),
    ("hub", "hub job"): _answers(_COMMANDS_TO_HUB_JOB),
    ("hub job", "site job"): frozenset(_ASKED_OF_HUB_JOB),
    ("site job", "hub job"): _answers(_ASKED_OF_HUB_JOB) | {"aux_communication/__end_run__"},
}
# Between these a message may pass through the hub, or through a site on its way to its own job.
FORWARDED: frozenset[tuple[Role, Role]] = frozenset([("hub job", "site job"), ("site job", "hub job")])
# Who may be told by whom that a stream has arrived, or that it cannot.
_TOLD = frozenset([*STREAMS, *((b, a) for a, b in STREAMS), ("hub job", "site"), ("site job", "hub")])

COMMANDS = frozenset(  # of operators, at the hub
    (
        "_cert_login _logout _check_session _commands list_sessions "
        "submit_job list_jobs get_job_meta check_status app_command abort_job download_job"
    ).split()
)
DEPLOY, START = "train.deploy", "train.start_job"
ORDERS = frozenset(  # of the hub, at a site
    [
        *("scheduler.check_resource", "scheduler.cancel_resource", DEPLOY),
        *(START, "train.abort", "train.check_status"),
    ]
)
NOTICE = "train.notify_job_status"  # of a site's own job, to the site


class Message(NamedTuple):
    """As much of a message as the gate looks at."""

    peer: str  # the cell at the other end of the connection
    local: bool  # whether it came over the socket of this machine
    identity: str  # the name in the peer's certificate
    kind: str  # "req", "reply" or "return"
    channel: str
    topic: str
    stream: str  # channel/topic of what a piece of a stream belongs to
    origin: str
    destination: str

    @property
    def word(self) -> str:
        return f"{self.channel}/{self.topic}"


@dataclass(frozen=True)
class Gate:
    """The gate of one cell. `sites` are those of the project."""

    me: str
    sites: frozenset[str]

    def refusal(self, message: Message) -> str:
        """Why this message must not go further, or nothing."""
        if message.peer == self.me:  # the process talks to itself
            return ""
        return self._unknown_peer(message) or self._false_origin(message) or self._not_allowed(message)

    def role(self, cell: str) -> tuple[Role, str]:
        """What a cell is by its name, and the job it belongs to."""
        if OPERATOR.fullmatch(cell):
            return "operator", ""
        root, _, job = cell.partition(".")
        if root != "server" and root not in self.sites:
            return "stranger", ""
        kind: Role = "hub" if root == "server" else "site"
        if not job:
            return kind, ""
        if not JOB.fullmatch(job):
            return "stranger", ""
        return ("hub job" if kind == "hub" else "site job"), job

    def _unknown_peer(self, message: Message) -> str:
        me, peer = self.role(self.me)[0], self.role(message.peer)[0]
        if message.local:
            related = message.peer.startswith(f"{self.me}.") or self.me.startswith(f"{message.peer}.")
            return "" if related and peer != "stranger" else "the local socket is for this machine's own jobs"
        if peer == "operator" and not (E_MAIL.fullmatch(message.identity) and message.identity not in self.sites):
            return f"{message.identity!r} is no operator"
        met: Mapping[Role, tuple[Role, ...]] = {"hub": ("site", "site job", "operator")}
        return "" if peer in met.get(me, ("hub",)) else "nobody of this name connects here"

    def _false_origin(self, message: Message) -> str:
        """The hub knows each peer by its certificate; others know the hub, and believe it who sent what."""
        me, job = self.role(self.me)
        origin, of = self.role(message.origin)
        if me == "hub" or (me == "site" and message.local):
            return "" if message.origin == message.peer else f"it came from {message.peer}"
        if me == "site" and origin not in ("hub", "hub job"):
            return "a site listens to the hub alone"
        if me in ("hub job", "site job"):
            if of and of != job:
                return "it belongs to another job"
            if origin == "site" and me == "site job" and message.origin != self.me.partition(".")[0]:
                return "it is of another site"
        return ""

    def _not_allowed(self, message: Message) -> str:
        to, to_job = self.role(message.destination)
        pair = (to, self.role(message.origin)[0])
        if message.destination != self.me:
            mine = self.role(self.me)[0]
            passes = mine == "hub" or (mine == "site" and message.destination.startswith(f"{self.me}."))
            if not passes or message.channel != STREAM or (pair not in FORWARDED and message.topic != ERROR):
                return f"nothing is passed on to {message.destination}"
            if to_job != self.role(message.origin)[1] and message.topic != ERROR:
                return "it is for another job"
        if message.kind != "req":
            return "" if message.destination == self.me else "no answer takes this way"
        if message.channel == STREAM and message.topic in (ACK, ERROR):
            return "" if pair in _TOLD else "there is no stream between them"
        if message.channel == STREAM and message.topic == DATA:
            return "" if message.stream in STREAMS.get(pair, ()) else f"{message.stream} is not for {pair[0]}"
        return "" if message.word in MESSAGES.get(pair, ()) else f"{message.word} is not for {pair[0]}"
