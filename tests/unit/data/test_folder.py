"""A user's folder: every kind of picture, every mistake, and the cache."""

import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.configuration.config import decode as config_decode
from semifl.data import cache, pictures
from semifl.data.dataset import UNKNOWN
from semifl.data.datasets.folder import Folder
from semifl.data.pictures import UnreadableError, decode
from semifl.errors import UserError

RED, GREEN, BLUE, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (90, 90, 90)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home for the cache that nobody else uses."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "home"))
    return tmp_path / "home" / "folder"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "pictures"


def save(path, color=RED, size=(8, 8), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path, **options)


def fill_split(root):
    """Two classes, two sites, six training and two test pictures; each has its own colour."""
    save(root / "labeled" / "cat" / "1.png", (10, 0, 0))
    save(root / "labeled" / "cat" / "2.png", (20, 0, 0))
    save(root / "labeled" / "ant" / "1.png", (30, 0, 0))
    save(root / "clients" / "berlin" / "deep" / "er" / "1.png", (40, 0, 0))
    save(root / "clients" / "athens" / "2.png", (50, 0, 0))
    save(root / "clients" / "athens" / "10.png", (60, 0, 0))
    save(root / "test" / "ant" / "1.png", (70, 0, 0))
    save(root / "test" / "cat" / "1.png", (80, 0, 0))


def fill_whole(root):
    save(root / "train" / "b" / "1.png", (20, 0, 0))
    save(root / "train" / "a" / "1.png", (10, 0, 0))
    save(root / "test" / "a" / "1.png", (30, 0, 0))
    save(root / "test" / "b" / "1.png", (40, 0, 0))


# Layouts


def test_a_split_layout_knows_its_labels_and_sites(root):
    fill_split(root)

    data = Folder(str(root), size=4).load()

    # Parts in order, then classes and sites, then files, each sorted by bytes ("10.png" before "2.png").
    assert data.images[:, 0, 0, 0].tolist() == [30, 10, 20, 60, 50, 40]
    assert data.labels.tolist() == [0, 1, 1, UNKNOWN, UNKNOWN, UNKNOWN]
    assert data.labeled is not None
    assert data.labeled.tolist() == [0, 1, 2]
    assert data.sites == ("athens", "berlin")
    assert data.site_of is not None
    assert data.site_of.tolist() == [UNKNOWN, UNKNOWN, UNKNOWN, 0, 0, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [70, 80]
    assert data.test_labels.tolist() == [0, 1]
    assert data.images.shape == (6, 3, 4, 4)
    assert (data.images.dtype, data.labels.dtype, data.site_of.dtype) == (torch.uint8, torch.int64, torch.int64)
    assert data.facts.class_names == ("ant", "cat")
    # Of the server's pictures alone: (30 + 10 + 20) / 3 = 20; the variance is (100 + 100 + 0) / 3
    assert data.facts.mean == pytest.approx((20 / 255, 0, 0))
    assert data.facts.std[0] == pytest.approx((200 / 3) ** 0.5 / 255)
    assert data.skipped == ()


def test_a_whole_layout_leaves_the_split_to_the_experiment(root):
    fill_whole(root)
    data = Folder(str(root), size=4, flip=False).load()
    assert data.images[:, 0, 0, 0].tolist() == [10, 20]
    assert data.labels.tolist() == [0, 1]
    assert (data.labeled, data.sites, data.site_of) == (None, (), None)
    assert not data.facts.may_flip


def test_other_files_and_hidden_folders_are_ignored_and_links_are_read(root, tmp_path):
    fill_whole(root)
    for name in ("thumbs.db", ".DS_Store", "notes.txt"):
        (root / "train" / "a" / name).write_bytes(b"\xff")
        (root / "train" / name).write_bytes(b"\xff")
    save(root / "train" / ".ipynb_checkpoints" / "1.png")
    save(root / "train" / "a" / ".hidden" / "1.png")
    save(tmp_path / "elsewhere.JPG", (99, 99, 99), format="JPEG")
    (root / "train" / "a" / "2.JPG").symlink_to(tmp_path / "elsewhere.JPG")

    data = Folder(str(root)).load()

    assert data.labels.tolist() == [0, 0, 1]
    assert data.images[1].unique().tolist() == [99]
    assert data.facts.class_names == ("a", "b")


def test_names_are_compared_by_letter_and_not_by_byte(root):
    """macOS writes "ü" in two signs, others in one; a folder may come from both."""
    composed, decomposed = "B\u00fccher", "Bu\u0308cher"
    save(root / "train" / composed / "1.png")
    save(root / "test" / decomposed / "1.png")
    assert Folder(str(root), size=4).load().facts.class_names == (composed,)
    save(root / "train" / decomposed / "2.png")
    with pytest.raises(UserError, match="two folders that are both called"):
        Folder(str(root), size=4).load()


# Kinds of pictures


def pixel(path, **options):
    """The one colour of a picture of one colour, decoded."""
    picture = decode(path, 4, **options)
    assert (picture == picture[:, :1, :1]).all()
    return picture[:, 0, 0].tolist()


@pytest.mark.parametrize(
    ("mode", "color", "suffix", "expected"),
    [
        ("RGB", (10, 20, 30), "png", [10, 20, 30]),
        ("RGB", (90, 90, 90), "png", [90]),  # grey is what looks grey, however it is stored
        ("L", 77, "png", [77]),
        ("L", 77, "bmp", [77]),
        ("1", 1, "png", [255]),
        ("1", 0, "tiff", [0]),
        ("LA", (100, 255), "png", [100]),
        ("LA", (100, 0), "png", [255]),  # transparent is white
        ("RGBA", (10, 20, 30, 255), "webp", [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), "png", [255]),
        # half of black over white: 255 × (1 − 128/255) = 127
        ("RGBA", (0, 0, 0, 128), "tiff", [127]),
        ("I;16", 65535, "png", [255]),
        ("I;16", 257 * 18, "png", [18]),
        ("I;16", 257 * 18 + 200, "tiff", [19]),  # rounded, not cut
        ("I;16B", 257 * 200, "tiff", [200]),
        ("I", 257 * 7, "tiff", [7]),
        ("CMYK", (255, 0, 0, 0), "tiff", [0, 255, 255]),
        ("CMYK", (0, 0, 0, 255), "tiff", [0]),
    ],
)
def test_every_mode(tmp_path, mode, color, suffix, expected):
    options = {"lossless": True} if suffix == "webp" else {}
    save(tmp_path / f"a.{suffix}", color, (6, 9), mode, **options)
    assert pixel(tmp_path / f"a.{suffix}", bits=16) == expected


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_lab_is_read_in_grey_and_in_colour(tmp_path, channels):
    """Of neutral colour and L* = 128/255: its luminance by CIE 1976, in sRGB's signal, is 119.3 of 255."""
    save(tmp_path / "a.tiff", (128, 128, 128), mode="LAB")
    luminance = ((100 * 128 / 255 + 16) / 116) ** 3
    expected = 255 * (1.055 * luminance ** (1 / 2.4) - 0.055)
    values = decode(tmp_path / "a.tiff", 4, channels)
    assert values.shape == (channels or 1, 4, 4)
    assert (values - expected).abs().max() <= 1


def test_why_a_picture_cannot_be_made_grey_is_told(root, monkeypatch):
    """The reason is looked for in the same way as the picture was read."""
    fill_split(root)
    as_seen = pictures.as_seen

    def not_grey(picture, grey=False, bits=0):
        if grey:
            raise ValueError("no way to grey")
        return as_seen(picture, grey, bits)

    monkeypatch.setattr(pictures, "as_seen", not_grey)
    with pytest.raises(UserError, match=r"1\.png cannot be read as a picture \(no way to grey\)"):
        Folder(str(root), channels="grey").load()


@pytest.mark.parametrize(("suffix", "mode"), [("jpg", "RGB"), ("jpg", "CMYK"), ("jpg", "L"), ("webp", "RGB")])
def test_lossy_kinds_come_close(tmp_path, suffix, mode):
    Image.new("RGB", (40, 40), (200, 40, 90)).convert(mode).save(tmp_path / f"a.{suffix}", quality=95)
    # The grey of (200, 40, 90) by ITU-R 601: 0.299 × 200 + 0.587 × 40 + 0.114 × 90 = 93.5
    wanted = [93.5] if mode == "L" else [200, 40, 90]
    assert decode(tmp_path / f"a.{suffix}", 8).float().mean((1, 2)).tolist() == pytest.approx(wanted, abs=5)


def test_a_palette_with_transparency(tmp_path):
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 200, 10, 20])
    picture.save(tmp_path / "solid.gif")
    picture.save(tmp_path / "clear.png", transparency=1)
    assert pixel(tmp_path / "solid.gif") == [200, 10, 20]
    assert pixel(tmp_path / "clear.png") == [255]


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tiff"])
def test_of_an_animation_the_first_frame_is_taken(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:], **options)
    assert pixel(tmp_path / f"a.{suffix}") == list(RED)


@pytest.mark.parametrize("suffix", ["png", "tiff", "jpg", "webp"])
@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda a: a),
        (2, np.fliplr),
        (3, lambda a: np.rot90(a, 2)),
        (4, np.flipud),
        (5, lambda a: a.T),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: np.rot90(a, 2).T),
        (8, np.rot90),
        (77, lambda a: a),  # no such value
    ],
)
def test_the_orientation_tag_is_applied(tmp_path, orientation, turn, suffix):
    stored = np.kron(np.array([[0, 80], [160, 240]], np.uint8), np.ones((8, 8), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if suffix == "webp" else {"quality": 100} if suffix == "jpg" else {}
    Image.fromarray(stored).save(tmp_path / f"a.{suffix}", exif=exif, **options)

    picture = decode(tmp_path / f"a.{suffix}", 16, channels=1)

    np.testing.assert_allclose(picture[0].numpy().astype(int), turn(stored), atol=2 if suffix == "jpg" else 0)


@pytest.mark.parametrize(("width", "height"), [(16, 8), (8, 16), (160, 80), (24, 8)])
def test_the_shorter_side_is_resized_and_the_centre_cut_out(tmp_path, width, height):
    noise = np.random.default_rng(0).integers(0, 256, (height, width), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")

    # The two steps one after the other.
    scale = 4 / min(width, height)
    wide, high = round(width * scale), round(height * scale)
    small = np.asarray(Image.fromarray(noise).resize((wide, high), Image.Resampling.LANCZOS))
    expected = small[(high - 4) // 2 :, (wide - 4) // 2 :][:4, :4]

    np.testing.assert_allclose(decode(tmp_path / "a.png", 4)[0].numpy().astype(int), expected, atol=1)


def test_a_picture_of_the_right_size_keeps_its_pixels(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 41, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(decode(tmp_path / "a.png", 32).numpy(), pixels[:, 4:36].transpose(2, 0, 1))


def test_shrinking_averages_instead_of_picking(tmp_path):
    board = (np.indices((256, 256)).sum(0) % 2 * 255).astype(np.uint8)  # black and white pixels in turn
    Image.fromarray(board).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", 8).float().sub(127.5).abs().max() < 8


def test_a_big_jpeg_decoded_in_part_looks_like_the_whole(tmp_path):
    ramp = np.add.outer(np.arange(1024), np.arange(1024)) // 8
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    # The mean of the ramp over the square of 32 × 32 pixels that each small pixel stands for.
    expected = ramp.reshape(32, 32, 32, 32).mean((1, 3))
    np.testing.assert_allclose(decode(tmp_path / "a.jpg", 32)[0].numpy(), expected, atol=2)


def test_channels_can_be_asked_for(tmp_path):
    save(tmp_path / "color.png", (200, 40, 90))
    save(tmp_path / "grey.png", 7, mode="L")
    assert pixel(tmp_path / "color.png", channels=1) == [94]  # 93.5, see above
    assert pixel(tmp_path / "grey.png", channels=3) == [7, 7, 7]


def test_an_open_file_will_do(tmp_path):
    save(tmp_path / "a.png", (1, 2, 3))
    assert pixel(io.BytesIO((tmp_path / "a.png").read_bytes())) == [1, 2, 3]


def test_a_folder_is_grey_only_if_every_picture_is(root):
    fill_whole(root)
    for path in root.rglob("*.png"):
        save(path, GREY)
    grey = Folder(str(root), size=4).load()
    assert (grey.facts.channels, grey.images.shape) == (1, (2, 1, 4, 4))
    assert grey.images.unique().tolist() == [90]

    save(root / "test" / "b" / "1.png", BLUE)
    color = Folder(str(root), size=4).load()
    assert (color.facts.channels, color.images.shape) == (3, (2, 3, 4, 4))
    assert color.images.unique().tolist() == [90]
    assert len(color.facts.mean) == 3
    assert Folder(str(root), size=4, channels="grey").load().facts.channels == 1


def test_where_clients_come_apart_the_server_decides_what_is_grey(root):
    """It never sees their pictures, so in a simulation they must not decide either."""
    fill_split(root)
    for path in root.rglob("*.png"):
        save(path, GREY)
    save(root / "clients" / "berlin" / "1.png", (200, 40, 90))
    data = Folder(str(root), size=4).load()
    assert data.facts.channels == 1
    assert sorted(data.images.unique().tolist()) == [90, 94]  # 0.299 × 200 + 0.587 × 40 + 0.114 × 90 = 93.5…
    save(root / "test" / "cat" / "1.png", BLUE)
    assert Folder(str(root), size=4).load().facts.channels == 3


# Unreadable pictures


def truncated_jpeg():
    out = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(out, "JPEG")
    return out.getvalue()[: len(out.getvalue()) // 2]


def test_a_truncated_picture_stops_with_its_name_and_the_remedy(root):
    fill_split(root)
    (root / "clients" / "athens" / "3.jpg").write_bytes(truncated_jpeg())
    with pytest.raises(UserError, match=r"athens/3\.jpg cannot be read .*truncated.*data\.unreadable = \"skip\""):
        Folder(str(root)).load()


def test_skipped_pictures_are_listed_and_the_rest_stays_aligned(root):
    fill_split(root)
    (root / "clients" / "athens" / "3.jpg").write_bytes(truncated_jpeg())
    (root / "labeled" / "cat" / "0.png").write_bytes(b"")
    (root / "labeled" / "cat" / "3.gif").symlink_to(root / "nowhere.gif")
    (root / "test" / "ant" / "0.webp").write_text("<html>not found</html>")

    for _ in range(2):  # decoded, then from the cache
        data = Folder(str(root), size=4, unreadable="skip").load()

        names = ("labeled/cat/0.png", "labeled/cat/3.gif", "clients/athens/3.jpg", "test/ant/0.webp")
        assert data.skipped == names
        assert data.images[:, 0, 0, 0].tolist() == [30, 10, 20, 60, 50, 40]
        assert data.labels.tolist() == [0, 1, 1, UNKNOWN, UNKNOWN, UNKNOWN]
        assert data.test_images[:, 0, 0, 0].tolist() == [70, 80]
    with pytest.raises(UserError, match=r"labeled/cat/0\.png"):
        Folder(str(root), size=4).load()


def test_skipping_may_not_empty_a_class(root):
    fill_split(root)
    (root / "test" / "ant" / "1.png").write_bytes(b"")
    with pytest.raises(UserError, match="test/ant holds no readable picture"):
        Folder(str(root), unreadable="skip").load()


def test_a_decompression_bomb_is_unreadable(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    save(tmp_path / "bomb.png", size=(8, 8))
    with pytest.raises(UnreadableError, match=r"bomb\.png cannot be read .*decompression bomb"):
        decode(tmp_path / "bomb.png", 4)


def test_the_content_decides_and_not_the_suffix(tmp_path):
    save(tmp_path / "jpeg.png", GREY, format="JPEG")
    save(tmp_path / "icon.png", GREY, size=(16, 16), format="ICO")
    assert pixel(tmp_path / "jpeg.png") == [90]
    with pytest.raises(UnreadableError, match="not that of a PNG, JPEG"):
        decode(tmp_path / "icon.png", 4)


def test_floating_point_pixels_are_refused(tmp_path):
    save(tmp_path / "a.tiff", 0.5, mode="F")
    with pytest.raises(UnreadableError, match="floating-point"):
        decode(tmp_path / "a.tiff", 4)


def test_a_file_without_permission_is_unreadable(root, monkeypatch):
    fill_whole(root)
    really_open = os.open

    def deny(path, *arguments, **options):
        if str(path).endswith("b/1.png"):
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", deny)  # root, who often runs tests, may read everything
    with pytest.raises(UserError, match=r"train/b/1\.png cannot be read as a picture \(Permission denied\)"):
        Folder(str(root)).load()


# Mistakes of layout


def test_a_root_is_needed(root):
    with pytest.raises(UserError, match=r"data\.root is empty"):
        Folder().load()
    with pytest.raises(UserError, match=f"{root} is not a folder"):
        Folder(str(root)).load()
    with pytest.raises(UserError, match=r"data\.size must lie between 2 and 1024, not 0"):
        config_decode({"data": {"name": "folder", "root": str(root), "size": 0}})


def remove(path):
    if path.is_dir():
        for inside in path.iterdir():
            remove(inside)
        path.rmdir()
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ("labeled", r"pictures has neither labeled/ nor train/: .*labeled/<class>/, clients/<site>/ and test/<class>/"),
        ("clients", "pictures/clients is missing"),
        ("test", "pictures/test is missing"),
        ("test/cat", "pictures/test/cat is missing: the class cat of labeled/ needs test pictures"),
        ("labeled/cat", "pictures/labeled/cat is missing: the class cat of test/ has no labeled picture"),
        ("test/cat/1.png", "pictures/test/cat holds no readable picture"),
        ("labeled/ant/1.png", "pictures/labeled/ant holds no readable picture: .* of this class"),
        ("clients/berlin/deep", "pictures/clients/berlin holds no readable picture: .* of this site"),
    ],
)
def test_what_is_missing_is_named(root, lost, sentence):
    fill_split(root)
    remove(root / lost)
    with pytest.raises(UserError, match=sentence):
        Folder(str(root)).load()


def test_parts_without_any_folder_are_named(root):
    fill_split(root)
    for site in ("athens", "berlin"):
        remove(root / "clients" / site)
    with pytest.raises(UserError, match="pictures/clients holds no pictures"):
        Folder(str(root)).load()


def test_a_picture_beside_the_folders_is_not_lost_silently(root):
    fill_split(root)
    save(root / "labeled" / "stray.png")
    with pytest.raises(UserError, match=r"labeled/stray\.png lies outside .* folder of its class"):
        Folder(str(root)).load()


def test_a_folder_without_permission_is_named(root, monkeypatch):
    fill_whole(root)
    really_scan = os.scandir

    def deny(path):
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return really_scan(path)

    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(UserError, match=r"train/b cannot be read \(Permission denied\)"):
        Folder(str(root)).load()


# The cache


@pytest.fixture
def count(monkeypatch):
    """How many pictures have been decoded so far."""
    decoded = []

    def watched(path, *arguments):
        decoded.append(path)
        return decode(path, *arguments)

    monkeypatch.setattr(pictures, "decode", watched)
    return lambda: len(decoded)


def same(a, b):
    return torch.equal(a.images, b.images) and torch.equal(a.test_images, b.test_images) and a.facts == b.facts


def test_pictures_are_decoded_once(root, home, count):
    fill_split(root)
    first = Folder(str(root)).load()
    assert count() == 8

    second = Folder(str(root)).load()

    assert count() == 8
    assert same(first, second)
    assert [path.suffix for path in home.iterdir()] == [".safetensors"]


@pytest.mark.parametrize("change", [{"size": 16}, {"channels": "grey"}])
def test_every_setting_has_its_own_cache(root, count, change):
    fill_whole(root)
    Folder(str(root)).load()
    Folder(str(root), **change).load()
    assert count() == 8
    Folder(str(root)).load()
    Folder(str(root), **change).load()
    assert count() == 8


def test_a_changed_file_is_seen_and_the_old_state_is_not_kept(root, home, count):
    fill_whole(root)
    Folder(str(root), size=4).load()
    path = root / "train" / "a" / "1.png"
    before = path.stat()
    save(path, (99, 0, 0))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))

    data = Folder(str(root), size=4).load()

    assert data.images[:, 0, 0, 0].tolist() == [99, 20]
    path.rename(path.with_name("2.png"))
    Folder(str(root), size=4).load()
    save(root / "test" / "a" / "9.png")
    assert len(Folder(str(root), size=4).load().test_images) == 3
    assert count() == 4 + 4 + 4 + 5
    assert len(list(home.iterdir())) == 1


def test_a_damaged_cache_is_rebuilt(root, home, count):
    fill_whole(root)
    first = Folder(str(root)).load()
    [kept] = home.iterdir()
    whole = kept.read_bytes()
    flipped = whole[:-10] + bytes([whole[-10] ^ 1]) + whole[-9:]
    for times, damage in enumerate([b"", whole[:-1], whole[:20], b"\xff" * 50, flipped], start=2):
        kept.write_bytes(damage)
        assert same(Folder(str(root)).load(), first)
        assert count() == 4 * times


def test_an_unwritable_cache_costs_only_time(root, home, count):
    fill_whole(root)
    home.parent.mkdir()
    home.touch()  # a file where the folder should be: not even root can write there
    with pytest.warns(UserWarning, match="cannot be written"):
        Folder(str(root)).load()
    with pytest.warns(UserWarning, match="cannot be written"):
        assert len(Folder(str(root)).load().images) == 2
    assert count() == 8


def test_a_full_disk_leaves_nothing_behind(root, home, monkeypatch):
    fill_whole(root)

    def full(_, path, __):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "save_file", full)
    with pytest.warns(UserWarning, match="No space left"):
        Folder(str(root)).load()
    assert list(home.iterdir()) == []


def test_many_pictures_keep_their_order_and_report_progress(root):
    for n in range(150):
        save(root / "train" / "a" / f"{n:03}.png", (n, 0, 0), (2, 2))
    save(root / "test" / "a" / "1.png", (200, 0, 0), (2, 2))
    seen = []

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = Folder(str(root), size=2).load(progress=lambda *step: seen.append(step))

    assert data.images[:, 0, 0, 0].tolist() == list(range(150))
    assert seen == [(64, 151), (128, 151), (151, 151)]


# Files that cannot be read for a moment


def test_a_picture_that_a_share_did_not_give_for_a_moment_is_there_at_the_next_load(root, count, monkeypatch):
    fill_whole(root)
    really_open = os.open

    def away(path, *arguments, **options):
        if str(path).endswith(os.path.join("train", "b", "2.png")):  # noqa: PTH118
            raise OSError(5, "Input/output error")
        return really_open(path, *arguments, **options)

    save(root / "train" / "b" / "2.png", (25, 0, 0))
    with monkeypatch.context() as moment:
        moment.setattr(os, "open", away)
        assert Folder(str(root), size=4, unreadable="skip").load().skipped == ("train/b/2.png",)
    for _ in range(2):
        data = Folder(str(root), size=4, unreadable="skip").load()
        assert data.skipped == ()
        assert data.images[:, 0, 0, 0].tolist() == [10, 20, 25]
    assert count() == 5 + 5  # all at first, and all once more when the file was back


def test_a_broken_file_does_not_make_everything_be_decoded_again(root, count):
    fill_whole(root)
    (root / "train" / "b" / "2.png").write_bytes(b"no picture")
    for _ in range(3):
        data = Folder(str(root), size=4, unreadable="skip").load()
        assert data.skipped == ("train/b/2.png",)
        assert data.images[:, 0, 0, 0].tolist() == [10, 20]
    assert count() == 5
