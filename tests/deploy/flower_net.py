"""A SuperLink with TLS and node authentication, SuperNodes, and nginx before them: real processes on loopback.

Every process is the head of a session of its own and is ended, with all that it started, by that session's number.
"""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

BIN = Path(sys.executable).parent
APP = Path(__file__).parents[2] / "examples" / "flower"
LINK = "trial"
SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
PROXY = """\
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{rule}
}}
"""


class Kin(NamedTuple):
    """A process by its number and the moment it began: a number alone may by now be somebody else's."""

    number: int
    began: str

    def lives(self) -> bool:
        return began(self.number) == self.began

    def kill(self) -> None:
        if self.lives():
            with suppress(ProcessLookupError):
                os.kill(self.number, signal.SIGKILL)


def began(number: int) -> str:
    """When a process began, in the kernel's ticks; empty if there is none, or one that is dead and not yet buried."""
    try:
        state, *facts = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else facts[18]


def descendants(number: int) -> list[Kin]:
    """All that a process started, and all that these started."""
    found = []
    for children in Path(f"/proc/{number}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [Kin(child, began(child)), *descendants(child)]
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def published_rule() -> str:
    """The proxy rule as a reader of the example finds it: what is tested is what is published."""
    text = (APP / "README.md").read_text(encoding="utf-8")
    return re.search(r"```nginx\n(.*?)```", text, re.DOTALL).group(1)


class Net:
    """One federation in one folder."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = data
        self.port = free_port()
        self.processes: list[subprocess.Popen] = []
        self.env = os.environ | SWITCHES | {
            "FLWR_HOME": str(folder / "flower"),
            "SEMIFL_DATA": str(folder / "cache"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self._certify()
        (folder / "flower").mkdir()
        connection = f'[superlink]\ndefault = "{LINK}"\n\n[superlink.{LINK}]\naddress = "127.0.0.1:{self.port}"\n'
        (folder / "flower" / "config.toml").write_text(f'{connection}root-certificates = "{folder / "ca.crt"}"\n')

    def _certify(self) -> None:
        """A certificate authority of its own and a server certificate for loopback."""
        (self.folder / "san.cnf").write_text("subjectAltName = DNS:localhost, IP:127.0.0.1\n")
        for command in (
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=trial-ca -keyout ca.key -out ca.crt",
            "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile san.cnf -out server.crt",
        ):
            self.call(["openssl", *command.split()])

    def call(self, command: list[str], seconds: float = 60) -> str:
        """A command that ends by itself; what it says."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout + done.stderr

    def start(self, name: str, command: list[str]) -> subprocess.Popen:
        """A process that stays, with a log of its own."""
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen, first: int = signal.SIGTERM) -> None:
        """The process and everything it started: Flower gives some of its helpers sessions of their own."""
        family = descendants(process.pid)
        for number, patience in ((first, 10), (signal.SIGKILL, 10)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
        for each in family:
            each.kill()

    def close(self) -> None:
        for process in reversed(self.processes):
            self.end(process)

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def start_link(self) -> None:
        command = [
            str(BIN / "flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key",
            "--enable-supernode-auth", "--database", "link.db", "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        self.link = self.start("superlink", command)
        self.wait(lambda: listens(self.port), "the SuperLink", 40)

    def register(self, site: str) -> None:
        self.call(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"{site}.key"])
        self.call([str(BIN / "flwr"), "supernode", "register", f"{site}.key.pub", LINK, "--name", site])

    def start_node(self, site: str, port: int | None = None) -> subprocess.Popen:
        config = {"site": site, "data": self.data / "clients" / site, "folder": self.folder / "memory" / site}
        (self.folder / "policy.toml").write_text(
            "[share]\nclass_histogram = true\nstatistics = true\n[limits]\nsmallest_count = 1\n"
        )
        config["policy"] = self.folder / "policy.toml"
        command = [
            str(BIN / "flower-supernode"), "--superlink", f"127.0.0.1:{port or self.port}",
            "--root-certificates", "ca.crt", "--auth-supernode-private-key", f"{site}.key", "--port", str(free_port()),
            "--node-config", " ".join(f'{key}="{value}"' for key, value in config.items()),
        ]  # fmt: skip
        return self.start(site, command)

    def start_proxy(self) -> int:
        """nginx with the published rule, on a free port."""
        port = free_port()
        rule = published_rule().replace("127.0.0.1:8443", f"127.0.0.1:{self.port}")
        rule = re.sub(r"listen .*;", f"listen 127.0.0.1:{port} ssl;", rule).replace("/etc/semifl", str(self.folder))
        (self.folder / "nginx.conf").write_text(PROXY.format(folder=self.folder, rule=rule))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.start("nginx-out", [nginx, "-p", str(self.folder), "-c", "nginx.conf", "-g", "daemon off;"])
        self.wait(lambda: listens(port), "nginx", 20)
        return port

    def run(self, name: str, sites: tuple[str, ...], config: Path, seconds: float) -> str:
        """`flwr run` to its end; what it streams."""
        return self.call(self.run_command(name, sites, config), seconds)

    def run_command(self, name: str, sites: tuple[str, ...], config: Path) -> list[str]:
        values = {
            "name": name,
            "sites": ",".join(sites),
            "config": config,
            "hub-data": self.data,
            "runs": self.folder / "runs",
        }
        words = " ".join(f'{key}="{value}"' for key, value in values.items())
        return [str(BIN / "flwr"), "run", str(APP), LINK, "--stream", "-c", words]

    def wait(self, condition: Callable[[], Any], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} seconds for {what}\n{self.logs()}"
            time.sleep(0.2)

    def status(self, port: int, path: str) -> int:
        """What an HTTPS server that our authority has certified answers to an empty message."""
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data=b"", method="POST")
        request.add_header("Content-Type", "application/protobuf")
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code
