"""Frozen features are those that the network computes, kept in files; runs with and without them learn the same."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import backbones
from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data.augment import normalize, strong, weak
from semifl.errors import UserError
from semifl.federation.features import CLIENTS, LABELED, STRONG, TESTED, WEAK, tickets
from semifl.federation.sites import Place, infer
from semifl.learning.network import Network
from semifl.learning.weights import Snapshot
from semifl.running.context import FEATURES, Silent
from semifl.running.loop import resume, start
from toys import toy_table


@pytest.fixture(scope="module")
def lite(tmp_path_factory) -> Path:
    return backbones.lite(tmp_path_factory.mktemp("backbones") / "lite")


def table(lite, model=None, **method):
    made = toy_table(mix_weight=0.0, **method)
    made["model"] = {"name": "pretrained", "source": str(lite), "size": 32, "views": 2, **(model or {})}
    return made


def place_of(lite, folder, **model):
    return build_world(decode(table(lite, model))).place(None, "cpu", folder)


def test_a_ticket_says_whose_picture_which_one_and_which_view():
    made = tickets(CLIENTS + 70_000, torch.tensor([0, 300, 16_777_217]))
    assert made.shape == (3, 1, 1, 8)
    numbers = [int.from_bytes(bytes(row[0, 0, :3].tolist()), "little") for row in made]
    assert numbers == [CLIENTS + 70_000] * 3
    positions = [int.from_bytes(bytes(row[0, 0, 3:7].tolist()), "little") for row in made]
    assert positions == [0, 300, 16_777_217]
    assert made[..., 7].eq(0).all()


def test_features_are_what_the_frozen_part_makes_of_the_views(lite, tmp_path):
    place = place_of(lite, tmp_path)
    features, network, facts = place.features, place.network, place.of_pictures().facts
    pictures = place.images[place.holdings[1]]
    mine = place.images_of(1)
    drawn = place.facts.strong_view(mine, torch.Generator().manual_seed(0))
    assert set(drawn[:, 0, 0, 7].tolist()) == {STRONG, STRONG + 1}
    for number in (0, 1):
        views = weak(pictures, facts, features.seed.at("features", CLIENTS + 1, 0, WEAK + number))
        asked = mine.clone()
        asked[..., 7] = WEAK + number
        assert torch.allclose(normalize(asked, place.facts), network.frozen(normalize(views, facts)), atol=1e-5)
        views = strong(pictures, facts, "fixmatch", features.seed.at("features", CLIENTS + 1, 0, STRONG + number))
        asked[..., 7] = STRONG + number
        found = normalize(asked[torch.tensor([3, 0, 2])], place.facts)
        assert torch.allclose(found, network.frozen(normalize(views[[3, 0, 2]], facts)), atol=1e-5)


def test_pictures_of_several_owners_in_one_batch_have_each_their_own_features(lite, tmp_path):
    """As in one place with everybody's labels; by the pictures themselves."""
    place = place_of(lite, tmp_path)
    pictures = torch.cat([place.images[place.labeled], place.images[place.holdings[2]]])
    mixed = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(1))
    asked = torch.cat([place.labeled_images(place.labeled), place.images_of(2)])[mixed]
    expected = place.network.frozen(normalize(pictures[mixed], place.of_pictures().facts))
    assert torch.allclose(normalize(asked, place.facts), expected, atol=1e-5)


def test_a_method_that_turns_pictures_is_refused_where_there_are_only_features(lite, tmp_path):
    turning = table(lite)
    turning["method"] = {"name": "centralized", "objective": {"name": "remixmatch"}}
    with pytest.raises(UserError, match=r"features cannot be turned: model\.views = 0$"):
        start(decode(turning), tmp_path / "run")


def test_logits_of_test_pictures_are_those_of_the_whole_network(lite, tmp_path):
    place = place_of(lite, tmp_path)
    model = Snapshot(place.network.weights(), {})
    by_features = torch.cat(list(infer(place, model, place.graded_images("test", 0, 18))))
    plain = place.of_pictures()
    assert torch.allclose(
        by_features, torch.cat(list(infer(plain, model, plain.graded_images("test", 0, 18)))), atol=1e-5
    )


def test_files_are_read_again_and_computed_again_if_damaged_or_of_other_pictures(lite, tmp_path):
    place = place_of(lite, tmp_path)
    place.images_of(0)
    (file,) = (tmp_path / str(CLIENTS)).iterdir()
    first, written = file.read_bytes(), file.stat().st_mtime_ns
    place_of(lite, tmp_path).images_of(0)
    assert file.stat().st_mtime_ns == written
    file.write_bytes(first[:-4] + b"\0\1\2\3")
    place_of(lite, tmp_path).images_of(0)
    assert file.read_bytes() == first
    other = place_of(lite, tmp_path)
    other.images = 255 - other.images
    other.images_of(0)
    assert len(list((tmp_path / str(CLIENTS)).iterdir())) == 2


def test_every_owner_has_the_views_it_needs(lite, tmp_path):
    place = place_of(lite, tmp_path)
    place.labeled_images(place.labeled[:2])
    place.graded_images("test", 0, 18)
    assert place.features._opened[LABELED, 0].shape == (1 + 2 + 2, len(place.labeled), 1280)
    assert place.features._opened[TESTED, 0].shape == (1, 18, 1280)


def test_a_run_with_features_learns_what_one_with_the_same_views_and_the_whole_network_learns(
    lite, tmp_path, monkeypatch
):
    """Without the cache: every ticket is turned into its view's pictures, and these go through the whole network."""
    config = decode(table(lite))
    cached = start(config, tmp_path / "cached")

    monkeypatch.setattr(Network, "frozen", lambda self, images: images)
    monkeypatch.setattr(Place, "network", property(lambda self: _whole(self)))
    plain = start(config, tmp_path / "plain")
    assert cached["accuracy"] == plain["accuracy"]
    for a, b in zip(*(_rounds(tmp_path / name) for name in ("cached", "plain")), strict=True):
        assert a["cohort"] == b["cohort"]
        assert a["server_loss"] == pytest.approx(b["server_loss"], rel=1e-4)
        assert a["client_loss"] == pytest.approx(b["client_loss"], rel=1e-4)


def _whole(place):
    if "whole" not in vars(place):
        vars(place)["whole"] = Network(place.build(), place.device)
    return vars(place)["whole"]


def _rounds(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


class StopAfter(Silent):
    def __init__(self, rounds):
        self.left = rounds

    def round(self, record, best):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_with_its_features_and_clears_them_at_the_end(lite, tmp_path):
    config = decode(table(lite))
    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "run", observer=StopAfter(2))
    kept = list(tmp_path.glob(f"run/*/{FEATURES}"))
    assert len(kept) == 1
    resume(tmp_path / "run")
    start(config, tmp_path / "whole")
    digests = [[each["digest"] for each in _rounds(tmp_path / name)] for name in ("run", "whole")]
    assert digests[0] == digests[1]
    assert not kept[0].exists()


def test_workers_give_the_same_bits(lite, tmp_path):
    config = decode(table(lite, {"train": "norms", "frozen_blocks": 14}))
    start(config, tmp_path / "one", workers=1)
    start(config, tmp_path / "two", workers=2)
    digests = [[each["digest"] for each in _rounds(tmp_path / name)] for name in ("one", "two")]
    assert digests[0] == digests[1]


def test_features_that_would_not_fit_are_told_before_anything_is_computed(lite, tmp_path):
    # 6 labeled pictures and 10 at each of 4 clients in 5 views, 18 test pictures, 1280 numbers of 4 bytes each.
    needed = 4 * 1280 * (46 * 5 + 18)
    config = decode(table(lite))
    spec = replace(config.model.thing.__self__, cache_gb=(needed - 1) / 1e9)
    small = replace(config, model=replace(config.model, thing=spec.build))
    with pytest.raises(UserError, match=r"take 0\.0013 GB of disk, and model\.cache_gb allows .*: lower model\.views"):
        build_world(small).place(None, "cpu", tmp_path)
    enough = replace(spec, cache_gb=needed / 1e9)
    place = build_world(replace(config, model=replace(config.model, thing=enough.build))).place(None, "cpu", tmp_path)
    assert place.features.disk_bytes == needed  # which `semifl check` adds to the disk that a run takes
    assert list(tmp_path.iterdir()) == []
