"""Kits for FLARE: what they hold, how they are renewed, and that processes started from them refuse foreign code."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from semifl.cli.deploy import app
from semifl.deploy import project
from semifl.deploy.flare import provision
from semifl.deploy.kit import Kit, open_kit
from semifl.errors import UserError

pytest.importorskip("nvflare")
LAUNCHER = "nvflare.app_common.executors.client_api_launcher_executor.ClientAPILauncherExecutor"
OUR_EXECUTOR, OUR_CONTROLLER = provision.COMPONENTS["site"][0], provision.COMPONENTS["hub"][0]


def make_all(folder: Path, **changes: Any) -> dict[str, Kit]:
    """Opened and settled kits of a hub, two sites and an operator."""
    who = project.make("lungs", "127.0.0.1", ["clinic-b", "clinic-a"], ["alice@example.org"], **changes)
    made = provision.make_kits(provision.Authority(folder / "authority", who), list(who.kinds), folder / "kits")
    kits = {}
    for one in made:
        kits[one.name] = open_kit(one.file, lambda _, one=one: one.passphrase)  # type: ignore[misc]
        provision.settle(kits[one.name])
    return kits


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kit]:
    return make_all(tmp_path_factory.mktemp("federation"), port=free_port(), days=90)


# --- what the kits hold


def certificate(kit: Kit) -> Any:
    file = kit.startup / ("server.crt" if kit.kind == "hub" else "client.crt")
    return provision._certificate(file.read_bytes())


def test_the_project_decides_how_long_certificates_live(kits: dict[str, Kit]) -> None:
    for kit in kits.values():
        found = certificate(kit)
        assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(
            days=91
        )  # and one before, for clocks
        assert found.not_valid_before_utc < datetime.now(UTC) - timedelta(hours=23)
        assert kit.expires == found.not_valid_after_utc.date()
    root = provision._certificate((kits["hub"].startup / "rootCA.pem").read_bytes())
    assert root.not_valid_after_utc - root.not_valid_before_utc == timedelta(days=3650)


def test_keys_are_their_owners_alone(kits: dict[str, Kit]) -> None:
    authority = kits["hub"].folder.parent.parent / "authority"
    for top in (authority, *(kit.folder for kit in kits.values())):
        for path in (top, *top.rglob("*")):
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    state = json.loads((authority / "lungs" / "state" / "cert.json").read_text(encoding="utf-8"))
    assert state.keys() == {"root_cert", "root_pri_key"}  # nobody else's key stays behind


def test_storage_lies_inside_the_opened_kit(kits: dict[str, Kit]) -> None:
    text = (kits["hub"].local / "resources.json").read_text(encoding="utf-8")
    assert "/tmp/nvflare" not in text
    assert f'"{kits["hub"].storage / "jobs"}"' in text
    assert f'"{kits["hub"].storage / "snapshots"}"' in text


@pytest.mark.parametrize("who", ["hub", "clinic-a"])
def test_flare_itself_takes_our_classes_only(kits: dict[str, Kit], who: str) -> None:
    from nvflare.apis.fl_exception import UnsafeComponentError
    from nvflare.apis.workspace import Workspace
    from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

    workspace = Workspace(str(kits[who].engine), site_name=who)
    authorizer = ComponentPathAuthorizer()
    own = OUR_CONTROLLER if who == "hub" else OUR_EXECUTOR
    authorizer.authorize_component_config({"path": own}, workspace=workspace)
    for path in (LAUNCHER, "subprocess.Popen", "semifl.deploy.sealing.write_private", own + "s"):
        with pytest.raises(UnsafeComponentError, match="is not in allow_list"):
            authorizer.authorize_component_config({"path": path}, workspace=workspace)
    with pytest.raises(UnsafeComponentError, match="name is not allowed"):
        authorizer.authorize_component_config({"name": "SiteExecutor"}, workspace=workspace)


# --- a kit cannot bring more than it should


def test_settling_undoes_what_was_changed_in_local(tmp_path: Path) -> None:
    site = make_all(tmp_path)["clinic-a"]
    file = site.local / "authorization.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"none"', '"any"'), encoding="utf-8")
    provision.settle(site)
    assert json.loads(file.read_text(encoding="utf-8"))["permissions"]["lead"]["byoc"] == "none"


def test_files_and_keys_that_flare_would_obey_are_refused(tmp_path: Path) -> None:
    site = make_all(tmp_path)["clinic-a"]
    for place in (site.startup / "more__resources.json", site.local / "custom"):
        place.mkdir()
        with pytest.raises(UserError, match="does not belong in a kit"):
            provision.settle(site)
        place.rmdir()
    file = site.startup / "fed_client.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**content, "components": []}), encoding="utf-8")
    with pytest.raises(UserError, match="has a key 'components' that no kit has"):
        provision.settle(site)
    file.write_text(json.dumps({**content, "require_signed_jobs": False}), encoding="utf-8")
    with pytest.raises(UserError, match="would take jobs that no operator has signed"):
        provision.settle(site)
    file.unlink()
    with pytest.raises(UserError, match=r"fed_client\.json is missing"):
        provision.settle(site)


@pytest.mark.parametrize("name", ["my kits", "o'brien"])
def test_a_path_that_flare_would_tear_apart_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="a blank, a quote or a backslash in the path"):
        make_all(tmp_path / name)


# --- the command line


def call(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, UserError):
        raise result.exception
    return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "project.toml"
    call("init", file, "--hub", "127.0.0.1", "--name", "lungs", "--site", "clinic-b", "--operator", "alice@example.org")
    return file


def opened(file: Path, output: str, name: str) -> Kit:
    """The kit whose passphrase the table shows."""
    row = next(line.split() for line in output.splitlines() if line.startswith(f"{name} "))
    return open_kit(file.parent / "kits" / f"{name}.kit", lambda _: row[-1])


def test_a_site_that_comes_later_leaves_the_others_alone(file: Path) -> None:
    first = call("kits", file)
    old = opened(file, first.output, "clinic-b")
    before = {path: path.read_bytes() for path in (file.parent / "kits").glob("*.kit")}
    assert "made before" in call("kits", file).output
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('["clinic-b"]', '["clinic-b", "clinic-a"]'), encoding="utf-8")
    second = call("kits", file)
    new = opened(file, second.output, "clinic-a")
    assert {path: path.read_bytes() for path in before} == before
    assert (new.startup / "rootCA.pem").read_bytes() == (old.startup / "rootCA.pem").read_bytes()
    assert new.sites == ("clinic-a", "clinic-b")
    for name in ("hub", "alice@example.org"):  # these two know the sites by name
        assert f"the kit of {name} is from before the project changed" in second.output
    assert "the kit of clinic-b is" not in second.output
    hub = opened(file, call("kits", file, "--again", "hub").output, "hub")
    assert hub.sites == ("clinic-a", "clinic-b")
    assert "the kit of hub is" not in call("kits", file).output


def test_renewed_with_the_same_root(file: Path) -> None:
    old = opened(file, call("kits", file).output, "clinic-b")
    key, root = ((old.startup / name).read_bytes() for name in ("client.key", "rootCA.pem"))
    result = call("renew", file, "clinic-b")
    new = opened(file, result.output, "clinic-b")
    assert new.folder == old.folder
    assert (new.startup / "client.key").read_bytes() != key
    assert (new.startup / "rootCA.pem").read_bytes() == root
    assert "ALL kits" not in result.output


def test_a_root_that_ends_too_early_is_replaced_and_everybody_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "ROOT_DAYS", 10)  # three times the lifetime below is less
    file.write_text(file.read_text(encoding="utf-8").replace("days = 360", "days = 3"), encoding="utf-8")
    old = opened(file, call("kits", file).output, "clinic-b")
    root = (old.startup / "rootCA.pem").read_bytes()
    file.write_text(file.read_text(encoding="utf-8").replace("days = 3 ", "days = 20"), encoding="utf-8")
    refused = call("renew", file, "clinic-b")
    assert "all kits have to be replaced" in str(refused.exception)
    result = call("renew", file)
    assert "ALL kits have to be replaced" in result.output
    assert (opened(file, result.output, "clinic-b").startup / "rootCA.pem").read_bytes() != root
    assert "the kit of clinic-b ends on" in result.output  # 20 days are within the 30 of the warning


def test_who_left_is_named_and_can_be_shut_out(file: Path) -> None:
    call("kits", file)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('["clinic-b"]', '["clinic-c"]'), encoding="utf-8")
    assert "clinic-b is no longer in the project" in call("kits", file).output
    result = call("renew", file, "--new-root")
    assert "ALL kits have to be replaced" in result.output
    assert "clinic-b" not in result.output


def test_an_expired_root_makes_no_kits(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("kits", file)
    long_ago = datetime.now(UTC) - timedelta(days=1)
    monkeypatch.setattr(provision.Authority, "root_expires", lambda self: long_ago)
    assert "the root certificate expired on" in str(call("kits", file, "--again", "hub").exception)


def test_names_and_projects_are_checked(file: Path) -> None:
    call("kits", file)
    assert "did you mean 'clinic-b'?" in str(call("kits", file, "--again", "clinic-d").exception)
    assert "'nobody' is not in the project" in str(call("renew", file, "nobody").exception)
    file.write_text(file.read_text(encoding="utf-8").replace('"lungs"', '"hearts"'), encoding="utf-8")
    assert "belongs to the project 'lungs', not to 'hearts'" in str(call("kits", file).exception)


def test_a_place_that_cannot_be_written_to(file: Path) -> None:
    (file.parent / "kits").write_text("in the way", encoding="utf-8")
    assert f"cannot write {file.parent / 'kits'}: File exists" in str(call("kits", file).exception)


def test_without_the_extra_one_sentence(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = str(call("kits", file).exception)
    assert said == "'semifl deploy kits' needs the flare extra: pip install 'semifl[flare]'"


# --- real processes


@dataclass
class Federation:
    kits: dict[str, Kit]
    session: Any

    def outcome(self, folder: Path) -> dict[str, Any]:
        """Submit a job and wait for its end."""
        job = self.session.submit_job(str(folder))
        found: dict[str, Any] = wait(lambda: self._ended(job), f"the end of {folder.name}")
        return found

    def _ended(self, job: str) -> dict[str, Any] | None:
        meta: dict[str, Any] = self.session.get_job_meta(job)
        return meta if meta["status"].startswith("FINISHED") else None


def wait(ask: Callable[[], Any], what: str, seconds: float = 25) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.2)
    raise TimeoutError(what)


@contextlib.contextmanager
def running(kits: dict[str, Kit]) -> Iterator[Federation]:
    """A hub and two sites as separate processes, all connected, and an operator's session with the hub."""
    with contextlib.ExitStack() as stack:
        for kit in (kit for kit in kits.values() if kit.kind != "operator"):
            stack.enter_context(process(kit))
        session = wait(lambda: log_in(kits["alice@example.org"]), "a session")
        stack.callback(session.close)
        wait(lambda: len(session.get_system_info().client_info) == 2, "both sites")
        yield Federation(kits, session)


@contextlib.contextmanager
def process(kit: Kit) -> Iterator[None]:
    command = provision.hub_command(kit) if kit.kind == "hub" else provision.site_command(kit)
    with (kit.logs / "console.txt").open("wb") as console:
        started = subprocess.Popen(
            command,
            env=provision.environment(kit),
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@pytest.fixture(scope="module")
def federation(kits: dict[str, Kit]) -> Iterator[Federation]:
    with running(kits) as found:
        yield found


def log_in(kit: Kit) -> Any:
    from nvflare.fuel.flare_api.api_spec import NoConnection
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    try:
        return new_secure_session(kit.name, str(kit.folder), timeout=5)
    except NoConnection:
        return None


def a_job(folder: Path, executor: str, controller: str, code: bool = False) -> Path:
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {"name": folder.name, "resource_spec": {}, "min_clients": 2, "deploy_map": {"app": ["@ALL"]}}
    server = {"format_version": 2, "workflows": [{"id": "flow", "path": controller, "args": {}}]}
    client = {"format_version": 2, "executors": [{"tasks": ["*"], "executor": {"path": executor, "args": {}}}]}
    for path, content in {
        folder / "meta.json": meta,
        config / "config_fed_server.json": {**server, "components": []},
        config / "config_fed_client.json": {**client, "components": []},
    }.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    if code:
        (folder / "app" / "custom").mkdir()
        (folder / "app" / "custom" / "evil.py").write_text("raise SystemExit\n", encoding="utf-8")
    return folder


def console_of(kit: Kit) -> str:
    return (kit.logs / "console.txt").read_text(encoding="utf-8")


def test_both_sites_connect(federation: Federation) -> None:
    names = {client.name for client in federation.session.get_system_info().client_info}
    assert names == {"clinic-a", "clinic-b"}
    assert provision.log_file(federation.kits["hub"]).is_file()
    assert provision.log_file(federation.kits["clinic-a"]).is_file()


def test_a_job_with_code_is_refused(federation: Federation, tmp_path: Path) -> None:
    meta = federation.outcome(a_job(tmp_path / "code", OUR_EXECUTOR, OUR_CONTROLLER, code=True))
    assert meta["status"] == "FINISHED:FAILED_TO_RUN"
    assert meta["job_deploy_detail"] == ["server: BYOC not permitted"]


def test_a_job_with_other_classes_is_refused(federation: Federation, tmp_path: Path) -> None:
    other = "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather"
    meta = federation.outcome(a_job(tmp_path / "classes", LAUNCHER, other))
    assert meta["status"] in ("FINISHED:EXECUTION_EXCEPTION", "FINISHED:ABNORMAL")
    refusal = f"Component '{other}' at config path 'workflows.#1' is not in allow_list"
    assert refusal in console_of(federation.kits["hub"])
    assert list((federation.kits["hub"].storage / "jobs").iterdir())


@pytest.mark.parametrize("command", ["pwd server", "ls clinic-a", "shutdown client clinic-a", "sys_info client"])
def test_an_operator_cannot_look_around_or_switch_off(federation: Federation, command: str) -> None:
    assert "not authorized: semifl does not use this command" in str(federation.session.api.do_command(command))


def test_without_the_gate_flare_would_refuse_them_too(kits: dict[str, Kit]) -> None:
    """The rights that FLARE itself checks at the hub, behind the gate."""
    rights = json.loads((kits["hub"].local / "authorization.json").read_text(encoding="utf-8"))["permissions"]["lead"]
    assert {rights[name] for name in ("shell_commands", "operate", "byoc", "clone_job")} == {"none"}


def test_sites_refuse_what_a_hub_of_ill_will_lets_through(tmp_path: Path) -> None:
    kits = make_all(tmp_path, port=free_port())
    hub = kits["hub"].local
    for name, old, new in (
        ("authorization.json", '"byoc": "none"', '"byoc": "any"'),
        ("resources.json", f'"{OUR_CONTROLLER}"', '"*"'),
    ):
        text = (hub / name).read_text(encoding="utf-8")
        assert old in text
        (hub / name).write_text(text.replace(old, new), encoding="utf-8")
    flow = "nvflare.app_common.workflows.scatter_and_gather.ScatterAndGather"
    with running(kits) as federation:
        meta = federation.outcome(a_job(tmp_path / "code", OUR_EXECUTOR, flow, code=True))
        assert meta["status"] == "FINISHED:FAILED_TO_RUN"
        assert "server: OK" in meta["job_deploy_detail"]
        for site in ("clinic-a", "clinic-b"):
            assert any(f"{site}: " in line and "BYOC not permitted" in line for line in meta["job_deploy_detail"])
        federation.outcome(a_job(tmp_path / "launcher", LAUNCHER, flow))
        refusal = f"Component '{LAUNCHER}' at config path 'executors.#1.executor' is not in allow_list"
        for site in ("clinic-a", "clinic-b"):
            wait(lambda site=site: refusal in console_of(kits[site]), f"the refusal of {site}")  # type: ignore[misc]
