"""What a site keeps for itself: whose pictures a run began with, and files that no run's name can meet."""

import logging

from by_hand import transport_to
from federated_pictures import SITES, make_federation, paint, run_table
from semifl.deploy.hub import Hub, run_federation
from semifl.deploy.pictures import OTHER_PICTURES
from semifl.deploy.policy import Policy, Privacy
from semifl.deploy.privacy import Ledger
from semifl.running.context import Silent


def test_a_site_with_other_pictures_is_told_to_its_owner_and_to_nobody_else(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    hub = Hub(pictures, tmp_path / "runs", SITES)

    def played(rounds):
        transport = transport_to(pictures, tmp_path, Policy(), trains_apart=False)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            run_federation(hub, f"run-{rounds}", run_table(rounds), transport, Silent())
        transport.close()
        return transport.packets, [each for each in caplog.messages if OTHER_PICTURES in each]

    assert played(1)[1] == []
    assert played(1)[1] == []  # the hub has finished: nobody is asked
    (tmp_path / "runs" / "run-1" / "result.json").unlink()
    packets, told = played(1)  # asked again, with the same pictures
    assert packets
    assert told == []
    paint(pictures / "clients" / SITES[1], (0, 0, 0), 2, 999)
    (tmp_path / "runs" / "run-1" / "result.json").unlink()
    packets, told = played(1)
    assert told == [f"{OTHER_PICTURES}: 18 when this run was last here, 20 now"]
    assert not any(b"18 when" in answer or OTHER_PICTURES.encode() in answer for _, _, answer in packets)


def test_a_run_named_like_a_file_of_the_site_harms_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    policy = Policy(privacy=Privacy(clip=0.05, noise=1.0))
    for name in ("privacy.json", "runs", "startup"):
        transport = transport_to(pictures, tmp_path, policy, trains_apart=False)
        run_federation(Hub(pictures, tmp_path / "runs", SITES), name, run_table(1), transport, Silent())
        transport.close()
    ledger = tmp_path / "memory" / SITES[0] / "privacy.json"
    assert ledger.is_file()
    assert Ledger(ledger)._releases() == {1.0: 3}
