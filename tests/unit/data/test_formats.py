"""Readers of published files: what they accept, and that nothing in a file can do harm."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest
import scipy.io

from semifl.data.formats import read_idx, read_mat, unpickle
from semifl.errors import UserError


class Malicious:
    """A pickle of this runs a command wherever it is opened without care."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_data_survive_the_restricted_unpickler(protocol):
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = {b"data": array, b"labels": [3, 1, 2], "words": ["a", b"b\xff"], "nested": {"n": 1.5, "none": None}}

    read = unpickle(pickle.dumps(content, protocol), "batch")

    np.testing.assert_array_equal(read.pop(b"data"), array)
    assert read == {b"labels": [3, 1, 2], "words": ["a", b"b\xff"], "nested": {"n": 1.5, "none": None}}


def test_python_2_strings_come_as_bytes():
    # What Python 2 wrote for {'a': 'b\xff'} at protocol 2: SHORT_BINSTRING (U) instead of unicode.
    assert unpickle(b"\x80\x02}U\x01aU\x02b\xffs.", "batch") == {b"a": b"b\xff"}


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path, protocol):
    data = pickle.dumps({"data": Malicious(tmp_path / "owned")}, protocol)

    with pytest.raises(UserError, match=r"evil_batch was refused because it asks for (posix|nt)\.system"):
        unpickle(data, "evil_batch")

    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("wish", ["builtins eval", "numpy load", "numpy.core.multiarray scalar", "os path.join"])
def test_every_other_name_is_refused(wish):
    module, name = wish.split()
    with pytest.raises(UserError, match="was refused"):
        unpickle(f"c{module}\n{name}\n.".encode(), "batch")


def test_bytes_may_be_written_as_latin1_and_in_no_other_codec():
    with pytest.raises(UserError, match="not a readable pickle"):
        unpickle(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "batch")


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps([1, 2, 3])[:-3]])
def test_a_damaged_pickle_is_named(data):
    with pytest.raises(UserError, match="batch_7 is not a readable pickle"):
        unpickle(data, "batch_7")


def idx(array):
    """An IDX file by its definition: two zeros, type 8, number of dimensions, big-endian sizes, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
def test_idx_plain_and_compressed(tmp_path, shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))

    np.testing.assert_array_equal(read_idx(tmp_path / "a"), array)
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is not an IDX file"),
        (b"<html>", "is not an IDX file of unsigned bytes"),
        (bytes([0, 0, 0x0D, 1, 0, 0, 0, 1]) + bytes(4), "is not an IDX file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0]), "ends inside its header"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(5), "announces 2×3 values and holds 5 bytes"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 2]) + bytes(3), "announces 2 values and holds 3 bytes"),
    ],
)
def test_a_wrong_idx_header_is_one_sentence(tmp_path, data, sentence):
    (tmp_path / "images").write_bytes(data)
    with pytest.raises(UserError, match=f"images {sentence}"):
        read_idx(tmp_path / "images")


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(bytes(1000))[:-9], b""], ids=["other", "cut", "empty"])
def test_a_damaged_gzip_file_is_named(tmp_path, data):
    (tmp_path / "images.gz").write_bytes(data)
    with pytest.raises(UserError, match=r"images\.gz"):
        read_idx(tmp_path / "images.gz")


def test_mat_variables(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.arange(6).reshape(2, 3), "y": np.array([[1], [2]]), "z": 1})

    X, y = read_mat(tmp_path / "a.mat", "X", "y")

    assert X.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert y.tolist() == [[1], [2]]
    with pytest.raises(UserError, match=r"a\.mat has no variable w"):
        read_mat(tmp_path / "a.mat", "X", "w")


def test_a_damaged_mat_file_is_named(tmp_path):
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(UserError, match=r"a\.mat is not a readable MATLAB file"):
        read_mat(tmp_path / "a.mat", "X")
