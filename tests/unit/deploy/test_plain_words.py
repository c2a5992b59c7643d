"""What a hub, a site or a file's name says reaches a terminal or a log as plain text, on one line."""

import logging
import logging.config
from types import SimpleNamespace

import pytest
from rich.console import Console

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from semifl import cli
from semifl.cli import predict
from semifl.cli.deploy import status
from semifl.cli.deploy.run import RoundLines
from semifl.deploy import wire
from semifl.deploy.flare.provision import _logging
from semifl.deploy.policy import Policy
from semifl.deploy.site import Site
from semifl.errors import UserError
from semifl.running.terminal import Bar, Lines, Live
from semifl.trained.prediction import Prediction
from semifl.words import printable

EVIL = "[/x] [link=file:///etc]a[/link] :smile: \x1b]52;c;cm0gLXJmIH4=\x07 \x9b2J \r\n2026-11-19 - forged \u202egnp"
PLAIN = "[/x] [link=file:///etc]a[/link] :smile: \\x1b]52;c;cm0gLXJmIH4=\\x07 \\x9b2J \\r\\n2026-11-19 - forged"


def plain(text: str) -> bool:
    """Return True if the words of a peer are there, and nothing that steers a terminal."""
    return PLAIN in "".join(text.split("\n")) and all(sign.isprintable() or sign == "\n" for sign in text)


def test_an_operator_reads_a_hubs_words_and_obeys_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    watcher = RoundLines()
    watcher.said(f"warning: {EVIL}")
    watcher.said(EVIL)
    record = {"round": EVIL, "accuracy": 1.0, "label_ratio": None, "cohort": [0], "replies": [], "failed": {}}
    monkeypatch.setattr("semifl.running.terminal.facts_of", lambda *_: EVIL)
    watcher.round(record, None, "accuracy", 3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(map(plain, lines))


def test_status_shows_a_hubs_words_and_obeys_none(capsys):
    news = {"baseline": None, "config": "rounds = 3\n", "sites": {"clinic-a": {"outcome": EVIL, "reason": EVIL}}}
    line = SimpleNamespace(
        connected=lambda: ["clinic-a"], running=lambda: {"job": f"semifl-{EVIL}"}, ask=lambda job, question: news
    )
    status._federation(SimpleNamespace(address="127.0.0.1", port=8002, sites=("clinic-a",)), line)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(map(plain, lines[1:]))


@pytest.mark.parametrize("error", [UserError(f"the hub refuses the job: {EVIL}"), UserError(EVIL)])
def test_a_sentence_with_a_hubs_words_is_plain(error, capsys):
    assert cli._say_error(error, [], 2) == 2
    assert all(sign.isprintable() for sign in capsys.readouterr().err.replace("\n", ""))


def test_warnings_of_a_run_are_plain(capsys):
    console = Console(width=1000, force_terminal=False)
    Live(Bar(console=console)).warn(EVIL)
    Lines().warn(EVIL)
    out, err = capsys.readouterr()
    assert plain(out)
    assert plain(err.replace("preparing\n", ""))


def test_an_order_writes_no_line_of_its_own_into_a_sites_log(tmp_path, caplog):
    site = Site("clinic-a", tmp_path, None, Policy(), tmp_path / "memory")
    site.answer(wire.pack("hello", {"order": {"semifl": EVIL}}))
    assert len(caplog.messages) == 1
    assert plain(caplog.messages[0])


def test_what_follows_a_line_break_in_a_log_is_indented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = _logging()
    settings["loggers"] = {"semifl.test_log": {"level": "INFO", "handlers": ["logFileHandler"]}}
    logging.config.dictConfig(settings)
    log = logging.getLogger("semifl.test_log")
    try:
        log.warning("refused from %s: %s", "server", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            log.exception("failed")
    finally:
        for handler in list(log.handlers):
            handler.close()
            log.removeHandler(handler)
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    first, second = (line for line in lines if not line.startswith("    "))
    assert "refused from server" in first
    assert "failed" in second
    assert "\x1b" not in (tmp_path / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("write", [predict._write_lines, predict._write_json, predict._write_csv])
def test_predict_writes_names_of_files_and_classes_that_steer_no_terminal(write, tmp_path, capsys):
    known = Prediction(tmp_path / EVIL.replace("/", "-"), EVIL, 0.9, "", (0.9, 0.1))
    unknown = Prediction(tmp_path / "b\n.png", "", 0.0, EVIL, ())
    assert write(iter([known, unknown]), (EVIL, "b")) == 1
    out = capsys.readouterr().out
    assert len(out.splitlines()) == (3 if write is predict._write_csv else 2)
    assert all(sign.isprintable() or sign in "\n\r\t" for sign in out)
    assert "\r" not in out.replace("\r\n", "\n")  # the csv module ends its lines so


@pytest.mark.parametrize("name", ["scan 1.png", "Größe-ß-患者.png", "a'b\"c\\d.png", ""])
def test_ordinary_names_stay_as_they_are(name):
    assert printable(name) == name


def test_bytes_that_are_no_text_are_escaped():
    assert printable(b"a\xe4.png".decode("utf-8", "surrogateescape")) == "a\\xe4.png"
