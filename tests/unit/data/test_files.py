"""Where data sets live, and downloads from a server on this machine that behaves in every way a server can."""

import hashlib
import re
import shutil
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from semifl.data.files import Download, Published, fetch, place
from semifl.errors import UserError
from semifl.machine import home

CONTENT = bytes(range(256)) * 300
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """The first step of the path says how to behave; every request is written down."""

    def do_GET(self):
        start = int(re.findall(r"\d+", self.headers.get("Range", "0"))[0])
        behaviour = self.path.split("/")[1]
        self.server.requests.append((behaviour, start))
        if behaviour == "absent":
            return self.send_error(404)
        if behaviour == "resuming" and start >= len(CONTENT):
            return self.send_error(416)
        resumes = behaviour == "resuming" and start > 0
        body = CONTENT[start:] if resumes else CONTENT
        body = b"x" * len(body) if behaviour == "wrong" else body
        self.send_response(206 if resumes else 200)
        if behaviour != "chunkless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000] if behaviour == "breaking" else body)
        return None

    def log_message(self, *_):
        """Be quiet."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.requests = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def source(server, *behaviours, md5=MD5):
    """A data set of one file whose mirrors behave as told."""
    urls = tuple(f"http://127.0.0.1:{server.server_address[1]}/{behaviour}/toy.bin" for behaviour in behaviours)
    files = Published("toy", "https://example.org/toy", (Download("toy.bin", md5, urls),))
    return SimpleNamespace(FILES=files)


def test_home_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert home("svhn") == tmp_path / "here" / "svhn"
    monkeypatch.delenv("SEMIFL_DATA")
    assert home("svhn") == tmp_path / "cache" / "semifl" / "svhn"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert home("svhn") == Path.home() / ".cache" / "semifl" / "svhn"
    assert place("svhn", str(tmp_path)) == tmp_path


def test_a_download_arrives_verified_and_reports_progress(server, tmp_path):
    seen = []

    folder = fetch(source(server, "resuming"), str(tmp_path / "new" / "folder"), lambda *step: seen.append(step))

    assert folder == tmp_path / "new" / "folder"
    assert (folder / "toy.bin").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["toy.bin"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_file_that_is_there_is_not_fetched_again(server, tmp_path):
    (tmp_path / "toy.bin").write_bytes(CONTENT)
    fetch(source(server, "resuming"), str(tmp_path))
    assert server.requests == []


def test_a_damaged_file_is_fetched_again(server, tmp_path):
    (tmp_path / "toy.bin").write_bytes(CONTENT[:-1])
    fetch(source(server, "resuming"), str(tmp_path))
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("behaviour", ["resuming", "ignoring", "chunkless"])
def test_a_partial_download_is_resumed_or_restarted(server, tmp_path, behaviour):
    (tmp_path / "toy.bin.part").write_bytes(CONTENT[:5000])

    fetch(source(server, behaviour), str(tmp_path))

    assert server.requests == [(behaviour, 5000)]
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT
    assert not (tmp_path / "toy.bin.part").exists()


def test_a_complete_part_needs_no_more_bytes(server, tmp_path):
    (tmp_path / "toy.bin.part").write_bytes(CONTENT)
    fetch(source(server, "resuming"), str(tmp_path))
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT


def test_a_wrong_checksum_deletes_the_part_and_says_so(server, tmp_path):
    with pytest.raises(UserError, match="wrong checksum and was deleted") as caught:
        fetch(source(server, "wrong"), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert f"put toy.bin from https://example.org/toy into {tmp_path}" in str(caught.value)


def test_mirrors_are_tried_in_order(server, tmp_path):
    fetch(source(server, "absent", "wrong", "resuming"), str(tmp_path))
    assert server.requests == [("absent", 0), ("wrong", 0), ("resuming", 0)]
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT


def test_a_connection_that_breaks_off_keeps_what_came(server, tmp_path):
    with pytest.raises(UserError, match=r"broke off after 1,000 of 76,800 bytes, which are kept"):
        fetch(source(server, "breaking"), str(tmp_path))
    assert (tmp_path / "toy.bin.part").read_bytes() == CONTENT[:1000]

    fetch(source(server, "resuming"), str(tmp_path))
    assert server.requests[-1] == ("resuming", 1000)
    assert (tmp_path / "toy.bin").read_bytes() == CONTENT


def test_a_page_that_is_not_there_is_named(server, tmp_path):
    with pytest.raises(UserError, match=r"absent/toy\.bin: HTTP Error 404"):
        fetch(source(server, "absent"), str(tmp_path))


def test_without_a_network_the_sentence_says_what_to_put_where(tmp_path):
    with unused_port() as port:
        closed = SimpleNamespace(server_address=("127.0.0.1", port))
        with pytest.raises(UserError) as caught:
            fetch(source(closed, "gone"), str(tmp_path))
    assert str(caught.value) == (
        f"toy.bin could not be downloaded (http://127.0.0.1:{port}/gone/toy.bin: Connection refused): "
        f"try again later, or put toy.bin from https://example.org/toy into {tmp_path}."
    )


@contextmanager
def unused_port():
    """A port that is bound, so nobody else takes it, and does not listen, so connections are refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_full_disk_is_noticed_before_anything_is_written(server, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50_000))
    with pytest.raises(UserError, match=r"has room for 0 MB and toy\.bin needs 0 MB more"):
        fetch(source(server, "resuming"), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/toys cannot be made"):
        fetch(source(server, "resuming"), str(tmp_path / "file" / "toys"))
