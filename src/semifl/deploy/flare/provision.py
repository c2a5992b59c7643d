"""Kits for NVIDIA FLARE: made from a project, settled on the machine they are opened on, and started.

Whoever makes the kits writes identities only: certificates, and where the hub is. What the engine may do on a machine
(`local/`) is written at each start by the semifl that is installed there, so that no kit can widen it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from semifl import __version__
from semifl.deploy import sealing
from semifl.deploy.flare.replacements import refuse_other_version
from semifl.deploy.kit import OPEN_AGAIN, PASSPHRASE, SUFFIX, Kit
from semifl.deploy.project import HERE, Project
from semifl.errors import UserError

ORGANISATION = "semifl"
ROLE = "lead"  # FLARE's name for who may submit jobs
ROOT_DAYS = 3650
SLOW_CLOCK = timedelta(days=1)  # by which a machine's clock may be behind that of the maker
ENGINE = "semifl.deploy.flare.engine"
PROGRAMS = {"hub": "server", "site": "client", "operator": "admin"}

# What a job may build, by kind of kit: these classes and nothing else. A prefix such as "semifl.deploy." would do, but
# then a job could call every function below it with arguments of its own, for FLARE calls whatever the path names.
COMPONENTS = {
    "hub": ["semifl.deploy.flare.controller.HubController"],
    "site": ["semifl.deploy.flare.executor.SiteExecutor"],
}
AUTHORIZATION = {
    "format_version": "1.0",
    "permissions": {
        ROLE: {
            "submit_job": "any",
            "clone_job": "none",
            "manage_job": "any",
            "download_job": "any",
            "view": "any",
            "app_command": "any",
            "operate": "none",
            "shell_commands": "none",
            "byoc": "none",
            "server-predeployed-flwr": "none",
        }
    },
}
# The keys that a start-up file of each kind may have: others could name classes that FLARE would build at the start.
STARTUP_KEYS = {
    "hub": {"format_version", "require_signed_jobs", "servers"},
    "site": {"format_version", "require_signed_jobs", "servers", "client"},
    "operator": {"format_version", "admin"},
}


@dataclass(frozen=True)
class Issued:
    """A kit that was made, as the authority remembers it: enough to tell when it ends and whether it is up to date."""

    kind: str
    expires: date
    address: str
    port: int
    sites: tuple[str, ...]

    def outdated(self, project: Project) -> bool:
        """Whether the kit tells its owner something that is no longer so. Sites need not know of other sites."""
        moved = (self.address, self.port) != (project.address, project.port)
        return moved or (self.kind != "site" and self.sites != project.site_order)


@dataclass(frozen=True)
class Made:
    """A sealed kit, with the passphrase that is shown once and kept nowhere."""

    name: str
    kind: str
    file: Path
    expires: date
    passphrase: str


class Authority:
    """The folder beside project.toml with the root key. Whoever has it can make sites, operators and hubs."""

    def __init__(self, folder: Path, project: Project) -> None:
        self.folder, self.project = folder, project
        self.state = folder / project.name / "state" / "cert.json"
        self.record = folder / "issued.json"
        others = sorted(path.parent.name for path in folder.glob("*/state") if path.parent.name != project.name)
        if others:
            raise UserError(f"{folder} belongs to the project {others[0]!r}, not to {project.name!r}")

    def issued(self) -> dict[str, Issued]:
        """All kits ever made, by name."""
        if not self.record.exists():
            return {}
        table = json.loads(self.record.read_text(encoding="utf-8"))
        return {name: Issued(**_with(facts)) for name, facts in table.items()}

    def remember(self, made: Sequence[Made]) -> None:
        known = {name: {**asdict(kit), "expires": kit.expires.isoformat()} for name, kit in self.issued().items()}
        facts = {"address": self.project.address, "port": self.project.port, "sites": self.project.site_order}
        known |= {kit.name: {"kind": kit.kind, "expires": kit.expires.isoformat(), **facts} for kit in made}
        sealing.write_private(self.record, json.dumps(known, indent=2).encode())

    def root_expires(self) -> datetime | None:
        """When the root certificate ends; nothing if there is none yet."""
        root = self._root()
        return _certificate(root["root_cert"].encode()).not_valid_after_utc if root else None

    def root_days(self) -> int:
        """The lifetime of the root. FLARE wants to hear it again each time, and refuses another one."""
        root = self._root()
        if not root:
            return max(ROOT_DAYS, 3 * self.project.days)
        certificate = _certificate(root["root_cert"].encode())
        return int((certificate.not_valid_after_utc - certificate.not_valid_before_utc).days)

    def retire_root(self) -> None:
        """Put the root aside; the next kits get a new one, and kits of both cannot talk to each other."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.state.rename(self.state.with_name(f"retired-{stamp}.json"))
        self.record.unlink(missing_ok=True)

    def keep_root_only(self) -> None:
        """FLARE leaves everybody's private key here, in plain text. They are in the kits, so they can go."""
        sealing.write_private(self.state, json.dumps(self._root()).encode())

    def _root(self) -> dict[str, str]:
        if not self.state.exists():
            return {}
        content = json.loads(self.state.read_text(encoding="utf-8"))
        return {key: content[key] for key in ("root_cert", "root_pri_key")}


def need_flare(verb: str) -> None:
    """Refuse in one sentence to go on without FLARE, or with a version of it that the gate is not made for."""
    if importlib.util.find_spec("nvflare") is None:
        raise UserError(f"'semifl deploy {verb}' needs the flare extra: pip install 'semifl[flare]'")
    refuse_other_version()


def make_kits(authority: Authority, names: Sequence[str], out: Path) -> list[Made]:
    """A new certificate and a new sealed file for each of the names, all below the authority's root."""
    try:
        return _make_kits(authority, names, out) if names else []
    except OSError as error:
        raise UserError(f"cannot write {error.filename or out}: {error.strerror}") from error


def settle(kit: Kit) -> None:
    """Make an opened kit ready to start where it lies now. Every start does this; it changes nothing in `startup/`."""
    for path in (str(kit.folder), sys.executable):
        if kit.kind != "operator" and any(letter in path for letter in " \t\n'\"\\"):
            raise UserError(f"FLARE cannot work with a blank, a quote or a backslash in the path {path}: move it")
    _check_startup(kit)
    files = {"resources.json": _resources(kit)}
    if kit.kind != "operator":
        files |= {"authorization.json": AUTHORIZATION, "log_config.json": _logging()}
    if kit.local.exists():
        _refuse_others(kit.local, set(files))
    for folder in (kit.engine, kit.local, kit.logs, kit.engine / "transfer", *_own_folders(kit)):
        folder.mkdir(mode=0o700, exist_ok=True)
    if kit.kind != "operator":
        _lend_identity(kit)
    for name, content in files.items():
        sealing.write_private(kit.local / name, json.dumps(content, indent=2).encode())


def _lend_identity(kit: Kit) -> None:
    """The engine looks for its identity in its own folder: links to it, so that no key lies there."""
    folder = kit.engine / "startup"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for path in kit.startup.iterdir():
        if path.suffix == ".json":  # FLARE follows no link to find it
            sealing.write_private(folder / path.name, path.read_bytes())
        else:
            (folder / path.name).symlink_to(f"../../startup/{path.name}")


def hub_command(kit: Kit) -> list[str]:
    """The process that sites and operators connect to, in the foreground. Start it with `environment(kit)`."""
    return _command(kit, "server", [])


def site_command(kit: Kit) -> list[str]:
    """The process that connects a site to the hub, in the foreground. Start it with `environment(kit)`."""
    return _command(kit, "client", [f"uid={kit.name}", "heart_beat_interval=5"])


def environment(kit: Kit) -> dict[str, str]:
    """Variables for the engine's processes: logs inside the kit, and no modules from the folder they run in."""
    inherited = {name: value for name, value in os.environ.items() if name != PASSPHRASE}
    return {**inherited, "NVFL_LOG_ROOT": str(kit.logs), "PYTHONSAFEPATH": "1", "MALLOC_ARENA_MAX": "4"}


def log_file(kit: Kit) -> Path:
    """Where the engine's process writes what it does; error_log.txt, for errors alone, and audit.log lie beside it."""
    return kit.logs / ("server" if kit.kind == "hub" else kit.name) / "log.txt"


def _make_kits(authority: Authority, names: Sequence[str], out: Path) -> list[Made]:
    authority.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority.folder.chmod(0o700)
    made = []
    with _private(), tempfile.TemporaryDirectory(dir=authority.folder) as work:
        produced = _provision(authority, names, Path(work))
        out.mkdir(parents=True, exist_ok=True)
        for name in names:
            kit = _shape(authority.project, name, produced, Path(work) / "shaped" / name)
            passphrase, file = sealing.new_passphrase(), out / f"{name}{SUFFIX}"
            sealing.seal(kit.folder, file, kit.header(), passphrase)
            made.append(Made(name, kit.kind, file, kit.expires, passphrase))
        authority.remember(made)
    return made


def _command(kit: Kit, program: str, more: list[str]) -> list[str]:
    settings = ["secure_train=true", f"org={ORGANISATION}", "config_folder=config", *more]
    engine = [sys.executable, "-m", ENGINE, f"{program}_train", "-m", str(kit.engine)]
    return [*engine, "-s", f"fed_{program}.json", "--set", *settings]


def _check_startup(kit: Kit) -> None:
    """Nothing but identity and address: other files or keys could name code that FLARE would run."""
    start = kit.startup / f"fed_{PROGRAMS[kit.kind]}.json"
    certificate = "server" if kit.kind == "hub" else "client"
    _refuse_others(kit.startup, {start.name, "rootCA.pem", f"{certificate}.crt", f"{certificate}.key"})
    content = json.loads(start.read_text(encoding="utf-8"))
    if more := sorted(content.keys() - STARTUP_KEYS[kit.kind]):
        raise UserError(f"{start} has a key {more[0]!r} that no kit has: do not use it")
    if kit.kind != "operator" and content.get("require_signed_jobs") is not True:
        raise UserError(f"{start} would take jobs that no operator has signed: do not use it")


def _provision(authority: Authority, names: Sequence[str], work: Path) -> Path:
    """Let FLARE make its start-up kits of the names; the folder that holds them, moved out of the authority."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config", require_signed_jobs=True),
        _certificates(authority),
    ]
    heard = _Listener()
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        context = Provisioner(str(authority.folder), builders).provision(
            _flare_project(authority.project, names), logger=heard
        )
    if context.get(CtxKey.BUILD_ERROR):
        raise UserError(f"FLARE could not make the kits: {heard.errors[0] if heard.errors else 'it does not say why'}")
    authority.keep_root_only()
    return Path(context[CtxKey.CURRENT_PROD_DIR]).rename(work / "produced")


def _flare_project(project: Project, names: Sequence[str]) -> Any:
    """The project in FLARE's terms, with those who get a kit now; it always wants a server."""
    from nvflare.lighter.entity import Project as FlareProject

    port = project.port
    theirs = FlareProject(project.name, "made by semifl", props={"api_version": 3})
    theirs.set_server(
        project.hub, ORGANISATION, {"fed_learn_port": port, "admin_port": port, "default_host": project.address}
    )
    for name in names:
        if project.kinds[name] == "site":
            theirs.add_client(name, ORGANISATION, {"allow_log_streaming": False})
        elif project.kinds[name] == "operator":
            theirs.add_admin(name, ORGANISATION, {"role": ROLE})
    return theirs


def _certificates(authority: Authority) -> Any:
    """FLARE's maker of certificates, with the project's lifetime where FLARE has 360 days for everybody."""
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.utils import generate_keys

    class Certificates(CertBuilder):  # type: ignore[misc]  # FLARE has no types
        def _generate_cert(self, *words: Any, not_valid_before: Any = None, **more: Any) -> Any:
            # From a day before, for clocks that are behind; the root among them.
            begins = not_valid_before or datetime.now(UTC) - SLOW_CLOCK
            return super()._generate_cert(*words, not_valid_before=begins, **more)

        def get_pri_key_cert(self, participant: Any) -> tuple[Any, Any]:
            key, public = generate_keys()
            now = datetime.now(UTC)
            certificate = self._generate_cert(
                participant.subject,
                participant.org,
                self.issuer,
                self.pri_key,
                public,
                role=participant.get_prop("role"),
                server=participant if participant.type == "server" else None,
                not_valid_after=min(self.root_cert.not_valid_after_utc, now + timedelta(days=authority.project.days)),
            )
            return key, certificate

    return Certificates(root_valid_days=authority.root_days())


def _shape(project: Project, name: str, produced: Path, folder: Path) -> Kit:
    """What goes into a kit out of all that FLARE makes: identity and address, no scripts and no local settings."""
    kind = project.kinds[name]
    startup = folder / "startup"
    startup.mkdir(parents=True)
    for path in (produced / name / "startup").iterdir():
        if path.suffix in (".crt", ".key", ".pem", ".json"):
            path.rename(startup / path.name)
    if kind == "hub" and project.bind == HERE:
        _listen_here_only(startup / "fed_server.json", project.port)
    certificate = _certificate((startup / ("server.crt" if kind == "hub" else "client.crt")).read_bytes())
    kit = Kit(
        folder=folder,
        kind=kind,
        name=name,
        project=project.name,
        made=datetime.now(UTC),
        expires=certificate.not_valid_after_utc.date(),
        version=__version__,
        hub=project.hub,
        address=project.address,
        port=project.port,
        bind=project.bind,
        sites=project.site_order,
    )
    (folder / "kit.toml").write_text(kit.text(), encoding="utf-8")
    if kind == "site":
        from semifl.deploy.policy import TEMPLATE

        kit.policy.write_text(TEMPLATE, encoding="utf-8")
    return kit


def _listen_here_only(file: Path, port: int) -> None:
    """FLARE's server listens on every network, unless its own address is this machine's loopback."""
    content = json.loads(file.read_text(encoding="utf-8"))
    content["servers"][0]["service"]["target"] = f"{HERE}:{port}"
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")


def _resources(kit: Kit) -> dict[str, Any]:
    """FLARE's own parts on this machine, and the only classes a job may name."""
    if kit.kind == "operator":
        limits = {"idle_timeout": 900.0, "login_timeout": 10.0, "with_debug": False, "authenticate_msg_timeout": 2.0}
        return {"format_version": 1, "admin": {**limits, "prompt": "> "}}
    common = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": COMPONENTS[kit.kind],
    }
    return {**common, **(_hub_parts(kit.storage) if kit.kind == "hub" else _site_parts())}


def _hub_parts(storage: Path) -> dict[str, Any]:
    """One job at a time; jobs and snapshots inside the kit, where FLARE would take the system's temporary folder."""
    files = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    launcher = "semifl.deploy.flare.launcher.HubJobLauncher"
    snapshots = {"path": files, "args": {"root_dir": str(storage / "snapshots"), "uri_root": "/"}}
    return {
        "servers": [{"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 30}],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 1, "min_schedule_interval": 1.0},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(storage / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": files},
            {"id": "process_launcher", "path": launcher, "args": {}},
        ],
    }


def _site_parts() -> dict[str, Any]:
    """No log leaves the site: it could hold a path. The number of GPUs is our own trainer's concern, not FLARE's."""
    consumer = "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    return {
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {
                "id": "resource_manager",
                "path": "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
            },
            {"id": "resource_consumer", "path": consumer, "args": {}},
            {
                "id": "process_launcher",
                "path": "semifl.deploy.flare.launcher.SiteJobLauncher",
                "args": {},
            },
        ],
    }


def _logging() -> dict[str, Any]:
    """Everything to log.txt and errors to error_log.txt as well; the console belongs to `semifl`, which reads them."""
    line = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    file = {"class": "logging.handlers.RotatingFileHandler", "formatter": "line", "maxBytes": 2**24, "backupCount": 5}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "semifl.deploy.flare.logs.PlainFormatter", "fmt": line}},
        "handlers": {
            "logFileHandler": {**file, "level": "INFO", "filename": "log.txt"},
            "errorFileHandler": {**file, "level": "ERROR", "filename": "error_log.txt", "delay": True},
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["logFileHandler", "errorFileHandler"]}},
    }


def _own_folders(kit: Kit) -> list[Path]:
    return {"hub": [kit.storage, kit.runs], "site": [kit.memory], "operator": []}[kit.kind]


def _refuse_others(folder: Path, expected: set[str]) -> None:
    """FLARE reads and even runs more files than a kit needs, if they are there."""
    found = {path.name for path in folder.iterdir()}
    if more := sorted(found - expected):
        raise UserError(f"{folder / more[0]} does not belong in a kit: remove it if you know where it comes from")
    if folder.name == "startup" and found != expected:
        raise UserError(f"{folder / min(expected - found)} is missing: {OPEN_AGAIN}")


def _certificate(pem: bytes) -> Any:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(pem)


def _with(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "expires": date.fromisoformat(facts["expires"]), "sites": tuple(facts["sites"])}


@contextlib.contextmanager
def _private() -> Iterator[None]:
    """Files that FLARE writes meanwhile, keys among them, are their owner's alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


class _Listener:
    """FLARE's messages while it makes kits; only its errors are of interest."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, message: str) -> None:
        self.errors.append(message)

    def info(self, message: str) -> None: ...

    debug = warning = info
