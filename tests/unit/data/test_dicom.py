"""DICOM: rescaled, windowed, inverted by hand-made files, and nothing of a patient anywhere."""

from pathlib import Path

import numpy as np
import pytest

from semifl.cli import invoke
from semifl.data.datasets.folder import Folder
from semifl.data.pictures import UnreadableError, decode, pictures_below
from semifl.data.survey import Entry, survey
from toys import toy_table

pydicom = pytest.importorskip("pydicom")
SECRET = "Doe^Jane^19700101"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SEMIFL_DATA", str(folder))
    return folder


def write(path: Path, values: np.ndarray, **tags: object) -> Path:
    """A file as a scanner would leave it, with a patient in it; 12 of 16 bits unless the tags say otherwise."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = Dataset()
    data.file_meta = meta
    data.SOPClassUID, data.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    data.PatientName, data.PatientID = SECRET, SECRET
    data.Rows, data.Columns = values.shape[:2]
    grey = values.ndim == 2
    data.SamplesPerPixel, data.PhotometricInterpretation = (1, "MONOCHROME2") if grey else (3, "RGB")
    bits = 16 if grey else 8
    data.BitsAllocated, data.BitsStored, data.HighBit = bits, 12 if grey else 8, 11 if grey else 7
    data.PixelRepresentation = 1 if grey and values.min() < 0 else 0
    if not grey:
        data.PlanarConfiguration = 0
    for name, value in tags.items():
        setattr(data, name, value)
    kind = np.uint8 if not grey else np.int16 if data.PixelRepresentation else np.uint16
    data.PixelData = values.astype(kind).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)
    return path


def pixels(path: Path, size: int = 2) -> list[int]:
    return decode(path, size)[0].flatten().tolist()


VALUES = np.array([[0, 1000], [2000, 4095]])


def test_without_a_window_the_stored_bits_are_the_range(tmp_path: Path) -> None:
    # 1000 / 4095 · 255 = 62.27, 2000 / 4095 · 255 = 124.5…
    assert pixels(write(tmp_path / "a.dcm", VALUES)) == [0, 62, 125, 255]


def test_small_values_are_white_where_the_file_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "a.dcm", VALUES, PhotometricInterpretation="MONOCHROME1")
    assert pixels(path) == [255, 193, 130, 0]


def test_the_window_counts_after_rescaling(tmp_path: Path) -> None:
    # Rescaled by 1 · v − 1024 they are −1024, −24, 976, 3071. A window of width 401 around 0.5 goes from −200 to 200:
    # −24 lies (−24 + 200) / 400 = 0.44 up, the others outside.
    path = write(
        tmp_path / "ct.dcm", VALUES, RescaleSlope="1", RescaleIntercept="-1024", WindowCenter="0.5", WindowWidth="401"
    )
    assert pixels(path) == [0, round(255 * 0.44), 255, 255]


def test_signed_values_and_the_first_of_several_windows(tmp_path: Path) -> None:
    values = np.array([[-2048, -100], [100, 2047]])
    # From −100 to 100 the window is (center 0.5, width 201): black up to −100, white from 100 on.
    path = write(tmp_path / "a.dcm", values, WindowCenter=["0.5", "50"], WindowWidth=["201", "10"])
    assert pixels(path) == [0, 0, 255, 255]


def test_a_negative_slope_turns_values_round_and_the_window_does_not_turn_them_back(tmp_path: Path) -> None:
    turned = {"RescaleSlope": "-1", "RescaleIntercept": "4095"}  # 4095, 3095, 2095, 0
    assert pixels(write(tmp_path / "plain.dcm", VALUES, **turned)) == [255, round(255 * 3095 / 4095), 130, 0]
    # A window of width 2001 around 2095.5 goes from 1095 to 3095 (the half and the one are DICOM's own): 4095 and 3095
    # are white, 2095 lies half way, 0 is black.
    window = {"WindowCenter": "2095.5", "WindowWidth": "2001"}
    assert pixels(write(tmp_path / "window.dcm", VALUES, **turned, **window)) == [255, 255, 128, 0]
    path = write(tmp_path / "both.dcm", VALUES, **turned, **window, PhotometricInterpretation="MONOCHROME1")
    assert pixels(path) == [0, 0, 128, 255]


def test_a_slope_or_an_intercept_alone_is_no_rescaling(tmp_path: Path) -> None:
    assert pixels(write(tmp_path / "slope.dcm", VALUES, RescaleSlope="2")) == [0, 62, 125, 255]
    assert pixels(write(tmp_path / "intercept.dcm", VALUES, RescaleIntercept="-1024")) == [0, 62, 125, 255]
    # The window from 1000 to 3000 is of the stored values: 2000 lies half way.
    path = write(tmp_path / "window.dcm", VALUES, RescaleIntercept="-1024", WindowCenter="2000.5", WindowWidth="2001")
    assert pixels(path) == [0, 0, 128, 255]


def test_a_window_without_numbers_is_none(tmp_path: Path) -> None:
    turned = {"RescaleSlope": "-1", "RescaleIntercept": "4095"}
    path = write(tmp_path / "a.dcm", VALUES, **turned, WindowCenter=None, WindowWidth=None)
    assert pixels(path) == [255, 193, 130, 0]


def test_colour(tmp_path: Path) -> None:
    values = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [9, 9, 9]]])
    picture = decode(write(tmp_path / "a.dcm", values), 2)
    assert picture.permute(1, 2, 0).tolist() == values.tolist()


def test_files_are_found_by_suffix_or_by_their_first_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.DCM", VALUES)
    write(tmp_path / "IM0001", VALUES)
    write(tmp_path / "1.2.840.113619.2.55.3.604688119.969.1", VALUES)  # by its UID
    (tmp_path / "volume.7z.001").write_text("no picture")
    (tmp_path / "notes").write_text("no picture")
    (tmp_path / "DICOMDIR.txt").write_text("neither")
    assert [path.name for path in pictures_below(tmp_path)] == [
        "1.2.840.113619.2.55.3.604688119.969.1",
        "IM0001",
        "a.DCM",
    ]
    assert pixels(tmp_path / "IM0001") == [0, 62, 125, 255]
    found = survey(tmp_path, {"": []} | {"x": ["y"]}, [Entry("x", "y", tmp_path / "a.DCM")], False)
    assert dict(found.kinds) == {"DICOM monochrome2": 1}
    assert found.sizes == [(2, 2)]


@pytest.mark.parametrize("cut", [0, 100, 140, 400])
def test_a_damaged_file_is_named_and_its_patient_is_not(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.dcm", VALUES)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UnreadableError) as error:
        decode(path, 2)
    assert str(path) in str(error.value)
    assert "Doe" not in str(error.value)


def test_a_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.dcm", VALUES, NumberOfFrames=10**9)
    with pytest.raises(UnreadableError, match="claims to hold"):
        decode(path, 2)


def test_nothing_of_a_patient_is_in_the_run_or_the_cache(tmp_path: Path, cache: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in {"labeled/a": 2, "labeled/b": 2, "clients/north": 4, "test/a": 2, "test/b": 2}.items():
        for number in range(count):
            values = rng.integers(0, 2000, (8, 8)) + 2000 * part.endswith("b")
            write(tmp_path / "pictures" / part / f"{number}.dcm", values)
    from semifl import toml

    data = {"name": "folder", "root": str(tmp_path / "pictures"), "size": 8}
    (tmp_path / "config.toml").write_text(toml.dumps({**toy_table(), "rounds": 1, "data": data}))
    run = tmp_path / "run"
    assert invoke(["check", str(tmp_path / "config.toml"), "--workers", "1"]) == 0
    assert invoke(["run", str(tmp_path / "config.toml"), "--out", str(run), "--workers", "1"]) == 0
    assert invoke(["predict", str(run), str(tmp_path / "pictures/clients"), "--csv"]) == 0
    written = [path for folder in (run, cache) for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 8
    for path in written:
        content = path.read_bytes()
        assert b"Doe" not in content, path
        assert b"19700101" not in content, path


def test_without_the_extra_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from semifl.errors import UserError

    path = write(tmp_path / "test/a/a.dcm", VALUES)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(UserError, match=r"pip install 'semifl\[dicom\]'") as error:
        decode(path, 2)
    assert not isinstance(error.value, UnreadableError)  # or data.unreadable = "skip" would leave out every picture
    assert Folder  # the folder itself needs no extra
