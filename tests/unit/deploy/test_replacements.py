"""What semifl replaces in FLARE exists there, and FLARE is of the version that it is made for."""

import importlib.metadata
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.sfm.conn_manager import ConnManager

from semifl.deploy.flare import desk, hardening
from semifl.deploy.flare.provision import need_flare
from semifl.deploy.flare.replacements import Replacement, replace_all
from semifl.errors import UserError


@pytest.mark.parametrize("version", ["2.7.2", "2.8.0", "2.10.0", "2.90.0", "3.0.0", None])
def test_another_flare_is_refused_by_one_sentence(version, monkeypatch):
    def tell(name):
        if version is None:  # as a nightly build, which has another name
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    before = ConnManager.process_frame
    monkeypatch.setattr(importlib.metadata, "version", tell)
    for begin in (lambda: need_flare("hub"), lambda: hardening.harden(("clinic-a",)), desk.harden_desk.__wrapped__):
        with pytest.raises(UserError, match=f"nvflare {version or 'of an unknown version'} is installed") as caught:
            begin()
        assert "\n" not in str(caught.value)
    assert ConnManager.process_frame is before


def test_a_replaced_name_that_does_not_exist_is_an_error_and_nothing_is_replaced(monkeypatch):
    before = ConnManager.process_frame
    monkeypatch.delattr(cell, "_is_server_job_cell")  # as in FLARE 2.7.2
    with pytest.raises(UserError, match=r"no nvflare.fuel.f3.cellnet.cell._is_server_job_cell, which semifl must"):
        hardening.harden(("clinic-a",))
    assert ConnManager.process_frame is before


def test_every_replacement_says_why_and_changes_what_stands_there():
    table = hardening.replacements(frozenset(["clinic-a"]))
    assert len({(id(each.owner), each.name) for each in table}) == len(table) == 14
    assert all(each.why for each in table)
    owner = SimpleNamespace(__name__="owner", answer=41)
    replace_all([Replacement(owner, "answer", lambda own: own + 1, "it is another")])
    assert owner.answer == 42
