"""What a finished run leaves for its report: a few pictures with captions, counts, and never a spoiled run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.configuration.config import decode
from semifl.data.dataset import UNKNOWN, Dataset
from semifl.running import finish, gallery
from semifl.running.loop import start
from toys import COLOURS, ToyData, toy_table


def galleries(run: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads((run / "gallery/gallery.json").read_text())["galleries"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gallery") / "run"
    start(decode(toy_table(threshold=0.0)), out)
    return out


def test_views_are_of_the_servers_pictures(run: Path) -> None:
    views = galleries(run)["views"]
    assert views["across"] == 4
    assert len(views["captions"]) == 4 * 6  # six labeled pictures
    sheet = torch.from_numpy(np.array(Image.open(run / "gallery/views.png")))
    names = ["red", "green", "blue"]
    for row in range(6):
        as_it_is, weak, strong, mixed = views["captions"][4 * row : 4 * row + 4]
        name = as_it_is.removesuffix(": as it is")
        assert (weak, strong) == (f"{name}: weak view", f"{name}: strong view")
        assert mixed.startswith("mixed: ")
        # A picture has the colour of its class within the noise of ±30, and so has its weak view.
        for column in (0, 1):
            tile = sheet[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].flatten(0, 1).float()
            assert (tile.mean(dim=0) - COLOURS[names.index(name)]).abs().max() <= 30


def test_the_surest_take_turns_between_classes_and_mistakes_are_mistakes(run: Path) -> None:
    confident = galleries(run)["confident"]["captions"]
    assert len(confident) == 12
    shares = [float(caption.split(", ")[1].split(" %")[0]) for caption in confident]
    assert all(0 < share <= 100 for share in shares)
    for caption in galleries(run)["mistakes"]["captions"]:
        said, rest = caption.split(", ", 1)
        assert f"is {said};" not in rest
        assert ", is " in caption


def test_the_same_seed_gives_the_same_pictures(run: Path, tmp_path: Path) -> None:
    start(decode(toy_table(threshold=0.0)), tmp_path / "again", workers=2)
    for name in ("views.png", "confident.png", "gallery.json"):
        assert (tmp_path / "again/gallery" / name).read_bytes() == (run / "gallery" / name).read_bytes()


def test_a_failure_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object) -> None:
        raise ValueError("no such colour")

    monkeypatch.setattr(gallery, "_grid", break_)
    assert start(decode(toy_table()), tmp_path / "run")["rounds"] == 3
    (event,) = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert (event["event"], event["reason"]) == ("no gallery", "ValueError: no such colour")
    assert not (tmp_path / "run/gallery/gallery.json").exists()


def test_unknown_labels_cannot_be_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ToyData.load

    def partly_labeled(self: ToyData) -> Dataset:
        data = whole(self)
        labels = data.labels.clone()
        labels[12:] = UNKNOWN
        return replace(data, labels=labels, labeled=torch.arange(12))

    monkeypatch.setattr(ToyData, "load", partly_labeled)
    table = toy_table(threshold=0.0)
    del table["data"]["labeled"]
    start(decode(table), tmp_path / "run")
    assert galleries(tmp_path / "run").keys() == {"views", "confident"}
    assert not any(", is " in caption for caption in galleries(tmp_path / "run")["confident"]["captions"])


def test_labeled_clients_have_no_pseudo_labels_to_show(tmp_path: Path) -> None:
    table = toy_table()
    table["method"] = {"name": "fedavg", "activity_rate": 0.5, "client_epochs": 1}
    start(decode(table), tmp_path / "run")
    assert galleries(tmp_path / "run").keys() == {"views"}


def test_where_clients_may_not_be_seen_there_are_only_the_servers_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_the_servers(context, model, index, of_clients) -> None:
        assert of_clients  # a data set that was divided here has no real sites
        gallery.write_gallery(context, model, index, of_clients=False)

    monkeypatch.setattr(finish, "write_gallery", only_the_servers)
    start(decode(toy_table()), tmp_path / "run")
    assert galleries(tmp_path / "run").keys() == {"views"}


def test_groups_take_turns() -> None:
    # By rank within their group: positions 0, 2, 3 are first, 1 and 5 second, 4 third.
    assert gallery._taking_turns(torch.tensor([7, 7, 1, 4, 7, 1]), 5).tolist() == [0, 2, 3, 1, 5]


def test_counts_beside_the_result(run: Path) -> None:
    world = json.loads((run / "world.json").read_text())
    assert world == {
        "class_names": ["red", "green", "blue"],
        "server_classes": [2, 2, 2],  # six labels, balanced
        "client_pictures": [10, 10, 10, 10],  # 42 pictures left for four clients
        "sites": [],
    }
    counts = json.loads((run / "confusion.json").read_text())["counts"]
    assert [sum(row) for row in counts] == [6, 6, 6]
    result = json.loads((run / "result.json").read_text())
    assert 100 * sum(counts[i][i] for i in range(3)) / 18 == pytest.approx(result["accuracy"])


def test_confidence_is_counted_per_client_of_the_cohort(run: Path) -> None:
    for line in map(json.loads, (run / "rounds.jsonl").read_text().splitlines()):
        histograms = line["confidence_histograms"]
        assert len(histograms) == len(line["cohort"]) == 2
        assert all(len(bins) == 10 and sum(bins) == 10 for bins in histograms)
        middles = sum((i + 0.5) / 10 * count for bins in histograms for i, count in enumerate(bins)) / 20
        assert middles == pytest.approx(line["mean_confidence"], abs=0.05)
