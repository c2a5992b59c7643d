"""A site's end of the wire on FLARE: it carries packets to the site and its answers back, and knows nothing of them."""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from semifl.deploy.flare import streams
from semifl.deploy.flare.orphans import end_with_parent
from semifl.deploy.kit import read_kit
from semifl.deploy.place import read_place
from semifl.deploy.policy import read_policy
from semifl.deploy.site import Site

PACKET = "packet"


class SiteExecutor(Executor):  # type: ignore[misc]  # FLARE has no types
    """One lives in the site's job process for as long as a job lasts. It takes no argument that a job could choose."""

    def __init__(self) -> None:
        super().__init__()
        end_with_parent()
        self._site: Site | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        packet = shareable.get(PACKET)
        if not isinstance(packet, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        if self._site is None:
            self._site = open_site(Path(fl_ctx.get_workspace().get_root_dir()).parent)
        reply = Shareable()
        reply[PACKET] = self._site.answer(packet)
        streams.HERE.packet = self._site.largest_packet
        return reply

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == "_end_run" and self._site is not None:
            self._site.close()
            self._site.forget_features()


def open_site(folder: Path) -> Site:
    """The site of an opened kit, as it is now: its policy is read when a job begins."""
    kit = read_kit(folder)
    place = read_place(folder)
    os.environ.setdefault("SEMIFL_DATA", str(folder / "cache"))  # decoded pictures stay inside the kit
    return Site(kit.name, place.data, place.labels, read_policy(kit.policy), kit.memory, place.device)
