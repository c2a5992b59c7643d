"""A CSV file instead of class folders."""

import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from semifl.cli import invoke
from semifl.cli.evaluate import _listed
from semifl.data.dataset import UNKNOWN
from semifl.data.datasets.folder import Folder
from semifl.errors import UserError

GREYS = {
    "labeled/p.png": 10,
    "labeled/q.png": 20,
    "clients/r.png": 30,
    "clients/s.png": 40,
    "test/t.png": 50,
    "test/u.png": 60,
}
LINES = """file,label,site
labeled/p.png,ill,
labeled/q.png,healthy,
clients/r.png,,north
clients/s.png,ill,south
test/t.png,ill,
test/u.png,healthy,
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, grey in GREYS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), grey).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text(LINES)
    return tmp_path


def load(root: Path) -> tuple:
    data = Folder(str(root), size=4, csv="labels.csv").load()
    return data, data.images[:, 0, 0, 0].tolist()


def test_classes_and_sites_come_from_the_file(root: Path) -> None:
    data, greys = load(root)
    assert data.facts.class_names == ("healthy", "ill")
    assert data.sites == ("north", "south")
    assert greys == [20, 10, 30, 40]  # the server's by class, then the clients' by site
    assert data.labels.tolist() == [0, 1, UNKNOWN, 1]  # a client's label is for simulations alone
    assert data.site_of.tolist() == [UNKNOWN, UNKNOWN, 0, 1]
    assert data.test_labels.tolist() == [0, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [60, 50]


@pytest.mark.parametrize("between", [";", "\t"])
def test_other_signs_between_columns_and_a_mark_at_the_beginning(root: Path, between: str) -> None:
    text = "\ufeff" + LINES.replace(",", between).replace("file", " File ")
    (root / "labels.csv").write_text(text, encoding="utf-8")
    assert load(root)[0].sites == ("north", "south")


def test_a_column_can_say_what_a_picture_is_for(root: Path) -> None:
    rows = ["file,label,part"]
    for name, grey in GREYS.items():
        Image.new("L", (4, 4), grey).save(root / Path(name).name)
    rows += ["p.png,a,train", "q.png,b,train", "t.png,a,test", "u.png,b,test"]
    (root / "labels.csv").write_text("\n".join(rows))
    data, greys = load(root)
    assert data.labeled is None  # who is labeled, the configuration decides
    assert greys == [10, 20]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("file,label", "name,label"), "has no column 'file'"),
        (("labeled/p.png,ill", "labeled/x.png,ill"), "names files that are not there"),
        (("labeled/q.png,healthy", "labeled/p.png,healthy"), "line 3: labeled/p.png stands in line 2 too"),
        (("test/t.png,ill,", "test/t.png,,"), "line 6: test/t.png is for test and has no label"),
        (("clients/r.png,,north", "clients/r.png,,"), "line 4: clients/r.png is a client's and has no site"),
        (("labeled/p.png", "labeled\\..\\..\\p.png"), "is not the name of a file below"),
        (("test/t.png", "../t.png"), "nothing says what it is for"),
        (("labeled/p.png", "labeled/../../p.png"), "is not the name of a file below"),
        (("test/u.png,healthy,", ""), "labels.csv: the class healthy of labeled/ needs test pictures"),
    ],
)
def test_mistakes_are_one_sentence(root: Path, change: tuple[str, str], said: str) -> None:
    assert change[0] in LINES
    (root / "labels.csv").write_text(LINES.replace(*change))
    with pytest.raises(UserError) as error:
        load(root)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_lists_made_on_windows(root: Path) -> None:
    Image.new("L", (4, 4), 30).save(root / "clients/a\\b.png")  # a name elsewhere
    listed = LINES.replace("/", "\\").replace("clients\\r.png", "clients/a\\b.png")
    (root / "labels.csv").write_text(listed)
    assert load(root)[1] == [20, 10, 30, 40]
    pairs = [(root / "test/t.png", 1), (root / "test/u.png", 0)]
    assert _listed(root / "labels.csv", ("healthy", "ill")) == pairs


def test_a_mistyped_label_is_told_by_the_list_and_a_picture(root: Path) -> None:
    Image.new("L", (4, 4), 7).save(root / "test/v.png")
    (root / "labels.csv").write_text(LINES + "test/v.png,unknown,\n")
    with pytest.raises(UserError) as error:
        load(root)
    why = "the class unknown of test/ has no labeled picture to learn from (it is the label of test/v.png)."
    assert str(error.value) == f"{root / 'labels.csv'}: {why}"


def test_a_class_of_which_nothing_can_be_read_is_told_of_the_list(root: Path) -> None:
    (root / "test/u.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"labels\.csv names no readable picture of the class healthy for test: add"):
        Folder(str(root), size=4, csv="labels.csv", unreadable="skip").load()


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("in_list", ["NFC", "NFD"])
def test_letters_may_be_spelled_in_the_list_and_on_the_disk_in_two_ways(root: Path, on_disk: str, in_list: str) -> None:
    def there(name: str) -> str:
        return unicodedata.normalize(on_disk, name)

    (root / "labeled/p.png").rename(root / there("labeled/Bär.png"))
    (root / there("clients/Köln")).mkdir()
    (root / "clients/r.png").rename(root / there("clients/Köln/r.png"))
    text = LINES.replace("labeled/p.png", "labeled/Bär.png").replace("clients/r.png,,north", "clients/Köln/r.png,,")
    (root / "labels.csv").write_text(unicodedata.normalize(in_list, text), encoding="utf-8")
    data, greys = load(root)
    assert greys == [20, 10, 30, 40]
    assert data.sites == ("Köln", "south")  # in one character, whoever wrote it
    assert len(data.sites[0]) == 4


def test_evaluate_finds_files_however_they_are_spelled(tmp_path: Path) -> None:
    there = tmp_path / unicodedata.normalize("NFD", "Bär.png")
    there.touch()
    for form in ("NFC", "NFD"):
        (tmp_path / "own.csv").write_text(unicodedata.normalize(form, "file,label\nBär.png,Ä"), encoding="utf-8")
        assert _listed(tmp_path / "own.csv", ("Ä", "b")) == [(there, 0)]


def test_two_spellings_of_one_file_are_one_file(root: Path) -> None:
    (root / "labeled/p.png").rename(root / unicodedata.normalize("NFD", "labeled/Bär.png"))
    both = "".join(unicodedata.normalize(form, "labeled/Bär.png,ill,\n") for form in ("NFC", "NFD"))
    (root / "labels.csv").write_text(LINES.replace("labeled/p.png,ill,\n", both), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 3: .* stands in line 2 too"):
        load(root)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'file,label\n"open'])
def test_no_csv_file_at_all_is_one_sentence(root: Path, content: bytes) -> None:
    (root / "labels.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"labels\.csv"):
        load(root)


def test_check_counts_what_the_file_leaves_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (4, 4), 7).save(root / "labeled/forgotten.png")
    (root / "config.toml").write_text(
        '[data]\nname = "folder"\nroot = "."\ncsv = "labels.csv"\nsize = 8\n[model]\nname = "cnn"\nwidth = 2\n'
    )
    assert invoke(["check", str(root / "config.toml"), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "labeled    2 pictures: healthy 1, ill 1" in out
    assert "not listed 1 picture of which the CSV file does not speak" in out
