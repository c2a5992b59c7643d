"""predictions.npz: read as written, and refused by one sentence when damaged."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from semifl.errors import UserError
from semifl.records.predictions import read_predictions, write_predictions

LABELS = np.array([0, 1, 1])
SHARES = np.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]])


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "predictions.npz"
    write_predictions(file, LABELS, {"model": SHARES, "labels_only": SHARES[::-1]})
    found = read_predictions(file)
    assert (found.labels == LABELS).all()
    assert list(found.models) == ["model", "labels_only"]
    assert (found.models["labels_only"] == SHARES[::-1]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.npz"]  # no half-written file beside it


@pytest.mark.parametrize(
    ("labels", "models"),
    [
        (LABELS, {"other": SHARES}),
        (LABELS.astype(float), {"model": SHARES}),
        (LABELS, {"model": SHARES[:2]}),
        (LABELS, {"model": SHARES * 2}),
        (LABELS, {"model": SHARES * np.nan}),
        (LABELS + 1, {"model": SHARES}),
        (LABELS[:0], {"model": SHARES[:0]}),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused(tmp_path: Path, labels: np.ndarray, models: dict) -> None:
    file = tmp_path / "predictions.npz"
    write_predictions(file, labels, models)
    with pytest.raises(UserError, match=r"predictions\.npz is damaged"):
        read_predictions(file)


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_a_cut_off_file_is_refused(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "predictions.npz"
    write_predictions(file, LABELS, {"model": SHARES})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(UserError, match="is damaged"):
        read_predictions(file)


def test_objects_are_never_loaded(tmp_path: Path) -> None:
    file = tmp_path / "predictions.npz"
    np.savez(file, labels=LABELS, model=np.array([print, None, 1], dtype=object))
    with pytest.raises(UserError, match="is damaged"):
        read_predictions(file)


def test_what_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "predictions.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("labels.npy", "w") as entry:
        for _ in range(260):
            entry.write(bytes(1 << 20))
    with pytest.raises(UserError, match="is damaged"):
        read_predictions(file)


def test_a_run_without_the_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        read_predictions(tmp_path / "predictions.npz")
