"""Who may say what to whom on FLARE's network, by hand; and that what FLARE knows beyond that is refused."""

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.intruder import all_topics
from semifl.deploy.flare.gate import MESSAGES, ORDERS, STREAM, Gate, Message
from semifl.deploy.flare.streams import AGAIN, ENVELOPE, MOST_OPEN, SMALL, Streams

SITES = frozenset({"clinic-a", "clinic-b"})
JOB, OTHER = "0a1b2c3d-1111-2222-3333-0123456789ab", "ffffffff-1111-2222-3333-0123456789ab"
DESK = "_admin_0a1b2c3d-1111-2222-3333-0123456789ab"
PEERS = ["server", f"server.{JOB}", "clinic-a", f"clinic-a.{JOB}", "clinic-b", f"clinic-b.{JOB}", DESK]


def message(peer, channel, topic, destination, origin=None, local=False, identity="", kind="req", stream=""):
    return Message(peer, local, identity, kind, channel, topic, stream, origin or peer, destination)


def refused(me, peer, word, destination=None, **more):
    channel, topic = word.split("/")
    return Gate(me, SITES).refusal(message(peer, channel, topic, destination or me, **more))


def piece(me, peer, stream, destination=None, topic="sm__DATA", **more):
    return Gate(me, SITES).refusal(message(peer, STREAM, topic, destination or me, stream=stream, **more))


@pytest.mark.parametrize(
    ("me", "peer", "word", "more"),
    [
        ("server", "clinic-a", "task/register", {}),
        ("server", "clinic-a", "task/heart_beat", {}),
        ("server", DESK, "task/register", {"identity": "alice@example.org"}),
        ("server", f"server.{JOB}", "server_parent_listener/heartbeat", {"local": True}),
        ("clinic-a", "server", "admin/admin", {}),
        ("clinic-a", f"clinic-a.{JOB}", "admin/train.notify_job_status", {"local": True}),
        (f"clinic-a.{JOB}", "clinic-a", "client_command/abort", {"local": True}),
    ],
)
def test_what_semifl_needs_passes(me, peer, word, more):
    assert refused(me, peer, word, **more) == ""


@pytest.mark.parametrize(
    ("me", "peer", "word", "more"),
    [
        ("clinic-a", "server", "admin/admin", {"origin": "clinic-b"}),  # another site, through the hub
        ("clinic-a", "server", "admin/admin", {"origin": DESK}),  # an operator, through the hub
        ("clinic-a", "clinic-b", "admin/admin", {}),  # another site, directly
        ("clinic-a", "clinic-a.evil", "admin/train.notify_job_status", {"local": True}),  # no job
        ("clinic-a", f"clinic-b.{JOB}", "admin/train.notify_job_status", {"local": True}),
        ("clinic-a", f"clinic-a.{JOB}", "admin/train.notify_job_status", {}),  # not by the local socket
        ("server", "clinic-b", "admin/admin", {"destination": "clinic-a"}),  # the hub passes no order on
        ("server", "clinic-b", "admin/admin", {"destination": "clinic-a", "origin": "server"}),  # in the hub's name
        ("server", "clinic-b", "task/register", {"origin": "clinic-a"}),  # in another site's name
        ("server", "clinic-b", "hci_channel/command", {}),  # a site gives no orders
        ("server", DESK, "task/register", {"identity": "clinic-b"}),  # a site that calls itself an operator
        ("server", "somebody", "task/register", {}),
        (f"server.{JOB}", "server", "server_command/abort", {"origin": f"clinic-b.{JOB}"}),
        (f"clinic-a.{JOB}", "server", "client_command/abort", {}),
        ("clinic-a", "server", "cellnet.channel/stop", {}),
    ],
)
def test_what_nobody_needs_is_refused(me, peer, word, more):
    assert refused(me, peer, word, **more)


@pytest.mark.parametrize("me", PEERS[:-1])
@pytest.mark.parametrize("peer", PEERS)
def test_of_all_that_flare_knows_only_what_is_written_passes(me, peer):
    """The topics are FLARE's own list, so those of a new version are tried too."""
    passed = set()
    for channel, topic in all_topics():
        for local in (False, True):
            if not Gate(me, SITES).refusal(message(peer, channel, topic, me, local=local, identity="a@b.org")):
                passed.add(f"{channel}/{topic}")
    gate = Gate(me, SITES)
    written = MESSAGES.get((gate.role(me)[0], gate.role(peer)[0]), frozenset())
    assert me == peer or passed <= written


def test_streams_between_a_job_at_the_hub_and_the_same_job_at_a_site():
    mine, theirs = f"server.{JOB}", f"clinic-a.{JOB}"
    for me, peer, local in (("server", theirs, False), (mine, "server", True)):
        more = {"destination": mine, "origin": theirs, "local": local}
        assert piece(me, peer, "server_command/submit_update", **more) == ""
        assert piece(me, peer, "server_command/abort", **more)
        assert piece(me, peer, "hci_channel/command", **more)
    other = f"clinic-a.{OTHER}"
    assert "another job" in piece("server", other, "server_command/get_task", destination=mine, origin=other)
    assert piece("server", "clinic-b", "server_command/submit_update", destination=mine)
    assert piece("server", theirs, "server_command/get_task", destination=f"clinic-b.{JOB}")


def test_an_answer_takes_no_detour():
    assert refused("server", "clinic-a", "task/register", destination="clinic-b", kind="reply")
    assert refused("clinic-a", "server", "task/register", kind="reply") == ""


def test_no_order_of_the_hub_reads_deletes_or_switches_off():
    for word in ("shell", "delete", "shutdown", "restart", "log", "call", "scopes", "env", "info", "version"):
        assert not [order for order in ORDERS if word in order]


def test_an_answer_is_as_large_as_was_asked_and_comes_as_often():
    streams = Streams()
    word, site = "server_command/submit_update", "clinic-a.job"
    assert streams.refusal(site, 1, word, 100, 100) == "nobody asked for it"
    streams.expect("clinic-a", 1 << 20)
    assert streams.refusal(site, 2, word, (1 << 20) + ENVELOPE, 10) == ""
    assert "larger" in streams.refusal(site, 3, word, (1 << 20) + ENVELOPE + 1, 10)
    assert streams.refusal(site, 4, word, 10, 10) == "nobody asked for it"  # one answer, and once again
    assert streams.refusal("clinic-b.job", 5, word, 10, 10) == "nobody asked for it"


def test_pieces_are_counted_whatever_the_sender_declares():
    streams = Streams()
    pieces = [streams.refusal("clinic-a.job", 1, "server_command/get_task", 0, SMALL) for _ in range(5)]
    assert pieces[:AGAIN] == [""] * AGAIN
    assert all("larger" in each for each in pieces[AGAIN:])


def test_no_origin_has_many_streams_open():
    streams = Streams(is_open=lambda origin, number: True)
    said = [streams.refusal("clinic-a.job", n, "server_command/get_task", 1, 1) for n in range(MOST_OPEN + 5)]
    assert said[:MOST_OPEN] == [""] * MOST_OPEN
    assert all("others are open" in each for each in said[MOST_OPEN:])
    assert streams.refusal("clinic-b.job", 1, "server_command/get_task", 1, 1) == ""
    streams.is_open = lambda origin, number: False  # they have ended
    assert streams.refusal("clinic-a.job", 999, "server_command/get_task", 1, 1) == ""


def test_a_packet_to_a_site_is_small_until_it_has_accepted_an_order():
    streams = Streams()
    word = "return_only/server_command:get_task"
    assert "larger" in streams.refusal("server.job", 1, word, (1 << 20) + ENVELOPE + 1, 1)
    streams.packet = 50 << 20
    assert streams.refusal("server.job", 2, word, 50 << 20, 1) == ""
