"""The form of the lines in an engine's logs."""

from __future__ import annotations

import logging

from nvflare.fuel.utils.log_utils import BaseFormatter

from semifl.words import printable


class PlainFormatter(BaseFormatter):  # type: ignore[misc]  # FLARE has no types
    """Write what a peer says such that it neither steers a terminal nor looks like a line of its own.

    Lines after a record's first, as those of a traceback, are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        return "\n    ".join(map(printable, super().format(record).splitlines()))
