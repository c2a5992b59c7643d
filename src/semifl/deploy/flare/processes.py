"""The engine's process on this machine: started, started again when it dies, and ended with everything it started."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from semifl.deploy.flare.provision import ENGINE, environment, hub_command, log_file, site_command
from semifl.deploy.kit import Kit
from semifl.deploy.pictures import OTHER_PICTURES
from semifl.durable import replace_text
from semifl.errors import RunStopped, UserError

PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent dies
GRACE = 5.0  # seconds that a process has to end by itself
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a process that died is started again
LOOK = 0.2
SILENCE = 20.0  # seconds without a connection before an owner is told


def supervise(kit: Kit, say: Callable[[str], None]) -> None:
    """Keep the engine of this kit running until this process is asked to end."""
    with _only_one(kit), contextlib.suppress(KeyboardInterrupt):  # by Ctrl-C, or politely by a signal
        end_leftovers(kit)
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = _run_once(kit, say)
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            say(f"the engine ended with code {code} ({last_error(kit)}); starting it again in {pause:.0f} s")
            time.sleep(pause)


def refuse_second(kit: Kit) -> None:
    """Two engines of one kit would answer for the same machine."""
    if running(kit) is not None:
        raise UserError(f"{kit.name} is already running on this machine: 'semifl deploy stop {kit.folder}' ends it")


def refuse_busy_port(kit: Kit) -> None:
    """FLARE would go on without a word, and nobody could connect."""
    end_leftovers(kit)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((kit.bind, kit.port))
        except OSError as error:
            raise UserError(f"port {kit.port} of this machine cannot be used for the hub: {error.strerror}") from error


def _run_once(kit: Kit, say: Callable[[str], None]) -> int:
    command = hub_command(kit) if kit.kind == "hub" else site_command(kit)
    with (kit.logs / "console.txt").open("ab") as console:
        process = subprocess.Popen(
            command,
            env=environment(kit),
            cwd=kit.engine,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            preexec_fn=_die_with_parent,
        )
    log = _follow(log_file(kit))
    began, heard = time.monotonic(), kit.kind == "hub"
    try:
        while (code := process.poll()) is None:
            for message in filter(None, map(_in_words, next(log))):
                say(message)
                heard = True
            if not heard and time.monotonic() - began > SILENCE:
                say(f"the hub at {kit.address}:{kit.port} does not answer yet; trying on")
                heard = True
            time.sleep(LOOK)
        return code
    finally:
        end_tree([psutil.Process(process.pid)] if process.poll() is None else [])
        end_leftovers(kit)


def _die_with_parent() -> None:
    """An owner who ends this program, in whatever way, must not leave an engine that goes on for the site."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _follow(path: Path) -> Iterator[list[str]]:
    """The lines that came to a file since the last look."""
    place = path.stat().st_size if path.exists() else 0
    while True:
        if path.exists():
            with path.open(encoding="utf-8", errors="replace") as file:
                file.seek(place if place <= path.stat().st_size else 0)  # a log that was rolled over begins anew
                lines = file.read()
                place = file.tell()
            yield lines.splitlines()
        else:
            yield []


def _in_words(line: str) -> str | None:
    """What a line of the engine's log tells an owner."""
    if "Successfully registered client" in line:
        return "connected to the hub"
    if OTHER_PICTURES in line:
        return f"warning: {line[line.index(OTHER_PICTURES) :].strip()}"
    if joined := re.search(r"New client (\S+?)@\S* joined", line):
        return f"{joined[1]} is connected"
    return None


def running(kit: Kit) -> int | None:
    """The process that supervises this kit, if there is one."""
    try:
        pid = int(json.loads((kit.folder / "running.json").read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with (kit.folder / ".lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return pid
    return None


def stop(kit: Kit) -> None:
    """Ask the process that supervises this kit to end, and wait until it has."""
    pid = running(kit)
    if pid is None:
        if not leftovers(kit):
            raise UserError(f"{kit.name} is not running on this machine")
        end_leftovers(kit)
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 6 * GRACE
    while running(kit) is not None:
        if time.monotonic() > deadline:
            raise RunStopped(f"{kit.name} (process {pid}) does not end")
        time.sleep(LOOK)


def end_leftovers(kit: Kit) -> None:
    """End engine processes of this kit whose supervisor is gone: they would hold the port and answer for the site."""
    end_tree(leftovers(kit))


def leftovers(kit: Kit) -> list[psutil.Process]:
    """The engine's processes of this kit, whoever started them."""
    return [each for each in psutil.process_iter(["cmdline"]) if _is_of(kit, each)]


def end_tree(processes: Sequence[psutil.Process]) -> None:
    """End processes and all that they started: kindly, then for good."""
    everyone = {each.pid: each for each in processes}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            everyone |= {child.pid: child for child in process.children(recursive=True)}
    for process in everyone.values():
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(list(everyone.values()), timeout=GRACE)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()


def last_error(kit: Kit) -> str:
    """The last line of the engine's log that tells of an error."""
    path = log_file(kit)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-200:] if path.exists() else []
    told = [line for line in lines if " - ERROR - " in line or " - CRITICAL - " in line]
    return f"{told[-1][:19]} {told[-1].rsplit(' - ', 1)[-1][:200]}" if told else f"see {kit.logs}"


def _is_of(kit: Kit, process: psutil.Process) -> bool:
    """Whether a process is of the form that an engine's have: python -m semifl.deploy.flare.engine … -m FOLDER …"""
    pairs = list(pairwise(process.info["cmdline"] or []))
    return ("-m", ENGINE) in pairs and ("-m", str(kit.engine)) in pairs


@contextlib.contextmanager
def _only_one(kit: Kit) -> Iterator[None]:
    with Path(kit.folder / ".lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{kit.name} is already running on this machine") from error
        replace_text(kit.folder / "running.json", json.dumps({"pid": os.getpid()}) + "\n")
        try:
            yield
        finally:
            (kit.folder / "running.json").unlink(missing_ok=True)
