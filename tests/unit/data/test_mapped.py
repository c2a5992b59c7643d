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


def in_another_process(code, *arguments):
    """What a fresh Python prints, where every folder counts as large."""
    lines = ["import pickle, sys", "from semifl.data import mapped", "from semifl.data.datasets.folder import Folder"]
    program = "\n".join([*lines, "mapped.LARGE = 1", code])
    return subprocess.check_output([sys.executable, "-c", program, *map(str, arguments)], text=True).strip()


LOAD = "Folder(sys.argv[1], 16).load()"
SEE = "print(pickle.load(open(sys.argv[1], 'rb')).open().float().sum(dim=(1, 2, 3)).tolist())"


def test_a_place_stays_what_it_was_when_the_folder_changes(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "LARGE", 1)
    data = Folder(str(pictures), 16).load()  # a run that goes on
    held = data.images.clone()
    (tmp_path / "place").write_bytes(pickle.dumps(mapped.place_of(data.images)))
    (pictures / "train/dark/0.png").unlink()
    in_another_process(LOAD, pictures)
    assert torch.equal(data.images, held)
    seen = in_another_process(SEE, tmp_path / "place")  # a worker that takes the place of a dead one
    assert json.loads(seen) == held.float().sum(dim=(1, 2, 3)).tolist()
    assert len(Folder(str(pictures), 16).load().images) == len(held) - 1  # and whoever loads anew sees what is there


def test_an_old_state_is_removed_once_nobody_holds_it(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "LARGE", 1)
    folder = tmp_path / "cache/folder"
    Folder(str(pictures), 16).load()
    (first,) = folder.glob("*.pictures")
    (pictures / "train/dark/0.png").unlink()
    in_another_process(LOAD, pictures)
    assert len(list(folder.glob("*.pictures"))) == 2  # this process holds the first
    mapped._close(first)
    (folder / f"{first.stem.partition('-')[0]}-broken{mapped.PART}").write_bytes(b"an attempt that was broken off")
    (pictures / "train/dark/1.png").unlink()
    in_another_process(LOAD, pictures)
    (left,) = folder.glob("*.pictures")
    assert left.stat().st_size == (2 * 12 - 2 + 2 * 4) * 3 * 16 * 16  # what is left of both parts, in colour
    assert not list(folder.glob(f"*{mapped.PART}"))


def test_greys_keep_their_bits_when_recalled(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(mapped, "LARGE", 1)
    for number, (part, grey) in enumerate([("train/a", 4000), ("train/b", 800), ("test/a", 2000), ("test/b", 300)]):
        (tmp_path / "pictures" / part).mkdir(parents=True)
        values = np.full((8, 8), grey, dtype=np.uint16)
        Image.fromarray(values).save(tmp_path / "pictures" / part / f"{number}.png")
    for _ in range(2):  # decoded, and then recalled
        data = Folder(str(tmp_path / "pictures"), 8, channels="grey").load()
        assert data.facts.bits == 12  # the least that has room for 4000
        assert data.images[:, 0, 0, 0].tolist() == [round(255 * grey / 4095) for grey in (4000, 800)]


def test_greys_among_which_colour_was_possible_are_decoded_once_and_stay_mapped(pictures, monkeypatch):
    for path in pictures.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    plain = Folder(str(pictures), 16).load()
    monkeypatch.setattr(mapped, "LARGE", 1)
    first = Folder(str(pictures), 16).load()
    assert first.images.shape == (24, 1, 16, 16)
    monkeypatch.setattr(Folder, "_decode_files", lambda *_: pytest.fail("decoded again"))
    again = Folder(str(pictures), 16).load()
    for data in (first, again):
        assert mapped.place_of(data.images) is not None
        assert torch.equal(data.images, plain.images)
        assert torch.equal(data.test_images, plain.test_images)


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
