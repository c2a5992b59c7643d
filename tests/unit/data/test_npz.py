"""NumPy archives with the four arrays."""

from pathlib import Path

import numpy as np
import pytest

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data.datasets.npz import Npz
from semifl.errors import UserError

RNG = np.random.default_rng(0)
ARRAYS = {
    "train_images": RNG.integers(0, 256, (12, 6, 6), dtype=np.uint8),
    "train_labels": np.arange(12, dtype=np.uint8).reshape(12, 1) % 2,  # a column, as MedMNIST has them
    "test_images": RNG.integers(0, 256, (4, 6, 6), dtype=np.uint8),
    "test_labels": np.array([[0], [1], [0], [1]]),
    "val_images": np.zeros((1, 6, 6), dtype=np.uint8),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez_compressed(tmp_path / "set.npz", **ARRAYS)
    return tmp_path / "set.npz"


def test_the_arrays_become_a_data_set(file: Path) -> None:
    data = Npz(str(file), classes="no, yes").load()
    np.testing.assert_array_equal(data.images[:, 0].numpy(), ARRAYS["train_images"])
    assert data.labels.tolist() == [0, 1] * 6
    assert data.test_labels.tolist() == [0, 1, 0, 1]
    assert data.facts.class_names == ("no", "yes")
    assert (data.facts.channels, data.facts.size) == (1, 6)
    assert data.facts.mean[0] == pytest.approx(ARRAYS["train_images"].mean() / 255)
    assert Npz(str(file), size=3).load().images.shape == (12, 1, 3, 3)


def test_it_is_divided_like_any_other(file: Path) -> None:
    config = decode({"data": {"name": "npz", "root": str(file), "labeled": 4, "clients": 2}})
    world = build_world(config)
    assert len(world.division.server) == 4
    assert world.division.clients.counts.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_labels": None}, "has no test_labels: it holds test_images, train_images, train_labels"),
        ({"train_labels": np.zeros(5, int)}, "train_labels of .* must be one label for each of the 12 pictures"),
        ({"train_images": np.zeros((12, 6, 6)) + 7.0}, "holds floats from 7 to 7"),
        ({"train_images": np.zeros((12, 4, 8))}, "train_images of .* is 4 × 8, not square: with data.size = 4"),
        ({"train_images": np.array([{}] * 12)}, "is not a NumPy archive that can be read"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, changes: dict, said: str) -> None:
    given = {name: each for name, each in (ARRAYS | changes).items() if each is not None and name != "val_images"}
    np.savez(tmp_path / "set.npz", **given)
    with pytest.raises(UserError, match=said) as error:
        Npz(str(tmp_path / "set.npz")).load()
    assert "\n" not in str(error.value)


def test_what_is_no_archive_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "set.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(UserError, match="is not a NumPy archive"):
        Npz(str(tmp_path / "set.npz")).load()
    with pytest.raises(UserError, match="there is no file"):
        Npz(str(tmp_path / "other.npz")).load()


def test_names_must_fit_the_labels(file: Path) -> None:
    with pytest.raises(UserError, match="should be 2 different names"):
        Npz(str(file), classes="one,two,three").load()
