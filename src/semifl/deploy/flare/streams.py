"""How much a peer may send: every stream has a largest size, counted piece by piece before FLARE gathers it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from semifl.deploy.flare.gate import LETTERS_ANSWER, PACKET

SMALL = 64 << 10  # bytes of a message without weights
ENVELOPE = 256 << 10  # what FLARE puts around a packet
AGAIN = 2  # times that a piece may come, for FLARE sends a piece again whose receipt was lost
MOST_OPEN = 64  # streams of one origin at a time: more than an honest one ever has
LARGEST = {
    "hci_channel/command": 4 << 20,
    "aux_communication/ObjectStreamer.Request": 4 << 20,  # a run's file on its way to the hub
    "return_only/hci_channel:command": 64 << 20,  # lists of jobs and news of a run, to an operator
    "return_only/server_command:app_command": 64 << 20,  # the same on its way
    "return_only/download_service__:download_service__download": 16 << 20,  # a piece of a result
}


@dataclass
class _Stream:
    largest: int
    received: int = 0


@dataclass
class Streams:
    """What one process has received and may still receive. Packets and their answers have the size they were given."""

    packet: int = 1 << 20  # at a site's job: the largest that the hub may send
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)  # site → how many answers, and how large
    is_open: Callable[[str, int], bool] = lambda origin, number: False  # whether FLARE still gathers a stream
    _known: dict[str, dict[int, _Stream]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, site: str, largest: int) -> None:
        """One packet has gone out to a site: it may answer, and send its answer again if no receipt comes."""
        with self._lock:
            self.answers[site] = (AGAIN, largest)

    def refusal(self, origin: str, number: int, word: str, declared: int, size: int) -> str:
        """Why this piece of a stream must be dropped, or nothing."""
        with self._lock:
            streams = self._known.setdefault(origin, {})
            if number not in streams:
                if len(streams) >= MOST_OPEN and self._still_open(origin, streams) >= MOST_OPEN:
                    return f"{MOST_OPEN} others are open"
                largest = self._largest(origin, word)
                if not largest:
                    return "nobody asked for it"
                streams[number] = _Stream(largest)
            stream = streams[number]
            stream.received += size
            if declared > stream.largest or stream.received > AGAIN * stream.largest:
                return f"it is larger than {stream.largest} bytes"
        return ""

    def _still_open(self, origin: str, streams: dict[int, _Stream]) -> int:
        """Forget the streams that have ended; how many have not."""
        for number in [number for number in streams if not self.is_open(origin, number)]:
            del streams[number]
        return len(streams)

    def _largest(self, origin: str, word: str) -> int:
        if word == LETTERS_ANSWER:
            site = origin.partition(".")[0]
            left, largest = self.answers.get(site, (0, 0))
            self.answers[site] = (max(0, left - 1), largest)
            return largest + ENVELOPE if left else 0
        if word == PACKET:
            return self.packet + ENVELOPE
        return LARGEST.get(word, SMALL)


HERE = Streams()  # of this process: FLARE's cells are one to a process
