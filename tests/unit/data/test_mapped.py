"""Pictures too many for memory lie in a mapped file: the same pixels, kept, checked, and found by other processes."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.configuration.config import decode
from semifl.data import mapped
from semifl.data.dataset import moments
from semifl.data.datasets.folder import Folder
from semifl.federation.sites import Place
from semifl.running.loop import start


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 4)):
        for number, name in enumerate(("dark", "light")):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for each in range(count):
                pixels = rng.integers(120 * number, 120 * number + 130, (20, 20, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{each}.png")
    return tmp_path / "pictures"


def test_mapped_pictures_are_the_same_and_are_decoded_once(pictures, tmp_path, monkeypatch):
    plain = Folder(str(pictures), 16).load()
    monkeypatch.setattr(mapped, "LARGE", 1)
    large = Folder(str(pictures), 16).load()
    assert mapped.place_of(large.images) is not None
    assert mapped.place_of(plain.images) is None
    assert torch.equal(large.images, plain.images)
    assert torch.equal(large.test_images, plain.test_images)
    assert large.facts == plain.facts
    monkeypatch.setattr(Folder, "_decode_files", lambda *_: pytest.fail("decoded again"))
    assert torch.equal(Folder(str(pictures), 16).load().images, plain.images)


def test_a_damaged_file_is_decoded_again(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "LARGE", 1)
    first = Folder(str(pictures), 16).load().images.clone()
    (file,) = (tmp_path / "cache/folder").glob("*.pictures")
    content = bytearray(file.read_bytes())
    content[100] ^= 255
    file.write_bytes(content)
    assert torch.equal(Folder(str(pictures), 16).load().images, first)


def test_unreadable_pictures_leave_no_gap(pictures, tmp_path, monkeypatch):
    (pictures / "train/dark/3.png").write_bytes(b"no picture")
    plain = Folder(str(pictures), 16, unreadable="skip").load()
    monkeypatch.setattr(mapped, "LARGE", 1)
    for _ in range(2):  # decoded, and then recalled
        large = Folder(str(pictures), 16, unreadable="skip").load()
        assert mapped.place_of(large.images) is not None
        assert large.skipped == plain.skipped == ("train/dark/3.png",)
        assert torch.equal(large.images, plain.images)
        assert torch.equal(large.test_images, plain.test_images)


def test_a_place_takes_the_files_name_along_and_not_the_pictures(pictures, monkeypatch):
    monkeypatch.setattr(mapped, "LARGE", 1)
    data = Folder(str(pictures), 16).load()
    place = Place(
        data.facts, data.images, None, data.labels, {"test": (data.test_images, data.test_labels)}, None, "cpu", None
    )
    sent = pickle.dumps(place)
    assert len(sent) < data.images.numel() / 2
    there = pickle.loads(sent)
    assert torch.equal(there.images, data.images)
    assert torch.equal(there.graded["test"][0], data.test_images)


def test_runs_are_the_same_to_the_bit_also_in_worker_processes(pictures, tmp_path, monkeypatch):
    table = {
        "rounds": 1,
        "threads": 1,
        "labels_only": False,
        "data": {"name": "folder", "root": str(pictures), "size": 16, "labeled": 4, "clients": 2},
        "model": {"name": "cnn", "width": 2},
        "method": {"threshold": 0.0, "client_epochs": 1, "activity_rate": 1.0},
    }
    start(decode(table), tmp_path / "plain")
    monkeypatch.setattr(mapped, "LARGE", 1)
    start(decode(table), tmp_path / "mapped", workers=2)
    digests = [json.loads((tmp_path / name / "rounds.jsonl").read_text())["digest"] for name in ("plain", "mapped")]
    assert digests[0] == digests[1]


def test_counting_in_blocks_gives_the_same_mean(monkeypatch):
    images = torch.randint(0, 256, (50, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    values = images.numpy() / 255
    monkeypatch.setattr("semifl.data.dataset.BLOCK", 7)
    mean, std = moments(images)
    assert mean == pytest.approx(values.mean(axis=(0, 2, 3)))
    assert std == pytest.approx(values.std(axis=(0, 2, 3)))


PEAK = """
import resource, sys, torch
from pathlib import Path
from semifl.data.dataset import moments
from semifl.data.mapped import decode_mapped
from semifl.data.pictures import Decoded
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))  # what is mapped from files does not count as data
shape = (20_000, 3, 224, 224)  # 3 GB
def fill(into):
    into[::1000] = 7
    return Decoded(into, ())
decoded = decode_mapped(Path(sys.argv[1]), "x", shape, fill)
print(moments(decoded.images[:2000])[0][0], int(decoded.images[19_000, 0, 0, 0]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_three_gigabytes_of_pictures_need_no_three_gigabytes_of_memory(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "a.pictures")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    mean, last = run.stdout.split()
    assert (float(mean), int(last)) == (pytest.approx(2 / 2000 * 7 / 255), 7)
