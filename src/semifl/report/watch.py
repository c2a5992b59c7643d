"""The page on localhost: made anew whenever a run has written something."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from semifl.errors import UserError
from semifl.report.page import page
from semifl.report.reading import stamp

HOST = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """Serves two addresses: the page, and the stamp that tells whether it is still the newest."""

    daemon_threads = True
    allow_reuse_address = False  # two reports on one port would take turns

    def __init__(self, paths: Sequence[Path], port: int) -> None:
        self.paths = list(paths)
        self._made = ("", "")
        self._making = threading.Lock()
        page(self.paths)  # what is wrong with the runs is said now, and not in the browser
        try:
            super().__init__((HOST, port), Answer)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "it is in use" if taken else str(error)
            raise UserError(f"cannot serve on port {port}: {reason}; choose another with --port") from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"

    def newest_page(self) -> str:
        with self._making:
            now = stamp(self.paths)
            if now != self._made[0]:
                self._made = (now, page(self.paths, now))
            return self._made[1]


class Answer(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        # A name that somebody else's page made to point here is not ours: that page could read the answer.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in (HOST, "localhost"):
            return self._send(403, "text/plain", "this page is for this machine alone")
        if self.path == "/stamp":
            return self._send(200, "text/plain", stamp(self.server.paths))
        if self.path != "/":
            return self._send(404, "text/plain", "there is only one page here: /")
        try:
            return self._send(200, "text/html", self.server.newest_page())
        except UserError as error:
            return self._send(503, "text/plain", str(error))

    def _send(self, code: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: a line every two seconds tells nobody anything."""
