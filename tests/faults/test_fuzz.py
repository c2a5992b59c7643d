"""Whatever a file contains, reading it ends in success or in one sentence: never in a traceback, never in a hang.

SEMIFL_FAULTS=full tries more than ten thousand cases, the normal suite a few hundred.
"""

import copy
import gzip
import io
import json
import pickle
import resource
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save

from faults.harness import FULL, bounded, isolated, make_odd, only_user_errors, table
from semifl import toml
from semifl.configuration.build import build_world, load_weights
from semifl.configuration.config import decode, of_run, override, read
from semifl.data import formats
from semifl.data.datasets.cifar10 import Cifar10
from semifl.data.datasets.cifar100 import Cifar100
from semifl.data.datasets.fashion_mnist import FashionMnist
from semifl.data.datasets.folder import Folder
from semifl.data.datasets.npz import Npz
from semifl.data.datasets.svhn import Svhn
from semifl.data.pictures import decode as decode_picture
from semifl.errors import UserError
from semifl.methods.semifl import State
from semifl.records.directory import RunDirectory
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import check_outputs
from semifl.running.loop import LoopState, resume, start
from semifl.trained.modelfile import load_model
from toys import toy_model

pytestmark = pytest.mark.filterwarnings("ignore")
rng = np.random.default_rng(0)


def cases(small: int, full: int) -> Callable[[Any], Any]:
    """How many examples to try; no shrinking in a suite that only has to say that something is wrong."""
    return settings(
        max_examples=full if FULL else small,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink) if not FULL else (Phase.explicit, Phase.generate),
        print_blob=False,
    )


def _change(content: bytearray, kind: str, at: int, draw: st.DrawFn) -> None:
    """One thing that is wrong with a file."""
    new: bytes | bytearray
    if kind == "cut":
        del content[at:]
        return
    length, new = {
        "flip": (1, bytes(each ^ (1 << draw(st.integers(0, 7))) for each in content[at : at + 1])),
        "set": (1, draw(st.binary(min_size=1, max_size=1))),
        "letter": (1, draw(st.sampled_from('0123456789FIUB-[]{}",:.ecnR')).encode()),
        "drop": (draw(st.integers(1, 20)), b""),
        "insert": (0, draw(st.binary(max_size=20))),
        "big": (4, draw(st.sampled_from([b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"]))),
        "double": (0, content[at : at + 100]),
    }[kind]
    content[at : at + length] = new


@st.composite
def mutated(draw: st.DrawFn, *originals: bytes) -> bytes:
    """A valid file with a few things wrong with it, or no such file at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    content = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        # Half of the damage falls on the first bytes, where the meaning is.
        reach = len(content) if draw(st.booleans()) else min(len(content), 400)
        kind = draw(st.sampled_from(["flip", "set", "cut", "drop", "insert", "big", "double", "letter"]))
        _change(content, kind, draw(st.integers(0, max(reach - 1, 0))), draw)
    return bytes(content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# Configurations

PLAIN = toml.dumps(table("guarded")).encode()
RESOLVED = toml.dumps(decode(table("guarded")).table()).encode()
NAMES = [
    "semifl", "wide_resnet", "digits", "folder", "iid", "dirichlet", "cnn", "toys:ToyData", "toys:toy_model",
    "toys:COLOURS", "os:system", "os:getcwd", "math:pi", "json:JSONDecoder", "semifl.errors:UserError",
    "builtins:dict", "builtins:print", "numpy:ndarray", "collections:OrderedDict", "a:b", ":", "a.b.c:d", "..:x",
    "semifl.methods.semifl:SemiFL", "dataclasses:dataclass", "torch.nn:Linear",
]  # fmt: skip
words = st.sampled_from(
    "seed rounds threads labels_only guard max_failures stop minutes patience health nonfinite explode_factor data "
    "name root labeled clients validation partition classes alpha model depth width weights partial method "
    "threshold lr activity_rate aggregation trim client_epochs order hidden per_class".split()
)
keys = words | st.text(max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.integers()
    | st.just(10**400)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=20)
    | st.sampled_from(NAMES)
    | st.dates()
    | st.datetimes()
    | st.times()
)
leaves = scalars | st.lists(scalars, max_size=3)
nests = st.recursive(leaves, lambda inner: st.dictionaries(keys, inner, max_size=4) | st.lists(inner, max_size=2))
sections = st.fixed_dictionaries(
    {},
    optional={
        name: st.dictionaries(keys, nests, max_size=3) | nests
        for name in ("stop", "health", "data", "model", "method", "seed", "rounds", "guard")
    },
)


def survives(config: Any, path: Path) -> None:
    """What is accepted can be written into a run directory and read again."""
    text = toml.dumps(config.table())
    path.write_text(text, encoding="utf-8")
    assert toml.dumps(decode(read(path)).table()) == text


def dotted_places(nest: dict, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [
        place
        for key, value in nest.items()
        for place in (dotted_places(value, (*prefix, key)) if isinstance(value, dict) else [(*prefix, key)])
    ]


@cases(60, 2000)
@given(nest=sections)
def test_any_nest_of_tables(folder: Path, nest: dict) -> None:
    with only_user_errors():
        survives(decode(nest), folder / "config.toml")


@cases(60, 2500)
@given(data=st.data())
def test_a_valid_configuration_with_one_value_changed(folder: Path, data: st.DataObject) -> None:
    nest = copy.deepcopy(decode(table("guarded")).table())
    *path, last = data.draw(st.sampled_from(dotted_places(nest)))
    inner = nest
    for key in path:
        inner = inner[key]
    inner[last if data.draw(st.integers(0, 5)) else data.draw(keys)] = data.draw(nests)
    with only_user_errors():
        survives(decode(nest), folder / "config.toml")


@cases(40, 1500)
@given(content=mutated(PLAIN, RESOLVED))
def test_any_configuration_file(folder: Path, content: bytes) -> None:
    with only_user_errors():
        decode(read(put(folder / "mutated.toml", content)))


@pytest.mark.parametrize(
    "text",
    [
        "seed = " + "9" * 5000,
        "seed = 0x" + "f" * 5000,
        "a = " + "[" * 5000,
        "a." * 5000 + "b = 1",
        "a = " + "{b = " * 3000,
        "seed = 1e400",
        "rounds = nan",
        '"' + "x" * 100_000 + '" = 1',
        'data.root = "a\\u0000b"',
        'data.root = "\\u007f"\ndata.name = "folder"',
        "seed = 1979-05-27",
        "\ufeffseed = 1",
        'model.weights = "\\u0000"',
    ],
)
def test_hostile_toml(folder: Path, text: str) -> None:
    with only_user_errors():
        survives(decode(read(put(folder / "hostile.toml", text.encode()))), folder / "config.toml")


@cases(40, 1000)
@given(settings_=st.lists(st.text(max_size=30) | st.builds("{}={}".format, keys, leaves), max_size=3))
def test_any_setting_on_the_command_line(folder: Path, settings_: list[str]) -> None:
    with only_user_errors():
        survives(decode(override(table("paper"), settings_)), folder / "config.toml")


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000, "{a=" * 3000, "\udcff", "1\nseed = 3", "1979-05-27"])
@pytest.mark.parametrize("key", ["seed", "data.root", "model.hidden", "model.weights"])
def test_hostile_settings(folder: Path, key: str, text: str) -> None:
    with only_user_errors():
        survives(decode(override(table("paper"), [f"{key}={text}"])), folder / "config.toml")


@pytest.mark.parametrize("section", ["data", "model", "method", "partition"])
def test_any_name_of_a_thing(folder: Path, section: str) -> None:
    """A user's own class may be anything that Python can import."""
    failures = []
    for name in NAMES:
        nest = table("paper")
        (nest["data"] if section == "partition" else nest)[section] = {"name": name}
        try:
            with only_user_errors():
                survives(decode(nest), folder / "config.toml")
        except Exception as error:
            failures.append(f"{section}.name = {name}: {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


# Depth, structure, and the extremes of every number


@st.composite
def deep(draw: st.DrawFn) -> str:
    """Sections, dotted keys, inline tables and arrays within each other, a few levels or thousands."""
    depth = draw(st.sampled_from([2, 50, 99, 100, 101, 102, 500, 900, 1000, 5000]))
    where = draw(st.sampled_from(["", "data.", "model.", "method.", "stop.", "method.objective."]))
    key = draw(words)
    return draw(
        st.sampled_from([
            f"{where}{'a.' * depth}{key} = 1",
            f"[{where}{'a.' * depth}{key}]\nb = 1",
            f"[[{where}{'a.' * depth}{key}]]\nb = 1",
            f"{where}{key} = {'{a = ' * depth}1{'}' * depth}",
            f"{where}{key} = {'[' * depth}{']' * depth}",
            f"{where}{key} = {'[{a = ' * (depth // 2)}1{'}]' * (depth // 2)}",
            f"{where}{key} = {{{'a.' * depth}b = 1}}",
            "\n".join(f"[{where}{'a.' * level}{key}]" for level in range(min(depth, 300))),
        ])
    )  # fmt: skip


@cases(40, 800)
@given(text=deep())
def test_any_depth(folder: Path, text: str) -> None:
    with only_user_errors():
        survives(decode(read(put(folder / "deep.toml", text.encode()))), folder / "config.toml")
    key, _, value = text.partition(" = ")
    with only_user_errors():
        survives(decode(override(table("paper"), [f"{key}={value}"])), folder / "config.toml")


def with_everything(model: str, partition: str) -> dict:
    """A small world of our own model and partition, every value written out."""
    nest = table("guarded")
    nest["model"] = {"name": model, **({"width": 2} if model == "cnn" else {"depth": 10, "width": 1})}
    nest["data"] = {**nest["data"], "partition": {"name": partition}}
    return decode(nest).table()


WORLDS = [with_everything("cnn", "dirichlet"), with_everything("wide_resnet", "classes")]
OWN = {("data", "per_class"), ("data", "noise")}  # of the toy data, which are a person's own code
EXTREMES = [
    0, -1, 1, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 10**30, 10**400, 0.0, -0.0, 5e-324,
    1e-300, 1e18, 1e300, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), 0.9999999999, 1.0000000001,
]  # fmt: skip


def built(nest: dict) -> None:
    """As far as a run goes before it trains."""
    world = build_world(decode(nest))
    check_outputs(world.place(None, "cpu"))


@cases(30, 700)
@given(data=st.data())
def test_the_extremes_of_every_number(data: st.DataObject) -> None:
    """One or several at once; in a process of its own, for a number can ask for more memory than there is."""
    nest = copy.deepcopy(data.draw(st.sampled_from(WORLDS)))
    values = dict(toml.dotted(nest))
    numbers = [place for place in dotted_places(nest) if type(values[".".join(place)]) in (int, float)]
    for *path, last in data.draw(st.lists(st.sampled_from(sorted({*numbers} - OWN)), min_size=1, max_size=3)):
        inner = nest
        for key in path:
            inner = inner[key]
        inner[last] = data.draw(st.sampled_from(EXTREMES))
    assert isolated(lambda: built(nest)) == 0, nest


@pytest.mark.parametrize("kind", ["folder", "pipe", "zeros", "endless", "link to itself"])
def test_a_configuration_that_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.toml"
    make_odd(path, kind)
    with bounded(), pytest.raises(UserError, match=r"cannot read .*config\.toml"):
        read(path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "zeros", "endless", "link to itself"])
def test_weights_and_models_that_are_no_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.safetensors"
    make_odd(path, kind)
    with bounded(), pytest.raises(UserError, match=r"model\.safetensors"):
        load_model(path)
    with bounded(), pytest.raises(UserError, match=r"model\.safetensors"):
        load_weights(toy_model(3, 3), path, partial=True)


# Pictures


def picture(kind: str, mode: str, **options: Any) -> bytes:
    pixels = Image.fromarray(rng.integers(0, 256, (9, 13, 3), dtype=np.uint8)).convert("L" if mode == "I;16" else mode)
    pixels = pixels.convert(mode)
    out = io.BytesIO()
    pixels.save(out, kind, **options)
    return out.getvalue()


PICTURES = [
    picture("PNG", "RGB"), picture("PNG", "P"), picture("PNG", "I;16"), picture("PNG", "LA"), picture("JPEG", "RGB"),
    picture("JPEG", "CMYK"), picture("GIF", "P"), picture("BMP", "RGB"), picture("TIFF", "RGB"),
    picture("TIFF", "L", compression="tiff_lzw"), picture("WEBP", "RGB"), picture("JPEG", "L", exif=b"Exif\0\0MM\0*"),
]  # fmt: skip


@cases(60, 2500)
@given(content=mutated(*PICTURES), channels=st.sampled_from([None, 1, 3]))
def test_any_picture(content: bytes, channels: int | None) -> None:
    with only_user_errors():
        decoded = decode_picture(io.BytesIO(content), 8, channels)
        assert decoded.dtype == torch.uint8
        assert decoded.shape in ((1, 8, 8), (3, 8, 8))
        assert channels in (None, len(decoded))


# Data sets


def cifar10_batch(protocol: int) -> bytes:
    pixels = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
    return pickle.dumps({b"data": pixels, b"labels": [0, 9], b"filenames": [b"a", b"b"]}, protocol)


def cifar100_batch(protocol: int) -> bytes:
    pixels = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
    return pickle.dumps({b"data": pixels, b"fine_labels": [0, 1], b"coarse_labels": [0, 1]}, protocol)


META10 = pickle.dumps({b"label_names": [str(n).encode() for n in range(10)]}, 2)
META100 = pickle.dumps({b"fine_label_names": [str(n).encode() for n in range(100)]}, 2)
IDX_IMAGES = struct.pack(">4B3I", 0, 0, 8, 3, 2, 28, 28) + rng.integers(0, 256, 2 * 784, dtype=np.uint8).tobytes()
IDX_LABELS = struct.pack(">4BI", 0, 0, 8, 1, 2) + bytes([1, 9])

IDX_FILES = (IDX_IMAGES, IDX_LABELS, gzip.compress(IDX_LABELS))


def mat(compressed: bool, **variables: Any) -> bytes:
    out = io.BytesIO()
    scipy.io.savemat(out, variables, do_compression=compressed)
    return out.getvalue()


MATS = [
    mat(packed, X=rng.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8), y=np.array([[1], [10]], dtype=np.uint8))
    for packed in (False, True)
]
ODD_MATS = [
    mat(False, X=np.zeros((32, 32, 3, 1), np.uint8), y=np.array([[np.nan]])),
    mat(False, X=np.array(["text"]), y=np.array([["a"]])),
    mat(False, X={"a": 1}, y=np.array([[1]], dtype=object)),
    mat(False, X=np.zeros((32, 32, 3, 1), np.uint8), y=np.array([[1 + 2j]])),
    mat(False, X=np.zeros((32, 32, 3, 2), np.uint8), y=np.array([[1.5], [2.5]])),
]
nasty = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.binary(max_size=20)
    | st.text(max_size=5)
    | st.sampled_from([np.zeros((1, 3072), np.uint8), np.zeros((2, 3072)), np.array([1.5]), np.array([["a"]])]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.binary(max_size=5) | st.integers(), inner),
)


# Lists, archives and DICOM

LIST = b"file,label,site,part\na.png,ill,,labeled\nb.png,well,,labeled\nc.png,,north,clients\nd.png,ill,,test\n"


@given(content=mutated(LIST, LIST.replace(b",", b";"), b"\xef\xbb\xbf" + LIST))
@cases(60, 1500)
def test_any_list_of_labels(folder: Path, content: bytes) -> None:
    root = folder / "listed"
    for name in "abcd":
        if not (root / f"{name}.png").exists():
            put(root / f"{name}.png", picture_bytes())
    put(root / "labels.csv", content)
    with only_user_errors():
        Folder(str(root), size=4, csv="labels.csv").survey()


def picture_bytes() -> bytes:
    stream = io.BytesIO()
    Image.new("L", (4, 4), 9).save(stream, "PNG")
    return stream.getvalue()


def npz_bytes(save_as: Callable[..., None]) -> bytes:
    stream = io.BytesIO()
    images, labels = np.zeros((4, 6, 6), np.uint8), np.array([[0], [1], [0], [1]])
    save_as(stream, train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    return stream.getvalue()


@given(content=mutated(npz_bytes(np.savez), npz_bytes(np.savez_compressed)))
@cases(60, 1500)
def test_any_npz_file(folder: Path, content: bytes) -> None:
    with only_user_errors(), bounded():
        Npz(str(put(folder / "any.npz", content))).load()


def dicom_bytes() -> bytes:
    pydicom = pytest.importorskip("pydicom")
    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = "1.2.3"
    data.Rows = data.Columns = 4
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 12, 11
    data.RescaleSlope, data.RescaleIntercept, data.WindowCenter, data.WindowWidth = "1", "-1024", "40", "400"
    data.PixelData = bytes(32)
    stream = io.BytesIO()
    data.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


@given(data=st.data())
@cases(60, 2000)
def test_any_dicom_file(folder: Path, data: st.DataObject) -> None:
    content = data.draw(mutated(dicom_bytes()))
    with only_user_errors(), bounded():
        decode_picture(put(folder / "any.dcm", content), 4)


@cases(40, 1500)
@given(content=mutated(cifar10_batch(2), cifar10_batch(4), META10, META100))
def test_any_pickle(content: bytes) -> None:
    assert isolated(lambda: formats.unpickle(content, "batch")) == 0


def test_a_pickle_of_nine_bytes_does_not_fill_the_memory() -> None:
    """It puts None at place 2²⁷ of the memo, for which the reader written in C makes room."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert isolated(lambda: formats.unpickle(b"\x80\x02Nr\x00\x00\x00\x08.", "batch")) == 0
    used = max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, before)
    assert used < max(before, 1_500_000), "kilobytes"


@cases(40, 1500)
@given(which=st.integers(0, 6), content=mutated(cifar10_batch(2), cifar10_batch(4), META10))
def test_any_cifar10_file(folder: Path, which: int, content: bytes) -> None:
    names = list(Cifar10.EDITION.md5)
    for name in names:
        put(folder / "cifar10" / name, META10 if name == "batches.meta" else cifar10_batch(2))
    put(folder / "cifar10" / names[which], content)
    with only_user_errors():
        Cifar10(str(folder / "cifar10"), verify=False).load()


@cases(40, 1000)
@given(
    which=st.sampled_from(["train", "test", "meta"]),
    data=nasty,
    labels=nasty,
    names=nasty,
    protocol=st.sampled_from([2, 4]),
)
def test_a_sound_pickle_of_anything(
    folder: Path, which: str, data: Any, labels: Any, names: Any, protocol: int
) -> None:
    files = {"train": cifar100_batch(2), "test": cifar100_batch(2), "meta": META100}
    files[which] = pickle.dumps({b"data": data, b"fine_labels": labels, b"fine_label_names": names}, protocol)
    for name, content in files.items():
        put(folder / "cifar100" / name, content)
    with only_user_errors():
        Cifar100(str(folder / "cifar100"), verify=False).load()


@cases(40, 1200)
@given(
    which=st.integers(0, 3), packed=st.booleans(), content=mutated(IDX_IMAGES, IDX_LABELS, gzip.compress(IDX_LABELS))
)
def test_any_idx_file(folder: Path, which: int, packed: bool, content: bytes) -> None:
    names = [file.name for file in FashionMnist.FILES.files]
    for path in (folder / "fashion").glob("*"):
        path.unlink()
    for name in names:
        put(folder / "fashion" / name, gzip.compress(IDX_IMAGES if "images" in name else IDX_LABELS))
    put(folder / "fashion" / (names[which] if packed else names[which].removesuffix(".gz")), content)
    with only_user_errors():
        FashionMnist(str(folder / "fashion")).load()


@cases(40, 1500)
@given(which=st.sampled_from(["train", "test"]), content=mutated(*MATS, *ODD_MATS))
def test_any_mat_file(folder: Path, which: str, content: bytes) -> None:
    for name in ("train", "test"):
        put(folder / "svhn" / f"{name}_32x32.mat", content if name == which else MATS[0])
    assert isolated(Svhn(str(folder / "svhn"), verify=False).load) == 0


def test_no_type_of_numbers_in_a_mat_file_ends_the_process(folder: Path) -> None:
    """The byte that names the type of the pixels: scipy's reader looks it up without a check."""
    ended = {}
    put(folder / "svhn" / "test_32x32.mat", MATS[0])
    for code in range(0, 256, 1 if FULL else 11):
        content = bytearray(MATS[0])
        assert content[184:186] == b"\x02\x00"  # miUINT8
        content[184] = code
        put(folder / "svhn" / "train_32x32.mat", content)
        ended[code] = isolated(Svhn(str(folder / "svhn"), verify=False).load)
    assert not {code: end for code, end in ended.items() if end}


@pytest.mark.parametrize("content", ODD_MATS, ids=["nan", "text", "struct", "complex", "halves"])
def test_a_sound_mat_file_of_something_else(folder: Path, content: bytes) -> None:
    for name in ("train", "test"):
        put(folder / "svhn" / f"{name}_32x32.mat", content)
    with only_user_errors():
        labels = Svhn(str(folder / "svhn"), verify=False).load().labels
        assert labels.tolist() == []  # none of these is a data set


def test_an_archive_writes_nothing_anywhere(tmp_path: Path) -> None:
    """Members with ../, absolute names, links and devices beside the sound ones: nothing is extracted."""
    root = tmp_path / "in" / "data"
    root.mkdir(parents=True)
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name in ("../escaped", "../../escaped", str(tmp_path / "absolute"), "cifar-10-batches-py/../../up"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("fifo", tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.type, member.linkname = kind, str(tmp_path)
            tar.addfile(member)
        for name in Cifar10.EDITION.md5:
            content = META10 if name == "batches.meta" else cifar10_batch(2)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    before = sorted(tmp_path.rglob("*"))
    assert len(Cifar10(str(root), verify=False).load().labels) == 10
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_place_of_a_batch_is_not_followed(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret", cifar10_batch(2))
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name in Cifar10.EDITION.md5:
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(secret)
            tar.addfile(member)
    with pytest.raises(Exception, match="has no member"):
        Cifar10(str(tmp_path), verify=False).load()


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in Cifar10.EDITION.md5:
            content = META10 if name == "batches.meta" else cifar10_batch(2)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


ARCHIVE = archive()


@cases(30, 500)
@given(content=mutated(ARCHIVE, gzip.compress(ARCHIVE, mtime=0)))
def test_any_archive(folder: Path, content: bytes) -> None:
    put(folder / "archive" / "cifar-10-python.tar.gz", content)
    with only_user_errors():
        Cifar10(str(folder / "archive"), verify=False).load()


# Models, checkpoints, run directories


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "run"
    start(decode({**table("paper", 2), "labels_only": False}), directory)
    return directory


@cases(60, 2000)
@given(data=st.data())
def test_any_model_file(run: Path, folder: Path, data: st.DataObject) -> None:
    path = put(folder / "model.safetensors", data.draw(mutated((run / "model.safetensors").read_bytes())))
    with only_user_errors():
        load_model(path)
    with only_user_errors():
        load_weights(toy_model(3, 3), path, partial=data.draw(st.booleans()))


@cases(60, 1500)
@given(about=nests, tensors=st.booleans(), format_=st.sampled_from([1, 2, "1", None]), facts=nests, model=nests)
def test_a_sound_file_that_describes_anything(
    folder: Path, about: Any, tensors: bool, format_: Any, facts: Any, model: Any
) -> None:
    known = {
        "class_names": ["a", "b", "c"],
        "mean": [0.5],
        "std": [0.5],
        "may_flip": True,
        "channels": 3,
        "size": 8,
    }
    facts = {**known, **facts} if isinstance(facts, dict) else facts
    content = {"format": format_, "facts": facts, "model": model} if tensors else about
    metadata = {"semifl": json.dumps(content, default=str)}
    path = put(folder / "described.safetensors", save({"w": torch.zeros(2)}, metadata))
    with only_user_errors():
        load_model(path)


@cases(60, 2000)
@given(data=st.data())
def test_any_checkpoint(run: Path, folder: Path, data: st.DataObject) -> None:
    for name in ("000001", "000002"):
        content = (run / f"checkpoint/{name}.safetensors").read_bytes()
        put(folder / "checkpoint" / f"{name}.safetensors", data.draw(mutated(content)))
    with only_user_errors():
        Checkpoints(folder / "checkpoint").load([State, LoopState], lambda message: None)


lines = st.lists(
    st.binary(max_size=40) | nests.map(lambda nest: json.dumps(nest, default=str).encode()), max_size=4
).map(b"\n".join)


@cases(60, 1500)
@given(content=lines, result=lines)
def test_any_records(folder: Path, content: bytes, result: bytes) -> None:
    put(folder / "records" / "rounds.jsonl", content)
    put(folder / "records" / "result.json", result)
    directory = RunDirectory(folder / "records")
    with only_user_errors():
        assert all(isinstance(record, dict) for record in directory.rounds())
    with only_user_errors():
        directory.write_rounds(directory.rounds_until(3))
    with only_user_errors():
        assert isinstance(directory.summary(), dict | None)


@cases(6, 150)
@given(data=st.data())
def test_any_run_directory_can_be_resumed_or_says_why_not(run: Path, folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["config.toml", "rounds.jsonl", "checkpoint/000002.safetensors", "events.jsonl"]))
    victim = folder / "victim"
    for path in run.rglob("*.*"):
        if path.is_file() and path.name not in ("result.json", ".lock"):
            put(victim / path.relative_to(run), path.read_bytes())
    (victim / "result.json").unlink(missing_ok=True)
    # Long runs are not the question: a changed number of rounds or epochs is a valid configuration.
    content = data.draw(mutated((run / name).read_bytes() if (run / name).exists() else b"{}\n"))
    put(victim / name, content)
    if name == "config.toml":
        with only_user_errors():
            of_run(RunDirectory(victim))
    else:
        with only_user_errors():
            resume(victim)
