"""An opened kit: where things lie, how it is opened and renewed, and when it ends."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from semifl.deploy import sealing
from semifl.deploy.kit import PASSPHRASE, Kit, expect, expiry_warning, open_kit, read_kit, refuse_slow_clock
from semifl.errors import UserError

pytest.importorskip("cryptography")
MADE = datetime(2026, 11, 16, 1, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE, raising=False)


def a_kit(folder: Path, **changes: object) -> Kit:
    kit = Kit(
        folder=folder,
        kind="site",
        name="clinic-b",
        project="lungs",
        made=MADE,
        expires=date(2027, 11, 11),
        version="0.1.0",
        hub="hub",
        address="10.0.0.5",
        port=8002,
        bind="0.0.0.0",
        sites=("clinic-a", "clinic-b"),
    )
    return replace(kit, **changes)  # type: ignore[arg-type]


def sealed(place: Path, key: bytes = b"key 1", **changes: object) -> Path:
    """A kit in a file of its name, with the passphrase "open"."""
    kit = a_kit(place / f"making {datetime.now(UTC).timestamp()}", **changes)
    kit.startup.mkdir(parents=True)
    (kit.startup / "client.key").write_bytes(key)
    kit.policy.write_text("# the template\n", encoding="utf-8")
    (kit.folder / "kit.toml").write_text(kit.text(), encoding="utf-8")
    file = place / f"{kit.name}.kit"
    sealing.seal(kit.folder, file, kit.header(), "open")
    return file


def never(question: str) -> str:
    raise AssertionError(question)


def test_written_and_read_again(tmp_path: Path) -> None:
    kit = a_kit(tmp_path)
    (tmp_path / "kit.toml").write_text(kit.text(), encoding="utf-8")
    assert read_kit(tmp_path) == kit
    assert kit.number == 1
    assert [path.relative_to(tmp_path).as_posix() for path in (kit.startup, kit.local, kit.policy, kit.memory)] == [
        "startup",
        "engine/local",
        "policy.toml",
        "memory",
    ]


def test_opened_beside_its_file_for_the_owner_alone(tmp_path: Path) -> None:
    asked = []
    kit = open_kit(sealed(tmp_path), lambda question: asked.append(question) or "open")  # type: ignore[func-returns-value]
    assert asked == ["passphrase of clinic-b.kit"]
    assert kit.folder == tmp_path / "clinic-b"
    assert stat.S_IMODE(kit.folder.stat().st_mode) == 0o700
    assert not list(tmp_path.glob(".opening-*"))


def test_opened_once_it_needs_no_passphrase(tmp_path: Path) -> None:
    file = sealed(tmp_path)
    first = open_kit(file, lambda _: "open")
    assert open_kit(file, never) == first
    assert open_kit(first.folder, never) == first


def test_the_passphrase_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = sealed(tmp_path)
    with pytest.raises(UserError, match=f"environment variable {PASSPHRASE}"):
        open_kit(file)
    monkeypatch.setenv(PASSPHRASE, "open")
    assert open_kit(file, never).name == "clinic-b"


def test_a_newer_kit_replaces_the_certificates_and_keeps_the_rest(tmp_path: Path) -> None:
    kit = open_kit(sealed(tmp_path), lambda _: "open")
    kit.policy.write_text("# my own\n", encoding="utf-8")
    kit.memory.mkdir()
    (kit.memory / "3").write_bytes(b"remembered")
    (kit.startup / "old.crt").write_bytes(b"of the old kit")
    file = sealed(tmp_path, key=b"key 2", made=MADE + timedelta(days=300), expires=date(2028, 9, 1))
    renewed = open_kit(file, lambda _: "open")
    assert renewed.expires == date(2028, 9, 1)
    assert [path.name for path in kit.startup.iterdir()] == ["client.key"]
    assert (kit.startup / "client.key").read_bytes() == b"key 2"
    assert kit.policy.read_text(encoding="utf-8") == "# my own\n"
    assert (kit.memory / "3").read_bytes() == b"remembered"


def test_an_older_kit_is_refused(tmp_path: Path) -> None:
    open_kit(sealed(tmp_path), lambda _: "open")
    with pytest.raises(UserError, match="is older than the kit in"):
        open_kit(sealed(tmp_path, made=MADE - timedelta(days=1)), never)


def test_what_lies_in_the_way_is_refused(tmp_path: Path) -> None:
    file = sealed(tmp_path)
    (tmp_path / "clinic-b").mkdir()
    with pytest.raises(UserError, match="where something else lies"):
        open_kit(file, never)


def test_a_kit_of_another_project_is_refused(tmp_path: Path) -> None:
    open_kit(sealed(tmp_path), lambda _: "open")
    with pytest.raises(UserError, match="a kit of the project 'lungs', not of 'hearts'"):
        open_kit(sealed(tmp_path, project="hearts", made=MADE + timedelta(days=1)), never)


def test_a_wrong_passphrase_leaves_nothing(tmp_path: Path) -> None:
    file = sealed(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(UserError, match="not the passphrase"):
        open_kit(file, lambda _: "shut")
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("text", ["kind = 'site'\n", "kind = \n"])
def test_a_folder_that_is_no_kit(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"is not a kit: it has no kit\.toml"):
        open_kit(tmp_path)
    (tmp_path / "kit.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"kit\.toml is (damaged|not that of a kit)"):
        open_kit(tmp_path)
    with pytest.raises(UserError, match="there is no kit"):
        open_kit(tmp_path / "nowhere")


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    kit = a_kit(tmp_path / "in", name="../clinic-b")
    kit.folder.mkdir()
    (kit.folder / "kit.toml").write_text(kit.text(), encoding="utf-8")
    sealing.seal(kit.folder, tmp_path / "odd.kit", kit.header(), "open")
    for path in (tmp_path / "odd.kit", kit.folder):
        with pytest.raises(UserError, match="a kit of this version of semifl"):
            open_kit(path, never)


def test_the_wrong_kind_is_told(tmp_path: Path) -> None:
    kit = a_kit(tmp_path / "clinic-b")
    assert expect(kit, "site", "site") is kit
    with pytest.raises(UserError) as caught:
        expect(kit, "hub", "hub")
    assert str(caught.value) == "clinic-b is the kit of a site; 'semifl deploy hub' needs the hub's"


@pytest.mark.parametrize(("days", "words"), [(31, None), (30, "in 30 days"), (1, "in 1 day:"), (0, "in 0 days")])
def test_a_warning_from_thirty_days_before(tmp_path: Path, days: int, words: str | None) -> None:
    kit = a_kit(tmp_path)
    today = kit.expires - timedelta(days=days)
    said = expiry_warning(kit, today)
    assert kit.days_left(today) == days
    assert (said is None) if words is None else (words in str(said))


def test_an_error_afterwards(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the kit of clinic-b expired on 2027-11-11"):
        expiry_warning(a_kit(tmp_path), date(2027, 11, 12))


def test_a_clock_that_is_behind_is_named(tmp_path):
    kit = a_kit(tmp_path)
    refuse_slow_clock(kit, kit.made - timedelta(hours=20))
    with pytest.raises(UserError, match=r"this machine's clock says .* set the clock"):
        refuse_slow_clock(kit, kit.made - timedelta(hours=30))
