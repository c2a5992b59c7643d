"""The site's side under Flower. Flower starts a new process for every message, so nothing heavy is loaded too early."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from semifl.deploy.flower.packets import unwrap, wrap
from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.deploy.site import Site

KEYS = ("site", "data", "folder", "labels", "policy", "device")
NEEDED = KEYS[:3]

log = logging.getLogger(__name__)
app = ClientApp()


@app.train()  # type: ignore[untyped-decorator, unused-ignore]
def answer(message: Message, context: Context) -> Message:
    """The reply to one packet, with the folders that the node's own configuration names; the hub cannot set them."""
    packet, address = unwrap(message.content)
    name = str(context.node_config.get("site", ""))
    expires = message.metadata.created_at + message.metadata.ttl
    return Message(wrap(_reply(packet, address, context.node_config, expires), name), reply_to=message)


def _reply(packet: bytes, address: str, config: Mapping[str, Any], expires: float) -> bytes:
    """Whatever goes wrong is an answer too: Flower would tell the hub an error's whole text, with paths in it."""
    from semifl.deploy import leaving
    from semifl.deploy.site import alone

    try:
        site = make_site(config)
        if site.name != address:
            raise UserError(f"the packet is for {address}, and this node is {site.name}: register it under that name")
        with alone(site.folder / ".queue"):  # a packet that waited for another may have become too old
            if time.time() > expires:
                return leaving.failed("the packet reached it too late, or its clock is wrong")
            try:
                return site.answer(packet)
            finally:
                site.close()
    except Exception as error:
        log.error("%s", error, exc_info=not isinstance(error, UserError))
        return leaving.failed("its node's configuration or folders are not right; its own log says more")


def make_site(config: Mapping[str, Any]) -> Site:
    """The site as --node-config describes it."""
    from semifl.deploy.policy import Policy, read_policy
    from semifl.deploy.site import Site

    for key in config:
        if key not in KEYS:
            raise UserError(f"the node's configuration has no key {key!r}; there are {', '.join(KEYS)}")
    for key in NEEDED:
        if not config.get(key):
            raise UserError(f"the node's configuration has no {key!r}: start it with --node-config '{key}=\"...\" ...'")
    paths = {
        key: Path(str(config[key])).expanduser() for key in ("data", "folder", "labels", "policy") if config.get(key)
    }
    policy = read_policy(paths["policy"]) if "policy" in paths else Policy()
    device = str(config.get("device", "cpu"))
    # This process is new for every packet, so it needs no other to die in: that saves two seconds for each.
    where = (paths["data"], paths.get("labels"), policy, paths["folder"], device)
    return Site(str(config["site"]), *where, trains_apart=False)
