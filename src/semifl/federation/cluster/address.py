"""Which cluster, and how to reach it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from semifl.errors import UserError

PORT = 8786  # Dask's own
PROTOCOLS = ("tcp", "tls")


class Tls(NamedTuple):
    """Files of certificates, as Dask names them."""

    ca: str
    cert: str
    key: str


@dataclass(frozen=True)
class Cluster:
    """A Dask scheduler and the workers it knows."""

    scheduler: str  # tcp://host:port, or tls://host:port
    typed: str  # what a person calls it after --on
    tls: Tls | None = None  # None: as Dask's own configuration says
    direct: bool = True  # whether workers can be reached from here, or only their scheduler
    device: str = "auto"  # what workers compute on

    def warning(self) -> str:
        """Whoever reaches an open scheduler can run code on every worker."""
        if self.scheduler.startswith("tls://") or _is_loopback(urlsplit(self.scheduler).hostname or ""):
            return ""
        return (
            f"{self.scheduler} has no TLS: whoever can reach it can read what is sent and run code on its workers "
            "(docs/cluster.md says how to set it up)"
        )


def whole_address(text: str) -> str:
    """An address as Dask wants it; a host alone, or without a port, is completed."""
    parts = urlsplit(text if "://" in text else f"tcp://{text}")
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise UserError(f"{text!r} is not the address of a scheduler: {error}") from error
    if parts.scheme not in PROTOCOLS or not host or parts.path.strip("/") or " " in host:
        raise UserError(f"{text!r} is not the address of a scheduler, such as tcp://127.0.0.1:{PORT} or tls://head")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
