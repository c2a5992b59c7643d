"""The line between an engine and its own jobs: a Unix socket that only its owner can open.

FLARE takes a TCP port of the machine for it, which every user of the machine can reach.
"""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import tempfile
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverCap, DriverParams
from nvflare.fuel.f3.drivers.socket_conn import SocketConnection

SCHEME = "semifl-local"
LONGEST_PATH = 100  # bytes; Linux allows 107
SHORT = tempfile.gettempdir()  # As it is before the engine takes a temporary folder of its own, whose path may be long.


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, driver: LocalSocketDriver, connector: ConnectorInfo, path: str) -> None:
        self.driver, self.connector = driver, connector
        before = os.umask(0o177)
        try:
            super().__init__(path, _Handler)
        finally:
            os.umask(before)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """The folder keeps other users out; so does this, should it ever lie somewhere else."""
        credentials = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return bool(struct.unpack("3i", credentials)[1] == os.getuid())


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.driver.serve(SocketConnection(self.request, self.server.connector))


class LocalSocketDriver(BaseDriver):  # type: ignore[misc]  # FLARE has no types
    """FLARE's frames over a Unix socket."""

    def __init__(self) -> None:
        super().__init__()
        self._server: _Server | None = None

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEME]

    @staticmethod
    def capabilities() -> dict[str, Any]:
        return {DriverCap.SEND_HEARTBEAT.value: True, DriverCap.SUPPORT_SSL.value: False}

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        url = f"{SCHEME}://local{socket_path()}"
        return url, url

    def listen(self, connector: ConnectorInfo) -> None:
        self.connector = connector
        path = connector.params[DriverParams.PATH.value]
        Path(path).unlink(missing_ok=True)  # of an engine that was killed
        self._server = _Server(self, connector, path)
        self._server.serve_forever()

    def connect(self, connector: ConnectorInfo) -> None:
        self.connector = connector
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(connector.params[DriverParams.PATH.value])
        self.serve(SocketConnection(line, connector))

    def serve(self, connection: SocketConnection) -> None:
        """Read from a connection until it ends."""
        self.add_connection(connection)
        connection.read_loop()
        self.close_connection(connection)

    def shutdown(self) -> None:
        self.close_all()
        if self._server:
            self._server.shutdown()


def socket_path() -> str:
    """In the engine's folder, which is its owner's alone, or in a new such folder if that path is too long."""
    path = Path.cwd() / "jobs.socket"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return str(path)
    return str(Path(tempfile.mkdtemp(prefix="semifl-", dir=SHORT)) / "jobs.socket")
