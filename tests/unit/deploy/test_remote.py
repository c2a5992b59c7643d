"""What the hub makes of answers: nothing in them is believed before it has been looked at."""

import json
import math

import pytest
import torch

from semifl.deploy import wire
from semifl.deploy.remote import Answer, Known, Layer, NotEnoughSites, RemoteFederation
from semifl.deploy.settings import Settings
from semifl.errors import UserError
from semifl.federation.tally import Tally
from semifl.federation.world import Round
from semifl.learning.batchnorm import Moments
from semifl.learning.weights import Snapshot, average
from semifl.methods.semifl import SemiFL
from semifl.randomness import Seed

SITES = ["a", "b", "c"]
WEIGHTS = {"w": torch.ones(4, 4)}  # of norm 4


def reply(payload=None, **facts):
    facts = {"outcome": "trained", "examples": 5, "signals": {"images": 7}, **facts}
    return wire.pack("reply", facts, WEIGHTS if payload is None else payload)


class Scripted:
    """Each site answers what the script says, one entry per time it is asked; None is silence."""

    def __init__(self, **script):
        self.script = {site: list(answers) for site, answers in script.items()}
        self.asked = []

    def exchange(self, packets, seconds, largest):
        self.asked.append(sorted(packets))
        for site in reversed(list(packets)):
            data = self.script[site].pop(0)
            yield Answer(site, data, "" if data else "no answer within 1 s", 1.0)


def federation(transport, told=None, refused=(), pictures=(), **settings):
    order = {"sites": SITES, "facts": {"class_names": ["x", "y"]}}
    tell = told.append if told is not None else (lambda each: None)
    norm = {"norm": Layer(channels=3)}
    return RemoteFederation(
        transport, order, Settings(**settings), SemiFL(), norm, Tally(), tell, Known(dict(refused), (), dict(pictures))
    )


def replies(transport, **settings):
    clients = federation(transport, **settings)
    t = Round(1, 0.0, Seed(0))
    return list(clients.each((0, 1, 2), Snapshot(WEIGHTS, {}), t))


@pytest.mark.parametrize(
    ("data", "outcome", "reason"),
    [
        (reply({"w": torch.full((4, 4), math.nan)}), "rejected", "not finite"),
        (reply({"w": torch.ones(4, 5)}), "rejected", "should be (4, 4)"),
        (reply({"w": torch.ones(4, 4).double()}), "rejected", "float64"),
        (reply({"v": torch.ones(4, 4)}), "rejected", "names differ"),
        (reply({"w": torch.full((4, 4), 1000.0)}), "rejected", "times as long as the model"),
        (reply((1, 2)), "rejected", "no proper weights"),
        (reply(examples=-1), "rejected", "not in form at 'examples'"),
        (reply(examples="many"), "rejected", "not in form at 'examples'"),
        (reply(examples=None), "rejected", "number of examples"),
        (reply(outcome="wonderful"), "rejected", "not in form at 'outcome'"),
        (reply(spent={"round": 1}), "rejected", "not in form at 'spent.epsilon'"),
        (reply(spent={"epsilon": 1.0, "delta": 1e-5, "foo": 1}), "rejected", "not in form at 'spent.foo'"),
        (reply(spent={"epsilon": math.inf, "delta": 1e-5}), "rejected", "not in form at 'spent.epsilon'"),
        (reply(more=1), "rejected", "not in form at 'more'"),
        (reply({"w": torch.ones(200, 200)}), "rejected", "bytes, and at most"),
        (b"garbage", "rejected", "damaged"),
        (reply(signals={"images": 10**400}), "rejected", "not in form at 'signals.images'"),
        (reply(terms={"loss": 10**400}), "rejected", "not in form at 'terms.loss'"),
        (reply(terms={"loss": "low"}), "rejected", "not in form at 'terms.loss'"),
        (reply(terms={str(n): 1.0 for n in range(65)}), "rejected", "not in form at 'terms'"),
        (wire.pack("hello", {}), "rejected", "its answer is no reply"),
        (wire.pack("failed", {"reason": "its trainer\nprocess died"}), "failed", "its trainer process died"),
        (wire.pack("refused", {"reason": "x" * 5000}), "failed", "x" * 200),
        (None, "late", "no answer within 1 s"),
    ],
)
def test_a_bad_answer_is_excluded_and_named(data, outcome, reason):
    bad = replies(Scripted(a=[reply()], b=[data], c=[reply()]), min_updates=2)
    assert [each.client for each in bad] == [0, 1, 2]
    assert [each.outcome for each in bad] == ["trained", outcome, "trained"]
    assert (bad[1].update is None) == (outcome != "trained")
    assert reason in bad[1].reason
    assert len(bad[1].reason) <= 200


def test_an_update_within_the_limit_passes_and_without_a_limit_all_do():
    far = reply({"w": torch.full((4, 4), 10.0)})  # a change of norm 40 is 10 times that of the model
    assert replies(Scripted(a=[far], b=[far], c=[far]))[0].outcome == "trained"
    farther = reply({"w": torch.full((4, 4), 11.0)})
    assert replies(Scripted(a=[farther], b=[far], c=[far]))[0].outcome == "rejected"
    assert replies(Scripted(a=[farther], b=[far], c=[far]), largest_update=0.0)[0].outcome == "trained"


@pytest.mark.parametrize(
    "signals",
    [
        {"images": 7, "confident": -3}, {"confidence": math.inf}, {"classes": [1, 2, 3]}, {"confidence_bins": [0] * 9},
        {"lr": "fast"}, {"path": "/home"}, {"own_right": 2.0}, {"predicted": [1, True]}, {"predicted": [0, [1]]}, [], 3,
    ],
)  # fmt: skip
def test_signals_of_a_wrong_form_cost_the_update(signals):
    first = replies(Scripted(a=[reply(signals=signals)], b=[reply()], c=[reply()]))[0]
    assert (first.outcome, first.update, first.facts) == ("rejected", None, {})


def test_signals_in_form_are_kept():
    signals = {"images": 7, "predicted": [1, 1], "confidence": 3, "lr": 0.5, "confidence_bins": [1] * 10}
    first = replies(Scripted(a=[reply(signals=signals)], b=[reply()], c=[reply()]))[0]
    assert first.facts == signals


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        ({"images": 5, "confident": 10**15}, "more in 'confident' than the images"),  # as in the review
        ({"images": 5, "confidence": 6.0}, "more in 'confidence'"),
        ({"images": 5, "classes": [0, 6]}, "more in 'classes'"),
        ({"images": 5, "predicted": [6, 0]}, "more in 'predicted'"),
        ({"images": 5, "confidence_bins": [0] * 9 + [6]}, "more in 'confidence_bins'"),
        ({"own_right": 6, "own_total": 5}, "more in 'own_right'"),
        ({"images": 21}, "21 images, and it told of 20 when it joined"),
        ({"confident": 21}, "more in 'confident'"),
    ],
)
def test_counts_that_do_not_go_together_cost_the_update(signals, reason):
    transport = Scripted(a=[reply(signals=signals)], b=[reply(signals={"images": 20, "confident": 20})], c=[reply()])
    first, second, _ = replies(transport, pictures={"a": 20, "b": 20, "c": 10})
    assert (first.outcome, first.update, first.facts) == ("rejected", None, {})
    assert reason in first.reason
    assert second.outcome == "trained"


def test_a_site_that_tells_no_number_of_its_pictures_may_have_more_than_others():
    mine = reply(signals={"classes": [90, 5]})
    assert replies(Scripted(a=[mine], b=[reply()], c=[reply()]), pictures={"b": 20, "c": 20})[0].outcome == "trained"


def test_the_weight_of_a_site_is_bounded_by_what_it_told_and_by_its_share():
    liar = reply({"w": torch.full((4, 4), 3.0)}, examples=2**52)
    honest = reply({"w": torch.zeros(4, 4)}, examples=100)
    clients = lambda **more: federation(Scripted(a=[liar], b=[honest], c=[honest]), **more)  # noqa: E731
    t = Round(1, 0.0, Seed(0))

    def share(**more):
        """How much of the mean of fedsgd_fixmatch is the first site's."""
        federated = clients(**more)
        updates = [each.update for each in federated.each((0, 1, 2), Snapshot(WEIGHTS, {}), t)]
        mean = average(((each.change, float(each.examples)) for each in updates), federated.max_share)
        return float(mean["w"][0, 0]) / 3.0

    told = {"a": 100, "b": 100, "c": 100}
    assert share(pictures=told, max_share=1.0) == pytest.approx(1 / 3)  # what it told when it joined
    assert share(pictures={**told, "a": 10**6}) == pytest.approx(1 / 2)  # it lied then, too: one half is the default
    assert share(pictures={**told, "a": 0}) == pytest.approx(1 / 3)  # it told nothing: the most that anybody did
    assert share(max_share=0.4) == pytest.approx(0.4)  # nobody told anything
    assert share(max_share=1.0) == pytest.approx(1.0)  # as the review found it


def test_a_round_with_too_few_answers_asks_again_those_who_did_not():
    transport = Scripted(a=[reply()], b=[None, None, reply()], c=[None, reply()])
    got = replies(transport, min_updates=3, attempts=3)
    assert [each.outcome for each in got] == ["trained"] * 3
    assert transport.asked == [["a", "b", "c"], ["b", "c"], ["b"]]


def test_a_round_that_has_enough_does_not_wait_for_the_rest():
    transport = Scripted(a=[reply()], b=[None], c=[reply()])
    assert [each.outcome for each in replies(transport, min_updates=2)] == ["trained", "late", "trained"]
    assert transport.asked == [["a", "b", "c"]]


def test_an_abstention_is_an_answer_and_a_rejected_update_is_none():
    abstained = wire.pack("reply", {"outcome": "abstained", "signals": {}})
    transport = Scripted(a=[abstained], b=[abstained], c=[None])
    assert [each.outcome for each in replies(transport, min_updates=2)] == ["abstained", "abstained", "late"]
    bad = reply({"w": torch.ones(2)})
    with pytest.raises(NotEnoughSites, match="1 of 3 sites answered"):  # nobody is left to ask again
        replies(Scripted(a=[bad], b=[reply()], c=[bad]), min_updates=2)
    with pytest.raises(NotEnoughSites, match="1 of 3 sites answered") as caught:
        replies(Scripted(a=[bad], b=[reply()], c=[None, None]), min_updates=2, attempts=2)
    assert (caught.value.round, caught.value.silent) == (1, ("a", "c"))


def test_a_site_that_refused_the_order_is_not_asked():
    told = []
    transport = Scripted(a=[reply()], c=[reply()])
    clients = federation(transport, told, refused={"b": "another version"})
    got = list(clients.each((0, 1, 2), Snapshot(WEIGHTS, {}), Round(1, 0.0, Seed(0))))
    assert [(each.outcome, each.reason) for each in got][1] == ("failed", "another version")
    assert {each.site: each.outcome for each in told} == {"a": "trained", "b": "failed", "c": "trained"}


def test_a_cohort_of_sites_that_refuse_does_not_hold_up_the_others():
    clients = federation(Scripted(), refused={"b": "another version"})
    assert [each.outcome for each in clients.each((1,), Snapshot(WEIGHTS, {}), Round(1, 0.0, Seed(0)))] == ["failed"]
    clients = federation(Scripted(a=[reply()]), refused={"b": "another version"}, min_updates=2)
    both = clients.each((0, 1), Snapshot(WEIGHTS, {}), Round(1, 0.0, Seed(0)))
    assert [each.outcome for each in both] == ["trained", "failed"]  # of two asked only one can answer


def drawn(count, refused=(), silent=()):
    order = {"sites": SITES, "facts": {"class_names": ["x", "y"]}}
    known = Known(dict.fromkeys(refused, ""), silent)
    clients = RemoteFederation(None, order, Settings(), SemiFL(), {}, Tally(), print, known)
    return [clients.sample(count, Seed(number).at("cohort")) for number in range(40)]


def test_others_take_the_places_of_sites_that_refused_or_were_silent():
    plain = drawn(1)
    assert set(plain) == {(0,), (1,), (2,)}
    without = drawn(1, refused="b", silent="a")
    assert set(without) == {(2,)}
    some = drawn(1, silent="a")
    assert set(some) == {(1,), (2,)}  # either of the others
    assert all(new == old for new, old in zip(some, plain, strict=True) if old != (0,))
    assert set(drawn(2, silent="a")) == {(1, 2)}
    assert set(drawn(2, refused="b", silent="a")) == {(0, 2)}  # the one who was silent may be back
    assert drawn(3, refused="b", silent="ac") == [(0, 1, 2)] * 40
    assert drawn(1, silent="abc") == plain


def moments(number=4, channels=3, value=1.0, spread=1.0):
    mean, var = (torch.full((channels,), each, dtype=torch.float64) for each in (value, spread))
    return Moments(number, mean, var)


OWN = {"norm": moments(value=0.0, spread=0.5)}  # a variance of 0.5 in the channel and in the layer: far is 10


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wire.pack("statistics", {}, {"norm": moments(channels=2)}), "not sound"),
        (wire.pack("statistics", {}, {"norm": moments(number=-10)}), "not sound"),
        (wire.pack("statistics", {}, {"norm": moments(number=2**70)}), "not sound"),
        (wire.pack("statistics", {}, {"norm": moments(value=math.nan)}), "not sound"),
        (wire.pack("statistics", {}, {"other": moments()}), "not of the model's layers"),
        (wire.pack("statistics", {}, {"norm": 3}), "not sound"),
        *(
            (wire.pack("statistics", {}, {"norm": Moments(4, *(torch.ones(3).to(kind),) * 2)}), "not sound")
            for kind in (torch.float8_e4m3fn, torch.complex64, torch.bool, torch.uint16, torch.int64, torch.float32)
        ),
        (wire.pack("statistics", {}, {"norm": moments(value=11.1)}), "not of pictures like the hub's"),
        (wire.pack("statistics", {}, {"norm": moments(value=-11.1)}), "not of pictures like the hub's"),
        (wire.pack("statistics", {}, {"norm": moments(spread=101.0)}), "not of pictures like the hub's"),
        (wire.pack("statistics", {}, {"norm": moments(value=1e300, spread=1e300)}), "not of pictures like the hub's"),
        (wire.pack("statistics", {}, [1]), "not of the model's layers"),
        (wire.pack("refused", {"reason": "kept"}), "kept"),
        (b"garbage", "damaged"),
        (None, "no answer within 1 s"),
    ],
)
def test_bad_statistics_are_left_out_and_named(data, reason):
    good = wire.pack("statistics", {}, {"norm": moments()})
    told = []
    clients = federation(Scripted(a=[good], b=[data], c=[good]), told)
    assert len(list(clients.statistics(WEIGHTS, (0, 1, 2), OWN))) == 2
    assert [(each.site, each.outcome) for each in told] == [("b", "without statistics")]
    assert reason in told[0].reason


def test_statistics_within_the_bound_are_taken_as_they_are():
    far = {"norm": moments(value=9.9, spread=99.0)}
    given = wire.pack("statistics", {}, far)
    clients = federation(Scripted(a=[given], b=[given], c=[given]))
    for each in clients.statistics(WEIGHTS, (0, 1, 2), OWN):
        assert each["norm"].number == 4
        assert torch.equal(each["norm"].mean, far["norm"].mean)
        assert torch.equal(each["norm"].var, far["norm"].var)


def test_a_channel_that_is_dead_at_the_hub_may_live_at_a_site():
    own = {"norm": Moments(4, torch.zeros(3).double(), torch.tensor([0.0, 1.0, 2.0]).double())}
    alive = wire.pack("statistics", {}, {"norm": moments(value=9.9, spread=99.0)})  # the layer's mean variance is 1
    clients = federation(Scripted(a=[alive], b=[alive], c=[alive]))
    assert len(list(clients.statistics(WEIGHTS, (0, 1, 2), own))) == 3


def test_a_site_counts_for_no_more_pictures_than_it_told():
    """One picture brings 16 values. a told 10 pictures and claims 2⁵² values; b has fewer than told; c tells none."""
    claims = {"a": 2**52, "b": 100, "c": 2**52}
    script = {site: [wire.pack("statistics", {}, {"norm": moments(number)})] for site, number in claims.items()}
    order = {"sites": SITES, "facts": {"class_names": ["x", "y"]}}
    norm, known = {"norm": Layer(channels=3, values=16)}, Known(pictures={"a": 10, "b": 20, "c": 0})
    clients = RemoteFederation(Scripted(**script), order, Settings(), SemiFL(), norm, Tally(), lambda told: None, known)
    numbers = [each["norm"].number for each in clients.statistics(WEIGHTS, (0, 1, 2), OWN)]
    assert numbers == [160, 100, 320]  # c for as many as the most that anybody told


def test_a_site_with_too_few_pictures_has_no_statistics():
    empty = wire.pack("statistics", {}, {})
    clients = federation(Scripted(a=[empty], b=[empty], c=[empty]))
    assert list(clients.statistics(WEIGHTS, (0, 1, 2))) == [{}, {}, {}]


def test_the_packet_is_the_same_for_everyone():
    transport = Scripted(a=[reply()], b=[reply()], c=[reply()])
    seen = {}
    exchange = transport.exchange
    transport.exchange = lambda packets, *rest: (seen.update(packets), exchange(packets, *rest))[1]
    replies(transport)
    assert len(set(seen.values())) == 1
    facts = wire.facts_of(seen["a"])
    assert (facts["round"], facts["progress"]) == (1, 0.0)
    assert json.dumps(facts["order"]) == json.dumps({"sites": SITES, "facts": {"class_names": ["x", "y"]}})


@pytest.mark.parametrize(
    "settings", [{"deadline": 0}, {"min_updates": 0}, {"attempts": 0}, {"largest_update": -1}, {"deadline": math.inf}]
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises((ValueError, UserError)):
        Settings(**settings)


def test_whatever_goes_wrong_in_reading_an_answer_is_that_sites_alone(monkeypatch):
    unpack = wire.unpack

    def breaks(data, named):
        if data == b"odd":
            raise RuntimeError("a size that no tensor has")
        return unpack(data, named)

    monkeypatch.setattr(wire, "unpack", breaks)
    got = replies(Scripted(a=[reply()], b=[b"odd"], c=[reply()]), min_updates=2)
    assert [each.outcome for each in got] == ["trained", "rejected", "trained"]
    assert got[1].reason == "its answer cannot be read (RuntimeError)"
