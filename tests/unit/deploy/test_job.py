"""Jobs that are made to fill a site's or the hub's memory or disk are refused before anything of them is unpacked."""

import io
import json
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.private.admin_defs import Message

from semifl.deploy.flare.engine import remove_old_jobs, use_empty_temporary_folder
from semifl.deploy.flare.hardening import _reduced_orders
from semifl.deploy.flare.job import LARGEST_PACKED, refuse_packed, write_job

SIGNATURE = ".__nvfl_sig.json"  # FLARE reads it with json.load, before it knows who signed
# The four jobs of the review: unpacked megabytes of one member.
BOMBS = [(SIGNATURE, 1500), ("extra.bin", 1500), ("config/other.bin", 3000), (SIGNATURE, 2500)]

# A site's engine and a hub's, as they are when a message has been let through the gate.
JUDGE = """
import json, sys
from types import SimpleNamespace
from pathlib import Path
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.training_cmds import DeployProcessor
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.fuel.f3.cellnet.defs import MessagePropKey
from nvflare.fuel.f3.message import Message as CellMessage
from semifl.deploy.flare.hardening import harden
def peak():  # in kB; resource.getrusage would count the process that began this one
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
harden(("clinic-a",))
site = object.__new__(FedAdminAgent)
site.auditor, site.processors, site.app_ctx = None, {"train.deploy": DeployProcessor()}, None
before, said = peak(), []
for path in sys.argv[1:]:
    order = Message("train.deploy", Path(path).read_bytes())
    request = CellMessage({}, order)
    request.set_prop(MessagePropKey.ENDPOINT, SimpleNamespace(name="server"))
    said.append(site._dispatch_request(request).payload.body)
    said.append(JobMetaValidator().validate("job", path)[1])
print(json.dumps({"said": said, "peak": peak() // 1024, "more": (peak() - before) // 1024}))
"""


def bomb(name: str, megabytes: int) -> bytes:
    """Return a zip file of about a thousandth of what it holds, made without compressing all of it."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    unit = stream.compress(b" " * 2**20) + stream.flush(zlib.Z_FULL_FLUSH)  # such blocks may be repeated
    data = unit * megabytes + b"\x03\x00"
    info = zipfile.ZipInfo(name)
    info.compress_type, info.file_size, info.compress_size = zipfile.ZIP_DEFLATED, megabytes << 20, len(data)
    info.CRC = info.header_offset = 0
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        packed.write(info.FileHeader(False) + data)
        archive.filelist.append(info)
        archive.start_dir, archive._didModify = packed.tell(), True
    return packed.getvalue()


def packed(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux tells it")
def test_the_bombs_of_the_review_cost_the_engines_of_site_and_hub_next_to_nothing(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.zip" for number in range(len(BOMBS) + 1)]
    for path, content in zip(files, [*(bomb(*each) for each in BOMBS), bomb(SIGNATURE, 400)], strict=True):
        path.write_bytes(content)
    assert 1.4e6 < files[0].stat().st_size < 1.7e6  # as in the review
    assert files[-1].stat().st_size < LARGEST_PACKED  # refused by what its list of members declares
    (tmp_path / "temporary").mkdir()
    judged = subprocess.run(
        [sys.executable, "-c", JUDGE, *map(str, files)],
        env={"PATH": "", "TMPDIR": str(tmp_path / "temporary"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(judged.stdout.splitlines()[-1])
    assert len(found["said"]) == 10
    assert all("is larger than any of semifl's" in each for each in found["said"]), found["said"]
    assert found["peak"] < 120, found  # megabytes, what importing FLARE takes among them
    assert found["more"] < 20, found


def test_semifls_own_jobs_pass(tmp_path: Path) -> None:
    sites = [f"clinic-{number}" for number in range(1000)]
    table = {"model": {"name": "cnn"}, "method": {"name": "semifl"}}
    job = write_job(tmp_path, "a-run", table, sites, 1)
    assert refuse_packed(zip_directory_to_bytes(str(tmp_path), job.name)) == ""
    assert refuse_packed(zip_directory_to_bytes(str(job / "app_site"), "")) == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (packed({f"config/{number}": b"" for number in range(33)}), "33 members"),
        (packed({"config/a.json": b" " * (2**18 + 1)}), "1 members and 262,145 bytes"),
        (packed({f"{number}.json": b" " * 2**18 for number in range(5)}), "5 members and 1,310,720 bytes"),
        (packed({"a.json": b"{}"}, zipfile.ZIP_LZMA), "compressed in a way"),
        (packed({"a.json": b"{}"})[:-30], "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=["many", "large member", "large in all", "another compression", "cut off", "empty"],  # a zip holds the time
)
def test_a_job_that_is_no_job_of_ours_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "job.zip").write_bytes(content)
    assert reason in refuse_packed(content)
    assert reason in refuse_packed(str(tmp_path / "job.zip"))


def test_a_member_that_declares_less_than_it_holds_is_not_unpacked_beyond_that(tmp_path: Path) -> None:
    lies = bomb("config/a.json", 100).replace((100 << 20).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert refuse_packed(lies) == ""
    with zipfile.ZipFile(io.BytesIO(lies)) as archive, pytest.raises(zipfile.BadZipFile):
        archive.extractall(tmp_path)
    assert (tmp_path / "config" / "a.json").stat().st_size <= 1000


def test_what_a_killed_engine_left_in_its_temporary_folder_is_removed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    folder = tmp_path / "temporary"
    (folder / "tmp1234").mkdir(parents=True)
    (folder / "tmp1234" / "extra.bin").write_bytes(b"0" * 1000)
    use_empty_temporary_folder(folder)
    assert list(folder.iterdir()) == []
    with tempfile.TemporaryDirectory() as staging:  # as FLARE does
        assert Path(staging).parent == folder


def test_folders_of_earlier_jobs_are_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = ["local", "startup", "transfer", "temporary", "0a1b2c3d", "0a1b2c3d-1111-2222-3333-0123456789ab.txt"]
    for name in (*kept, "0a1b2c3d-1111-2222-3333-0123456789ab"):
        (tmp_path / name / "app_site").mkdir(parents=True)
    remove_old_jobs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_site_runs_two_jobs_at_once_at_most() -> None:
    """The job that ends and the one that follows it: a hub that starts twelve has ten refused."""
    names = [f"0a1b2c3d-1111-2222-3333-{number:012x}" for number in range(12)]
    running: list[str] = []

    def start(self: object, request: SimpleNamespace) -> SimpleNamespace:
        time.sleep(0.01)  # as long as a process takes to be begun, more orders come
        running.append(request.payload.get_header("job_id"))
        return SimpleNamespace(payload=SimpleNamespace(body="Start the client app..."))

    site = SimpleNamespace(app_ctx=SimpleNamespace(get_all_job_ids=lambda: list(running)))
    obey = _reduced_orders(start)

    def order(job: str) -> str:
        message = Message("train.start_job", "")
        message.set_header("job_id", job)
        endpoint = SimpleNamespace(name="server")
        return obey(site, SimpleNamespace(payload=message, get_prop=lambda _: endpoint)).payload.body

    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(order, names))
    assert len(running) == 2
    assert sorted(said) == ["2 jobs are running here"] * 10 + ["Start the client app..."] * 2
    running.pop()  # one has ended
    assert order(names[5]) == "Start the client app..."
    assert order(running[0]) == "Start the client app..."  # FLARE says that it is started already
