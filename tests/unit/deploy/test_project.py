"""project.toml: who takes part, strictly read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from semifl.cli.deploy import app
from semifl.deploy import project
from semifl.errors import UserError

WHOLE = """
name = "lungs"
[hub]
name = "centre"
address = "fl.example.org"
port = 9000
[sites]
names = ["clinic-b", "clinic-a", "clinic-10"]
[operators]
names = ["alice@example.org"]
[certificates]
days = 90
"""


def read(folder: Path, text: str) -> project.Project:
    (folder / "project.toml").write_text(text, encoding="utf-8")
    return project.read(folder / "project.toml")


def test_a_whole_file(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.name, found.hub, found.address, found.port, found.days) == (
        "lungs",
        "centre",
        "fl.example.org",
        9000,
        90,
    )
    assert found.bind == "0.0.0.0"
    assert found.site_order == ("clinic-10", "clinic-a", "clinic-b")  # digits come before letters
    assert list(found.kinds.items()) == [
        ("centre", "hub"),
        ("clinic-10", "site"),
        ("clinic-a", "site"),
        ("clinic-b", "site"),
        ("alice@example.org", "operator"),
    ]


def test_an_editor_may_begin_the_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + WHOLE) == read(tmp_path, WHOLE)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    for bind in (None, "127.0.0.1"):
        made = project.make("lungs", "fl.example.org", ["b", "a"], ["alice@example.org"], port=9000, days=90, bind=bind)
        assert read(tmp_path, made.text()) == made


@pytest.mark.parametrize(
    ("address", "bind"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("10.0.0.5", "0.0.0.0"), ("hub.org", "0.0.0.0")],
)
def test_a_hub_on_loopback_listens_there_only(address: str, bind: str) -> None:
    assert project.bind_for(address) == bind


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("port =", "prot =", "hub.prot is not a key of a project; did you mean 'port'?"),
        ("[sites]", "[site]", "site is not a key of a project; did you mean 'sites'?"),
        ('name = "lungs"', "", "name is missing"),
        ("9000", '"9000"', "hub.port = '9000' has to be a whole number"),
        ("9000", "70000", "hub.port = 70000 is not between 1 and 65535"),
        ("fl.example.org", "fl.example.org:8002", "no port and no IPv6 here"),
        ("fl.example.org", "fl example", "neither a host name nor an IPv4 address"),
        ('"clinic-a"', '"clinic-b"', "sites.names holds 'clinic-b' twice"),
        ('"clinic-a"', '"Clinic A"', "sites.names: 'Clinic A' may hold small letters"),
        ('"clinic-a"', '"../up"', "sites.names: '../up' may hold small letters"),
        ('"clinic-a"', '"server"', "has a meaning of its own"),
        ('"clinic-a"', '"centre"', "hub.name = 'centre' is also the name of a site"),
        ('"clinic-a"', "7", "sites.names has to be a list of texts"),
        ("alice@example.org", "alice", "'alice' is not an e-mail address"),
        ('["alice@example.org"]', "[]", "operators.names is empty"),
        ("days = 90", "days = 0", "certificates.days = 0 is not between 1 and 3650"),
        ("port = 9000", 'bind = "10.0.0.1"', "hub.bind = '10.0.0.1' is neither"),
        ("[hub]", "[hub", "is not valid TOML"),
    ],
)
def test_one_sentence_for_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in WHOLE
    with pytest.raises(UserError) as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert words in str(caught.value)
    assert str(tmp_path / "project.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_init_writes_an_example_and_says_what_to_edit(tmp_path: Path) -> None:
    file = tmp_path / "project.toml"
    result = CliRunner().invoke(app, ["init", str(file)])
    assert result.exit_code == 0
    assert "hub.address, sites.names, operators.names are examples" in result.output
    assert project.read(file).sites == ("clinic-a", "clinic-b")


def test_init_writes_what_it_is_told_and_never_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "project.toml"
    words = ["init", str(file), "--name", "lungs", "--hub", "10.0.0.5", "--port", "9000"]
    words += ["--site", "north", "--site", "south", "--operator", "bob@example.org"]
    result = CliRunner().invoke(app, words)
    assert "example" not in result.output
    assert project.read(file) == project.make("lungs", "10.0.0.5", ["north", "south"], ["bob@example.org"], port=9000)
    before = file.read_bytes()
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, UserError)
    assert "is there already" in str(again.exception)
    assert file.read_bytes() == before
