"""`semifl report` as a person types it, right and wrong."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from semifl import toml
from semifl.cli import invoke
from toys import toy_table
from written_runs import round_line, write_run

Output = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [round_line(1), round_line(2)])


def test_one_run_gets_its_page_beside_its_files(run: Path, capsys: Output) -> None:
    assert invoke(["report", str(run)]) == 0
    assert "<!doctype html>" in (run / "report.html").read_text()
    assert str(run / "report.html") in capsys.readouterr().out


def test_several_runs_get_one_page(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", [round_line(1)], seed=1)
    assert invoke(["report", str(run), str(other), "-o", str(tmp_path / "both.html")]) == 0
    assert "semifl on toys, 2 runs" in (tmp_path / "both.html").read_text()


def test_what_is_no_run_is_one_sentence(tmp_path: Path, capsys: Output) -> None:
    assert invoke(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"semifl: there is no run directory {tmp_path / 'nowhere'}\n"


def test_a_page_that_cannot_be_written_is_one_sentence(run: Path, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").touch()
    assert invoke(["report", str(run), "-o", str(tmp_path / "file" / "report.html")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("semifl: cannot write")
    assert error.count("\n") == 1


def test_report_does_not_import_torch(run: Path) -> None:
    code = (
        f"import sys; from semifl.cli import invoke; invoke(['report', {str(run)!r}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_port_in_use_is_one_sentence(run: Path, capsys: Output) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert invoke(["report", str(run), "--watch", "--port", str(port)]) == 2
    expected = f"semifl: cannot serve on port {port}: it is in use; choose another with --port\n"
    assert capsys.readouterr().err == expected


def get(port: int, path: str, host: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_watch_serves_the_page_until_ctrl_c(run: Path) -> None:
    command = [sys.executable, "-m", "semifl", "report", str(run), "--watch", "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        assert address
        port = int(address[1])
        before = get(port, "/stamp")
        assert get(port, "/")[0] == 200
        assert f'data-stamp="{before[1]}"' in get(port, "/")[1]
        (run / "events.jsonl").write_text('{"event": "resumed"}\n')
        assert get(port, "/stamp") != before
        assert get(port, "/config.toml")[0] == 404
        assert get(port, "/", "elsewhere.example")[0] == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr
        assert "Traceback" not in process.stderr.read()


def test_a_run_ends_with_its_report_and_with_advice(tmp_path: Path, capsys: Output) -> None:
    config, run = tmp_path / "config.toml", tmp_path / "run"
    config.write_text(toml.dumps(toy_table(threshold=1.0)))
    assert invoke(["run", str(config), "--out", str(run), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"report       {run / 'report.html'}"
    assert "confident about nothing in the last 3 rounds" in out
    assert "method.threshold (now 1.0)" in out
    assert len([line for line in out.splitlines() if line.startswith("note ")]) <= 3
    page = (run / "report.html").read_text()
    assert "confident about nothing in the last 3 rounds" in page
    assert 'id="gallery-confident"' in page
