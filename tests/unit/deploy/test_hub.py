import json

import pytest

from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl.data.duplicates import duplicates
from semifl.deploy import wire
from semifl.deploy.hub import Hub, Sites, _tried, hub_config, read_settings, run_federation
from semifl.deploy.pictures import HUBS_OWN_MATTER
from semifl.deploy.policy import Policy
from semifl.deploy.remote import Answer, NotEnoughSites, Told
from semifl.deploy.settings import Settings
from semifl.errors import UserError
from semifl.methods.semifl import SemiFL
from semifl.records.directory import RunDirectory
from semifl.running.context import Silent
from semifl.running.loop import resume


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    return Hub(make_federation(tmp_path / "pictures"), tmp_path / "runs", SITES)


@pytest.fixture
def transport(hub, tmp_path):
    transport = transport_to(hub.data, tmp_path, Policy())
    yield transport
    transport.close()


def sites(tmp_path):
    return Sites(None, {"sites": list(SITES)}, Settings(), RunDirectory(tmp_path), SemiFL(), {})


def test_a_site_that_takes_much_longer_than_the_others_is_called_slow(tmp_path):
    here = sites(tmp_path)
    for site, outcome, seconds in (
        ("clinic-a", "trained", 2.0),
        ("clinic-b", "trained", 3.5),
        ("clinic-c", "trained", 9),
    ):
        here.tell(Told(site, outcome, "", seconds, 3))
    # Half of them take 3.5 s or less; 9 is more than twice that.
    assert [site for site, entry in here.status().items() if entry.get("slow")] == ["clinic-c"]
    here.tell(Told("clinic-a", "late", "no answer within 60 s", 60.0, 3))
    assert here.status()["clinic-a"]["slow"]
    assert json.loads((tmp_path / "events.jsonl").read_text())["site"] == "clinic-a"


def test_a_tenth_of_a_second_is_not_slow(tmp_path):
    here = sites(tmp_path)
    here.tell(Told("clinic-a", "trained", "", 0.1, 3))
    here.tell(Told("clinic-b", "trained", "", 0.9, 3))
    assert not any(entry.get("slow") for entry in here.status().values())


def test_the_hub_fills_in_its_own_folder_and_sites(tmp_path):
    table = {**run_table(), "data": {"name": "folder", "root": "/operators/own", "size": 16, "clients": 9}}
    config = hub_config(table, Hub(tmp_path, tmp_path, SITES))
    assert (config.data.thing.root, config.data.thing.sites, config.data.thing.size) == (str(tmp_path), SITES, 16)
    assert config.split.clients is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"name": "digits"}}, "folders of pictures"),
        ({"data": {"name": "os:system"}}, "folders of pictures"),
        ({"method": {"name": "centralized", "objective": {"name": "fixmatch"}}}, "pictures in one place"),
        ({"method": {"name": "os:system"}}, "built into semifl"),
        ({"rouns": 3}, "did you mean 'rounds'"),
        ({"data": {"strong_view": "textwrap:dedent"}}, "is code"),
    ],
)
def test_what_no_federation_can_run_is_refused(tmp_path, change, sentence):
    with pytest.raises(UserError, match=sentence):
        hub_config({**run_table(), **change}, Hub(tmp_path, tmp_path, SITES))


def test_settings_are_their_own_section():
    settings, rest = read_settings({"rounds": 2, "deploy": {"deadline": 5.0}})
    assert (settings.deadline, rest) == (5.0, {"rounds": 2})
    with pytest.raises(UserError, match="did you mean 'deadline'"):
        read_settings({"deploy": {"dedline": 5.0}})
    with pytest.raises(UserError, match="must be a section"):
        read_settings({"deploy": 3})


def test_more_updates_than_sites_can_never_come(hub, transport):
    table = {**run_table(), "deploy": {"min_updates": 4}}
    with pytest.raises(UserError, match="has 3 sites"):
        run_federation(hub, "run", table, transport, Silent())


def test_a_run_that_lost_its_sites_goes_on_exactly_where_it_was(hub, transport):
    """The second round finds nobody; later everyone is back, and the bits are those of an undisturbed run."""
    exchange = transport.exchange

    def nobody(packets, seconds, largest):
        for site in packets:
            yield Answer(site, None, "it is not connected", 0.0)

    class Leaves(Silent):
        def round(self, record, best):
            transport.exchange = nobody

    with pytest.raises(NotEnoughSites, match="round 2: 0 of 3 sites answered"):
        run_federation(hub, "broken", run_table(), transport, Leaves())
    transport.exchange = exchange
    run_federation(hub, "broken", run_table(), transport, Silent())
    run_federation(hub, "whole", run_table(), transport, Silent())
    digests = [[each["digest"] for each in RunDirectory(hub.runs / name).rounds()] for name in ("broken", "whole")]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 3


def test_a_round_that_one_absent_site_holds_up_goes_on_with_another(hub, transport):
    """One site a round, and the one that is drawn has left for good."""
    exchange, asked = transport.exchange, []
    table = run_table(rounds=1)
    table["method"] = {**table["method"], "activity_rate": 0.1}

    def without_the_first(packets, seconds, largest):
        if "round" not in wire.facts_of(next(iter(packets.values()))):  # a greeting
            yield from exchange(packets, seconds, largest)
            return
        asked.extend(packets)
        gone = [site for site in packets if site == asked[0]]
        for site in gone:
            yield Answer(site, None, "it is not connected", 0.0)
        yield from exchange({site: packets[site] for site in packets if site not in gone}, seconds, largest)

    transport.exchange = without_the_first
    with pytest.raises(NotEnoughSites, match="round 1: 0 of 1 sites answered"):
        run_federation(hub, "run", table, transport, Silent())
    assert len(set(asked)) == 1
    assert run_federation(hub, "run", table, transport, Silent())["rounds"] == 1
    assert len(set(asked)) == 2


def test_sites_that_were_silent_have_their_turn_again_when_all_have_been(tmp_path):
    directory = RunDirectory(tmp_path)
    for index, silent in ((1, ["a"]), (2, ["a"]), (2, ["b"])):
        directory.add_event("round tried", round=index, silent=silent)
    assert _tried(directory, {"a", "b", "c"}) == {1: {"a"}, 2: {"a", "b"}}
    directory.add_event("round tried", round=2, silent=["c"])
    assert _tried(directory, {"a", "b", "c"}) == {1: {"a"}, 2: {"c"}}


def test_a_run_of_the_same_name_does_not_inherit_memories(hub, transport, tmp_path):
    run_federation(hub, "run", run_table(), transport, Silent())
    (hub.runs / "run").rename(tmp_path / "moved")
    run_federation(hub, "run", run_table(), transport, Silent())
    assert len(list((tmp_path / "memory" / "clinic-a" / "runs").glob("run.*"))) == 2


def test_a_deployed_run_cannot_be_resumed_as_a_simulation(hub, transport):
    table = run_table(rounds=1)
    run_federation(hub, "run", table, transport, Silent())
    with pytest.raises(UserError, match="semifl deploy"):
        resume(hub.runs / "run", rounds=2)


def test_pictures_at_sites_are_counted_and_never_shown(hub, transport):
    run_federation(hub, "run", run_table(rounds=1), transport, Silent())
    world = json.loads((hub.runs / "run" / "world.json").read_text())
    assert (world["client_pictures"], world["sites"]) == ([20, 20, 20], list(SITES))  # of 18 each, to the nearest five
    assert "60 at 3 clients" in (hub.runs / "run" / "model.md").read_text()
    events = [json.loads(line) for line in (hub.runs / "run" / "events.jsonl").read_text().splitlines()]
    joined = {event["site"]: event["pictures"] for event in events if event["event"] == "site joined"}
    assert joined == dict.fromkeys(SITES, 20)


SECRET = "Mueller_Anna_1961-04-02"


@pytest.mark.parametrize("csv", ["/etc/passwd", "../secret.csv", "labeled/../../secret.csv", "a\0b.csv", "a\nb.csv"])
def test_an_operator_names_no_file_outside_the_hubs_pictures(csv, hub):
    with pytest.raises(UserError, match=r"data\.csv must name a file inside the hub's folder of pictures"):
        hub_config({**run_table(), "data": {"csv": csv}}, hub)


@pytest.mark.parametrize(
    "text",
    [
        f"file,label\n/scans/{SECRET}.dcm,ill\n",
        f"file,label\n{SECRET}.dcm,ill\n",
        f"file,label,part\nlabeled/blue/0-0.png,blue,{SECRET}\n",
        f"{SECRET},label\nx,y\n",
        f"file,{SECRET}\nx,y\n",
        "",
        None,  # there is no such file
    ],
)
def test_an_operator_reads_nothing_of_a_list_or_a_path_of_the_hub(text, hub, caplog):
    if text is not None:
        (hub.data / "list.csv").write_text(text)
    config = hub_config({**run_table(), "data": {"csv": "list.csv", "size": 8}}, hub)
    with pytest.raises(UserError) as caught:
        config.data.thing.load()
    assert str(caught.value) == HUBS_OWN_MATTER
    assert str(hub.data) in caplog.text  # for its owner
    (hub.data / "labeled").rename(hub.data / "other")
    with pytest.raises(UserError, match="the hub cannot read its pictures as this run asks"):
        hub_config(run_table(), hub).data.thing.load()


def test_an_operator_is_told_of_pictures_without_the_names_of_files(hub):
    copied = hub.data / "labeled/blue/0-0.png"
    (hub.data / "test/blue" / f"{SECRET}.png").write_bytes(copied.read_bytes())
    (sentence,) = duplicates(hub_config(run_table(), hub).data.thing.load())
    assert "also among the pictures to learn from" in sentence
    assert SECRET not in sentence
    assert "0-0" not in sentence
