"""What a program may hand over as pictures and labels, and what is refused in a sentence."""

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.data.arrays import as_labels, as_pictures, channels_of, to_square
from semifl.data.pictures import decode
from semifl.errors import UserError


def one(given) -> torch.Tensor:
    (pictures,) = as_pictures(given, "x")
    return pictures


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 3, 8, 9), (5, 3, 8, 9)),
        ((5, 8, 9, 3), (5, 3, 8, 9)),
        ((5, 8, 9, 1), (5, 1, 8, 9)),
        ((5, 8, 9), (5, 1, 8, 9)),
        ((5, 3, 3, 3), (5, 3, 3, 3)),  # channels first where both could be meant
    ],
)
@pytest.mark.parametrize("make", [torch.from_numpy, np.asarray])
def test_shapes(shape, expected, make) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    pictures = one(make(pixels))
    assert pictures.shape == expected
    assert pictures.dtype == torch.uint8
    assert pictures.sum() == pixels.sum()


def test_channels_last_keeps_pixels_in_their_place() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3), dtype=np.uint8)
    assert one(pixels)[1, 2, 3, 4] == pixels[1, 3, 4, 2]


def test_floats_between_0_and_1_are_rounded_to_256_steps() -> None:
    # 0.5 × 255 = 127.5, which rounds to the even 128; 0.1 × 255 = 25.5 → 26
    given = torch.tensor([0.0, 0.1, 0.5, 1.0]).view(1, 1, 2, 2)
    assert one(given).flatten().tolist() == [0, 26, 128, 255]
    assert one(given.double().numpy()).flatten().tolist() == [0, 26, 128, 255]


def test_whole_numbers_and_truth_values() -> None:
    assert one(torch.tensor([[[0, 255]]])).flatten().tolist() == [0, 255]
    assert one(np.array([[[True, False]]])).flatten().tolist() == [255, 0]
    assert one(np.array([[[1, 2]]], dtype=">u2")).flatten().tolist() == [1, 2]  # the other byte order


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.full((2, 3, 4, 4), -0.5), r"x holds floats from -0\.5 to -0\.5: .* before any normalisation"),
        (torch.full((2, 3, 4, 4), float("nan")), "x holds floats from nan to nan"),
        (torch.full((2, 3, 4, 4), 300), "x holds whole numbers from 300 to 300"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), r"x has the shape \[2, 4, 8, 8\].*drop the fourth channel"),
        (torch.zeros(8, 8, dtype=torch.uint8), r"x has the shape \[8, 8\]"),
        (torch.zeros(0, 3, 8, 8, dtype=torch.uint8), "x holds no pictures"),
        (np.array(["a"]), "^x must be a tensor or an array of numbers, not ndarray of <U1$"),
        (np.array(["a", None]), "^x must be a tensor or an array of numbers, not ndarray of object$"),
        (None, "^x must be a tensor or an array of numbers, not NoneType$"),
        (
            [[[1], [2]], [[3], [4, 5]]],
            r"^x\[1\] must be a tensor or an array of numbers, but its parts differ in length$",
        ),
        ([torch.zeros(8, 8, 2)], r"x\[0\] has the shape"),
        ([], "^x holds no pictures$"),
        ([Image.fromarray(np.full((4, 4), 4095, np.uint16))], r"x\[0\] holds whole numbers from 4095 to 4095"),
        ([Image.new("La", (4, 4))], r"^x\[0\] cannot be read as a picture \(conversion from La"),
    ],
)
def test_what_cannot_be_a_picture_is_told(given, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        as_pictures(given, "x")


def test_single_pictures_of_different_sizes_become_squares() -> None:
    given = [np.full((6, 9), 7, np.uint8), Image.new("RGB", (20, 11), (1, 2, 3)), torch.full((3, 5, 5), 9).byte()]
    pictures = as_pictures(given, "x")
    assert channels_of([pictures]) == 3
    squares = to_square(pictures, 4, 3)
    assert squares.shape == (3, 3, 4, 4)
    assert squares[:, :, 0, 0].tolist() == [[7, 7, 7], [1, 2, 3], [9, 9, 9]]


def palette() -> Image.Image:
    picture = Image.new("P", (3, 3))
    picture.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    picture.putdata([0, 1, 2] * 3)
    return picture


def turned() -> Image.Image:
    """White at the left, stored by a camera that lay on its side: seen upright, white is at the top."""
    pixels = np.zeros((4, 4), np.uint8)
    pixels[:, :2] = 255
    picture = Image.fromarray(pixels)
    picture.getexif()[0x0112] = 6  # to be turned by 90 degrees clockwise
    return picture


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (palette(), [[255, 0, 0], [0, 255, 0], [0, 0, 255]]),
        (Image.new("RGBA", (3, 3), (9, 9, 9, 0)), [[255], [255], [255]]),  # nothing to be seen but the ground
        (Image.new("LA", (3, 3), (9, 255)), [[9], [9], [9]]),
        (Image.new("1", (3, 3), 1), [[255], [255], [255]]),
        (Image.new("RGB", (3, 3), (7, 7, 7)), [[7, 7, 7]] * 3),  # three channels, because somebody made three
        (Image.new("CMYK", (3, 3), (0, 255, 255, 0)), [[255, 0, 0]] * 3),  # no cyan is all red
        (Image.new("HSV", (3, 3), (0, 255, 200)), [[200, 0, 0]] * 3),  # a hue of 0 is red
        (Image.new("YCbCr", (3, 3), (80, 128, 128)), [[80], [80], [80]]),  # no colour beside its brightness
        (Image.fromarray(np.full((3, 3), 200, np.uint16)), [[200], [200], [200]]),  # of eight bits after all
    ],
)
def test_a_pillow_image_is_what_a_person_sees(picture, expected) -> None:
    (pixels,) = as_pictures([picture], "x")
    assert pixels[0, :, 0].T.tolist() == expected
    assert torch.equal(one(picture), pixels)  # alone, and not as a list


def test_a_pillow_image_is_turned_as_its_file_would_be(tmp_path) -> None:
    assert one([turned()])[0, 0].tolist() == [[255] * 4] * 2 + [[0] * 4] * 2
    turned().save(tmp_path / "a.png", exif=turned().getexif())
    with Image.open(tmp_path / "a.png") as picture:
        assert torch.equal(to_square(as_pictures([picture], "x"), 4, 1)[0], decode(tmp_path / "a.png", 4))


def test_a_damaged_file_that_pillow_has_not_read_yet_is_one_sentence(tmp_path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:200])
    with Image.open(tmp_path / "a.png") as picture, pytest.raises(UserError, match=r"x\[0\] cannot be read"):
        as_pictures([picture], "x")


def test_an_array_is_cut_as_the_file_would_be(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 41, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert torch.equal(to_square(as_pictures(pixels[None], "x"), 12, 3)[0], decode(tmp_path / "a.png", 12, 3))


def test_colour_becomes_grey_by_the_usual_weights() -> None:
    # ITU-R 601: 0.299 × 200 + 0.587 × 40 + 0.114 × 90 = 93.54
    colour = torch.tensor([200, 40, 90], dtype=torch.uint8).view(1, 3, 1, 1)
    assert to_square([colour], 1, 1).flatten().tolist() == [94]


@pytest.mark.parametrize("given", [[0, 2, 1], np.array([0, 2, 1], np.int8), torch.tensor([0, 2, 1])])
def test_labels(given) -> None:
    labels = as_labels(given, 3, "y")
    assert (labels.dtype, labels.tolist()) == (torch.int64, [0, 2, 1])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([0, 1], r"y must be one label for each of the 3 pictures, not \[2\]"),
        ([0.0, 1.0, 2.0], "y must be whole numbers from 0 on, one per class, not torch.float64"),
        ([0, -1, 2], "but one is -1"),
    ],
)
def test_what_cannot_be_labels_is_told(given, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        as_labels(given, 3, "y")
