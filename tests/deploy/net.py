"""A federation of real processes on loopback: kits made, hub and sites started as an owner would, all ended again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from semifl.deploy.kit import Kit, open_kit

SEMIFL = [sys.executable, "-m", "semifl"]
OPERATOR, ANOTHER_OPERATOR = "alice@example.org", "bob@example.org"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class CountingProxy:
    """Passes bytes on to the hub and counts them."""

    def __init__(self, target: int) -> None:
        self.bytes = 0
        self._target = target
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            theirs, _ = self._socket.accept()
            try:
                ours = socket.create_connection(("127.0.0.1", self._target))
            except ConnectionRefusedError:  # the hub is not up yet: the site tries again
                theirs.close()
                continue
            for pair in ((theirs, ours), (ours, theirs)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    self.bytes += len(data)
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Net:
    """A project with a hub and sites below one folder."""

    def __init__(self, folder: Path, sites: tuple[str, ...]) -> None:
        self.folder, self.sites = folder, sites
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kits: dict[str, Kit] = {}

    def semifl(self, *words: str, seconds: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            [*SEMIFL, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment(),
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it tells where it stands
            out, err = process.communicate(timeout=20)
            raise AssertionError(f"semifl {' '.join(words)} does not end: {out}{err}") from None
        if check and process.returncode:
            raise AssertionError(f"semifl {' '.join(words)} gave {process.returncode}: {out}{err}")
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}

    def provision(self) -> None:
        named = [word for site in self.sites for word in ("--site", site)]
        self.semifl("deploy", "init", "project.toml", "--hub", "127.0.0.1", "--port", str(self.port), *named,
                    "--name", "lungs", "--operator", OPERATOR, "--operator", ANOTHER_OPERATOR)  # fmt: skip
        table = self.semifl("deploy", "kits", "project.toml").stdout
        for name in ("hub", *self.sites, OPERATOR, ANOTHER_OPERATOR):
            passphrase = re.search(rf"^{re.escape(name)} .*kit\s+(\S+)$", table, re.MULTILINE)
            assert passphrase, table
            self.kits[name] = open_kit(self.folder / "kits" / f"{name}.kit", lambda _, found=passphrase: found[1])

    def start(self, name: str, *words: str) -> None:
        """`semifl deploy hub` or `site` in a process group of its own."""
        kind = "hub" if name == "hub" else "site"
        log = (self.folder / f"{name}.out").open("ab")
        self.processes[name] = subprocess.Popen(
            [*SEMIFL, "deploy", kind, str(self.kits[name].folder), "--device", "cpu", *words],
            cwd=self.folder, stdout=log, stderr=log, start_new_session=True, env=self.environment(),
        )  # fmt: skip

    def start_all(self, pictures: Path) -> None:
        """The hub and every site, each with its part of the pictures."""
        self.start("hub", "--data", str(pictures))
        for site in self.sites:
            self.start(site, "--data", str(pictures / "clients" / site))

    def dial_through(self, proxy: CountingProxy) -> None:
        """Let the sites reach the hub by way of the proxy."""
        for site in self.sites:
            file = self.kits[site].startup / "fed_client.json"
            file.write_text(file.read_text().replace(str(self.port), str(proxy.port)))

    def run(self, config: Path, *words: str, operator: str = OPERATOR) -> subprocess.Popen[str]:
        """`semifl deploy run`, to be waited for."""
        command = [*SEMIFL, "deploy", "run", str(config), "--kit", str(self.kits[operator].folder), *words]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env=self.environment(),
        )  # fmt: skip
        self.processes[f"run of {operator}"] = process  # type: ignore[assignment]
        return process

    def kill(self, name: str) -> None:
        """The machine loses power: everything of it at once, without a word."""
        process = self.processes.pop(name)
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for each in tree:
            each.send_signal(signal.SIGKILL)
        process.wait()

    def trainer(self, site: str) -> psutil.Process:
        """The process in which a site trains: the fork server's only child."""
        for process in self.job_process(site).children(recursive=True):
            if "forkserver" in " ".join(process.cmdline()) and (children := process.children()):
                return children[0]
        raise AssertionError(f"{site} has no trainer")

    def job_process(self, name: str) -> psutil.Process:
        """The process of the engine in which the job runs at the hub or a site."""
        folder = str(self.kits[name].engine)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if folder in words and any("runner_process" in word or "worker_process" in word for word in words):
                return process
        raise AssertionError(f"{name} has no job")

    def records(self, run: str) -> list[dict]:
        path = self.kits["hub"].runs / run / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_rounds(self, run: str, count: int, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while len(self.records(run)) < count:
            assert time.monotonic() < end, f"{run} has {len(self.records(run))} rounds, not {count}"
            time.sleep(0.1)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.1)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        for kit in self.kits.values():  # whatever a killed supervisor left behind
            for process in psutil.process_iter(["cmdline"]):
                if str(kit.engine) in (process.info["cmdline"] or []):
                    process.kill()
