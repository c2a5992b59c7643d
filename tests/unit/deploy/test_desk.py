"""An operator's machine and a hub of ill will: where files land, and how much of the disk they take."""

import shutil
import zipfile
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from nvflare.fuel.f3.streaming import file_downloader
from nvflare.fuel.hci.client import file_transfer

from semifl.deploy.flare import desk

JOB = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture(autouse=True)
def hardened():
    desk.harden_desk()
    desk.refusals.clear()
    yield
    desk.refusals.clear()


@pytest.fixture
def disk(monkeypatch):
    """A disk of so many free bytes."""
    return lambda free: monkeypatch.setattr(desk.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


def pull(folder, transaction, name):
    """What FLARE does when a hub has named a file of a result."""
    (folder / "up").mkdir()
    (folder / "down").mkdir()
    module = file_transfer.FileTransferModule(str(folder / "up"), str(folder / "down"))
    asked = []

    def receive(command, cmd_ctx):
        asked.append(cmd_ctx.receiver.file_name)
        return {file_transfer.ProtoKey.STATUS: "SUCCESS"}

    context = SimpleNamespace(
        get_command_entry=lambda: None, get_command=lambda: "", get_api=lambda: api, set_requester=None
    )
    context.set_requester = lambda receiver: setattr(context, "receiver", receiver)
    api = SimpleNamespace(server_execute=receive, fire_session_event=lambda *_: None, debug=lambda *_: None)
    result = module.pull_binary_file(["pull", "server", transaction, "ref", JOB, name], context)
    return asked, result


def test_a_results_file_lands_in_its_folder(tmp_path):
    asked, _ = pull(tmp_path, JOB, "workspace.zip")
    assert asked == [str(tmp_path / "down" / f"{JOB}__{JOB}" / "workspace.zip")]


@pytest.mark.parametrize(
    ("transaction", "name"),
    [
        (JOB, "../../startup/client.key"),
        (JOB, "/home/alice/.ssh/authorized_keys"),
        (JOB, "job.zip/../../x"),
        (JOB, "other.zip"),
        ("../../elsewhere", "job.zip"),
    ],
)
def test_a_hub_does_not_choose_where_files_land(tmp_path, transaction, name):
    asked, result = pull(tmp_path, transaction, name)
    assert asked == []
    assert result[file_transfer.ProtoKey.STATUS] != "SUCCESS"
    assert desk.refusals == [f"the hub gives a result's file the name {name!r}"]


def test_a_download_ends_where_it_has_taken_half_of_the_disk(tmp_path, disk):
    consumer = file_downloader._ChunkConsumer(str(tmp_path))
    for received in range(0, 500, 100):  # of 1,000 that were free
        disk(1000 - received)
        consumer.consume("ref", {}, bytes(100))
    disk(500)
    with pytest.raises(ValueError, match="than there is room for"):
        consumer.consume("ref", {}, bytes(100))
    consumer.file.close()
    assert consumer.total_bytes == 500
    assert desk.refusals


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked(tmp_path, disk):
    with zipfile.ZipFile(tmp_path / "workspace.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("model.safetensors", bytes(1 << 20))
    (tmp_path / "out").mkdir()
    assert (tmp_path / "workspace.zip").stat().st_size < 10_000
    disk((2 << 20) - 2)
    with pytest.raises(ValueError, match="than there is room for"):
        file_transfer.unzip_all_from_file(str(tmp_path / "workspace.zip"), str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []
    disk(2 << 20)
    file_transfer.unzip_all_from_file(str(tmp_path / "workspace.zip"), str(tmp_path / "out"))
    assert (tmp_path / "out/model.safetensors").stat().st_size == 1 << 20


def test_hardened_once_however_many_lines_are_opened():
    before = file_transfer.FileTransferModule.pull_binary_file, shutil.disk_usage
    desk.harden_desk()
    assert (file_transfer.FileTransferModule.pull_binary_file, shutil.disk_usage) == before
