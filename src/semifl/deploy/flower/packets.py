"""A packet inside a Flower message, as one array of bytes.

An ArrayRecord travels in pieces of bounded size, and pieces that are equal travel once: a packet to ten sites is
stored once. A ConfigRecord is one piece, however large: 100 MB took three times as long, and more than a proxy takes.
"""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from semifl.errors import UserError

STYPE = "semifl.packet"  # not numpy's format: the bytes are those of the packet, nothing before or after


def wrap(packet: bytes, site: str) -> RecordDict:
    """The packet, and for whom it is: a node that was registered under another site's name shall notice."""
    array = Array(dtype="uint8", shape=(len(packet),), stype=STYPE, data=packet)
    return RecordDict({"packet": ArrayRecord({"bytes": array}), "address": ConfigRecord({"site": site})})


def unwrap(content: RecordDict) -> tuple[bytes, str]:
    """The packet's bytes and its address; the packet itself is not read here."""
    try:
        return content.array_records["packet"]["bytes"].data, str(content.config_records["address"]["site"])
    except KeyError as error:
        raise UserError("the message holds no packet: do all run the same version of semifl?") from error
