"""Orders are checked at the site: a tampered one is refused with a sentence."""

import copy
import re

import pytest
import torch

from semifl import __version__
from semifl.deploy.order import accept, refuse_name
from semifl.deploy.policy import Limits, Policy, Share
from semifl.errors import UserError

ORDER = {
    "semifl": __version__,
    "format": 3,
    "run": "first.0123abcd",
    "sites": ["clinic-a", "clinic-b"],
    "config": {
        "seed": 3,
        "rounds": 5,
        "model": {"name": "cnn", "width": 4},
        "method": {"name": "semifl", "threshold": 0.9},
    },
    "facts": {
        "class_names": ["a", "b"], "mean": [0.5] * 3, "std": [0.2] * 3, "may_flip": True, "channels": 3, "size": 32,
    },
}  # fmt: skip


def changed(path, value):
    order = copy.deepcopy(ORDER)
    *outer, last = path.split(".")
    inner = order
    for key in outer:
        inner = inner[key]
    inner[last] = value
    return order


def test_a_sound_order_is_accepted():
    accepted = accept(ORDER, "clinic-b", Policy())
    assert (accepted.run, accepted.client, accepted.method.threshold) == ("first.0123abcd", 1, 0.9)
    assert accepted.facts.class_names == ("a", "b")
    assert accepted.build()(torch.zeros(2, 3, 32, 32)).shape == (2, 2)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("semifl", "9.9", "install the same version"),
        ("format", 9, "install the same version"),
        ("extra", 1, "unknown key order.extra"),
        ("run", "../../etc", "no proper name"),
        ("run", 3, "no proper name"),
        ("sites", ["elsewhere"], "not among the sites"),
        ("config.method.treshold", 0.9, "did you mean 'threshold'"),
        ("config.method.name", "os:system", "asks for code"),
        ("config.model.name", "subprocess:run", "asks for code"),
        ("config.method.server_optimizer", "os:system", "asks for code"),
        ("config.method", {"name": "fedavg"}, "needs the clients' labels"),
        ("config.method.name", "../evil", "method.name"),
        ("config.method.statistics", "all", "share.statistics"),
        ("config.method.lr", 1e30, "larger than any method needs"),
        ("config.method", {"name": "fedrgd", "iterations": 10**12}, "larger than any method needs"),
        ("config.model.width", 10**9, "larger than any model needs"),
        ("config.model.width", 4000, "limits.most_parameters"),
        ("config.model.weights", "/etc/passwd", "may not contain"),
        ("config.data", {"root": "/"}, "unknown key order.config.data"),
        ("config.model", 3, "model"),
        ("config", None, "no configuration"),
        ("facts.size", 10**6, "limits.largest_picture"),
        ("facts.size", -1, "limits.largest_picture"),
        ("facts.channels", 4, "channels"),
        ("facts.std", [0.0] * 3, "make no sense"),
        ("facts.mean", "x", "not complete"),
        ("facts", [], "not complete"),
        ("facts.class_names", ["x"] * 100000, "make no sense"),
        ("facts.weak_view", "os:system", "unknown key facts.weak_view"),
        ("facts.whitening", "x", "not complete"),
        ("facts.whitening", [[0.5]], "whitening is not of pictures of 3 channels"),
        ("facts.whitening", [[0.5] * 12] * 11 + [[0.5] * 11], "whitening is not of pictures of 3 channels"),
        ("facts.whitening", [[float("nan")] * 12] * 12, "whitening is not of pictures of 3 channels"),
        ("facts.whitening", [[1e30] * 12] * 12, "whitening is not of pictures of 3 channels"),
        ("facts.whitening", [[0.5] * 12] * 12, "cannot be built"),  # the model of this order has no stem
    ],
)
def test_a_tampered_order_is_refused(path, value, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        accept(changed(path, value), "clinic-b", Policy())


@pytest.mark.parametrize("order", [None, [], "x", {}])
def test_no_order_at_all(order):
    with pytest.raises(UserError):
        accept(order, "clinic-b", Policy())


def test_a_policy_widens_what_is_accepted():
    order = changed("config.method.statistics", "all")
    assert accept(order, "clinic-a", Policy(share=Share(statistics=True))).client == 0
    assert accept(changed("facts.size", 300), "clinic-a", Policy(limits=Limits(largest_picture=300))).facts.size == 300


@pytest.mark.parametrize(
    "run", ["privacy.json", "first", "../x.0123abcd", "x.0123ABCD", ".0123abcd", "y" * 81 + ".0123abcd"]
)
def test_a_run_of_a_site_is_a_name_and_its_mark(run):
    with pytest.raises(UserError, match="no proper name"):
        accept(changed("run", run), "clinic-b", Policy())


def test_a_name_that_passes_at_the_operators_passes_everywhere():
    refuse_name("y" * 80)
    assert accept(changed("run", "y" * 80 + ".0123abcd"), "clinic-b", Policy()).run.startswith("yyy")
    with pytest.raises(UserError, match="80 at most"):
        refuse_name("y" * 81)
