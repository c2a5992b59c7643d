"""The published data sets, read from tiny files of the real kind."""

import dataclasses
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest
import scipy.io
import torch
from sklearn.datasets import load_digits

from semifl.data.datasets import fashion_mnist
from semifl.data.datasets.cifar10 import Cifar10
from semifl.data.datasets.cifar100 import Cifar100
from semifl.data.datasets.digits import Digits
from semifl.data.datasets.fashion_mnist import FashionMnist
from semifl.data.datasets.svhn import Svhn
from semifl.errors import UserError

rng = np.random.default_rng(0)


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, which is what the published CIFAR files contain."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        self.write(b"T" + struct.pack("<i", len(text)) + text)  # BINSTRING

    dispatch[bytes] = save_string


def python2(content):
    out = io.BytesIO()
    Python2Pickler(out, protocol=2).dump(content)
    return out.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def python3(content):
    return pickle.dumps({key.decode(): value for key, value in content.items()}, protocol=4)


def cifar10_files(write):
    """The seven files with two pictures each, and the pixels that went in."""
    pixels = rng.integers(0, 256, (12, 3072), dtype=np.uint8)
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    files = {
        name: write({b"data": pixels[2 * n : 2 * n + 2], b"labels": [n, 9 - n], b"filenames": [b"a.png", b"b.png"]})
        for n, name in enumerate(names)
    }
    words = [b"airplane", b"automobile", b"bird", b"cat", b"deer", b"dog", b"frog", b"horse", b"ship", b"truck"]
    return files | {"batches.meta": write({b"label_names": words, b"num_vis": 3072})}, pixels


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def pack(archive, files):
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def check_cifar10(data, pixels):
    # A row of the file is the red plane, then green, then blue, each row by row.
    assert data.images.shape == (10, 3, 32, 32)
    assert data.images.dtype == torch.uint8
    for picture, channel, y, x in [(0, 0, 0, 0), (3, 1, 5, 7), (9, 2, 31, 30)]:
        assert data.images[picture, channel, y, x] == pixels[picture, 1024 * channel + 32 * y + x]
    assert data.labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert data.test_labels.tolist() == [5, 4]
    np.testing.assert_array_equal(data.test_images.numpy().reshape(2, -1), pixels[10:])
    assert data.facts.class_names[:3] == ("airplane", "automobile", "bird")
    assert (data.facts.classes, data.facts.channels, data.facts.size, data.facts.may_flip) == (10, 3, 32, True)
    assert data.facts.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("write", [python2, python3])
@pytest.mark.parametrize("form", ["folder", "bare", "archive"])
def test_cifar10_in_every_form(tmp_path, write, form):
    files, pixels = cifar10_files(write)
    if form == "archive":
        inside = {f"cifar-10-batches-py/{name}": data for name, data in files.items()}
        pack(tmp_path / "cifar-10-python.tar.gz", inside)
    else:
        put(tmp_path / "cifar-10-batches-py" if form == "folder" else tmp_path, files)

    check_cifar10(Cifar10(str(tmp_path), verify=False).load(), pixels)


def test_cifar10_is_verified_byte_by_byte(tmp_path, monkeypatch):
    files, pixels = cifar10_files(python2)
    put(tmp_path / "cifar-10-batches-py", files)
    with pytest.raises(UserError, match=r"data_batch_1 does not have the published checksum.*semifl data get cifar10"):
        Cifar10(str(tmp_path)).load()

    sums = {name: hashlib.md5(files[name]).hexdigest() for name in Cifar10.EDITION.md5}
    monkeypatch.setattr(Cifar10, "EDITION", dataclasses.replace(Cifar10.EDITION, md5=sums))
    check_cifar10(Cifar10(str(tmp_path)).load(), pixels)

    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(files["test_batch"] + b"\0")
    with pytest.raises(UserError, match="test_batch does not have the published checksum"):
        Cifar10(str(tmp_path)).load()


def test_an_incomplete_folder_gives_way_to_the_archive(tmp_path):
    files, pixels = cifar10_files(python2)
    put(tmp_path / "cifar-10-batches-py", {"data_batch_1": b"damaged"})
    pack(tmp_path / "cifar-10-python.tar.gz", {f"cifar-10-batches-py/{name}": data for name, data in files.items()})
    check_cifar10(Cifar10(str(tmp_path), verify=False).load(), pixels)


def test_a_member_that_climbs_out_of_the_archive_is_left_alone(tmp_path):
    files, pixels = cifar10_files(python2)
    inside = {f"cifar-10-batches-py/{name}": data for name, data in files.items()}
    evil = {"../escaped": b"x", "cifar-10-batches-py/../../escaped": b"x", "/tmp/semifl-escaped": b"x"}
    (tmp_path / "data").mkdir()
    pack(tmp_path / "data" / "cifar-10-python.tar.gz", evil | inside)

    check_cifar10(Cifar10(str(tmp_path / "data"), verify=False).load(), pixels)

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cifar-10-python.tar.gz", "data"]


def test_archives_that_are_damaged_or_lack_a_member_are_named(tmp_path):
    archive = tmp_path / "cifar-10-python.tar.gz"
    files, _ = cifar10_files(python2)
    pack(archive, {f"cifar-10-batches-py/{name}": data for name, data in files.items() if name != "data_batch_4"})
    with pytest.raises(UserError, match=r"tar\.gz has no member cifar-10-batches-py/data_batch_4"):
        Cifar10(str(tmp_path), verify=False).load()
    archive.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(UserError, match=r"tar\.gz is damaged"):
        Cifar10(str(tmp_path), verify=False).load()


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ({b"data": np.zeros((2, 3072), np.uint8)}, "has no entry labels"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}, "labels outside 0 to 9"),
        ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]}, "one row of 3072 bytes per label"),
        ({b"data": np.zeros((3, 3072), np.uint8), b"labels": [0, 1]}, "one row of 3072 bytes per label"),
        ([], "has no entry data"),
    ],
)
def test_a_batch_of_another_shape_is_named(tmp_path, batch, sentence):
    files, _ = cifar10_files(python2)
    put(tmp_path, files | {"data_batch_2": python2(batch)})
    with pytest.raises(UserError, match=f"data_batch_2 .*{sentence}"):
        Cifar10(str(tmp_path), verify=False).load()


def test_cifar100_has_fine_labels(tmp_path):
    pixels = rng.integers(0, 256, (5, 3072), dtype=np.uint8)
    batch = {b"data": pixels[:3], b"fine_labels": [99, 0, 42], b"coarse_labels": [1, 2, 3]}
    files = {
        "train": python2(batch),
        "test": python2({b"data": pixels[3:], b"fine_labels": [7, 8], b"coarse_labels": [0, 0]}),
        "meta": python2({b"fine_label_names": [b"class %d" % n for n in range(100)], b"coarse_label_names": []}),
    }
    put(tmp_path / "cifar-100-python", files)

    data = Cifar100(str(tmp_path), verify=False).load()

    assert data.labels.tolist() == [99, 0, 42]
    assert data.test_labels.tolist() == [7, 8]
    np.testing.assert_array_equal(data.images.numpy().reshape(3, -1), pixels[:3])
    assert data.facts.classes == 100
    assert data.facts.class_names[42] == "class 42"
    assert data.facts.std == (0.2673, 0.2564, 0.2762)


def test_svhn_turns_label_10_into_0(tmp_path):
    pixels = rng.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for name in ("train", "test"):
        labels = np.array([[1], [10], [9], [2]], dtype=np.uint8)
        scipy.io.savemat(tmp_path / f"{name}_32x32.mat", {"X": pixels, "y": labels}, do_compression=True)

    data = Svhn(str(tmp_path), verify=False).load()

    assert data.labels.tolist() == data.test_labels.tolist() == [1, 0, 9, 2]
    assert data.images.shape == (4, 3, 32, 32)
    assert data.images[2, 1, 5, 7] == pixels[5, 7, 1, 2]
    assert not data.facts.may_flip
    with pytest.raises(UserError, match=r"train_32x32\.mat does not have the published checksum"):
        Svhn(str(tmp_path)).load()


@pytest.mark.parametrize("labels", [[[0], [1]], [[11], [1]], [[1], [2], [3]]])
def test_svhn_of_another_shape_is_named(tmp_path, labels):
    pixels = np.zeros((32, 32, 3, 2), np.uint8)
    for name in ("train", "test"):
        scipy.io.savemat(tmp_path / f"{name}_32x32.mat", {"X": pixels, "y": np.array(labels)})
    with pytest.raises(UserError, match=r"train_32x32\.mat"):
        Svhn(str(tmp_path), verify=False).load()


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def fashion_files():
    pixels = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    files = {
        "train-images-idx3-ubyte": idx(pixels[:3]),
        "train-labels-idx1-ubyte": idx(np.array([9, 0, 4], np.uint8)),
        "t10k-images-idx3-ubyte": idx(pixels[3:]),
        "t10k-labels-idx1-ubyte": idx(np.array([1, 2], np.uint8)),
    }
    return files, pixels


@pytest.mark.parametrize("packed", [0, 2, 4])
def test_fashion_mnist_plain_packed_or_mixed(tmp_path, packed):
    files, pixels = fashion_files()
    for n, (name, data) in enumerate(files.items()):
        put(tmp_path, {f"{name}.gz": gzip.compress(data)} if n < packed else {name: data})

    data = FashionMnist(str(tmp_path)).load()

    np.testing.assert_array_equal(data.images.numpy()[:, 0], pixels[:3])
    np.testing.assert_array_equal(data.test_images.numpy()[:, 0], pixels[3:])
    assert (data.labels.tolist(), data.test_labels.tolist()) == ([9, 0, 4], [1, 2])
    assert data.facts.mean == pytest.approx([pixels[:3].mean() / 255])
    assert data.facts.std == pytest.approx([pixels[:3].std() / 255])
    assert (data.facts.channels, data.facts.size, data.facts.may_flip) == (1, 28, True)


def test_fashion_mnist_is_found_where_debian_puts_it(tmp_path, monkeypatch):
    files, _ = fashion_files()
    put(tmp_path / "debian", files)
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "empty"))
    assert len(FashionMnist().load().images) == 3
    with pytest.raises(UserError, match="fashion_mnist is not in"):
        FashionMnist(str(tmp_path)).load()


def test_fashion_mnist_with_labels_for_other_pictures_is_named(tmp_path):
    files, _ = fashion_files()
    put(tmp_path, files | {"t10k-labels-idx1-ubyte": idx(np.array([1, 2, 3], np.uint8))})
    with pytest.raises(UserError, match="t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte"):
        FashionMnist(str(tmp_path)).load()
    put(tmp_path, files | {"train-labels-idx1-ubyte": idx(np.array([1, 2, 10], np.uint8))})
    with pytest.raises(UserError, match="train-labels-idx1-ubyte holds no labels or labels above 9"):
        FashionMnist(str(tmp_path)).load()


@pytest.mark.parametrize("source", [Cifar10, Cifar100, Svhn, FashionMnist])
def test_a_missing_data_set_is_one_sentence(tmp_path, monkeypatch, source):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    name = source.FILES.dataset

    with pytest.raises(UserError) as caught:
        source().load()

    sentence = str(caught.value)
    assert sentence.startswith(
        f"The data set {name} is not in {tmp_path / name}: run `semifl data get {name}`, or put "
    )
    assert source.FILES.page in sentence
    assert all(file.name in sentence for file in source.FILES.files)
    with pytest.raises(UserError, match=r"leave out data\.root and run"):
        source(root=str(tmp_path)).load()


def test_digits_have_a_fixed_stratified_test_part():
    source = load_digits()

    data = Digits().load()

    rows = {digit: np.flatnonzero(source.target == digit) for digit in range(10)}
    test_rows = np.sort(np.concatenate([found[::5] for found in rows.values()]))
    pixels = np.floor(source.images * 255 / 16 + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(data.test_images.numpy()[:, 0], pixels[test_rows])
    np.testing.assert_array_equal(data.images.numpy()[:, 0], np.delete(pixels, test_rows, axis=0))
    np.testing.assert_array_equal(data.test_labels.numpy(), source.target[test_rows])
    assert len(data.images) + len(data.test_images) == 1797
    assert data.test_labels.bincount().tolist() == [-(-len(found) // 5) for found in rows.values()]
    assert data.images.max() == 255
    assert data.facts.mean == pytest.approx([np.delete(pixels, test_rows, axis=0).mean() / 255])
    assert (data.facts.classes, data.facts.channels, data.facts.size, data.facts.may_flip) == (10, 1, 8, False)
