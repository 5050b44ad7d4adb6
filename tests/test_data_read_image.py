"""Your own image files: fitted, padded, inverted, and refused with a reason; drawings found on their ground."""

import numpy as np
import pytest
import torch
from PIL import Image

from graphcaps.errors import InputError
from graphcaps.images.data import read_image, to_float

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


@pytest.fixture
def saved(tmp_path):
    def save(array, name="image.png"):
        Image.fromarray(array).save(tmp_path / name)
        return tmp_path / name

    return save


def digit():
    """Bright on black, 28 x 28, not symmetric."""
    pixels = np.zeros((28, 28), np.uint8)
    pixels[4:24, 6:10] = 255
    pixels[20:24, 6:20] = 200
    return pixels


DIGIT = to_float(torch.from_numpy(digit()))[None]


def test_a_wide_image_keeps_its_proportions_and_is_padded_with_its_border_and_red_becomes_grey(saved):
    wide = np.full((28, 112, 3), 30, np.uint8)
    wide[4:24, 36:76] = (255, 0, 0)
    colour, grey = (read_image(saved(wide), shape).pixels for shape in ((3, 28, 28), GREY))
    assert grey.shape == GREY and grey.dtype == torch.float32
    assert torch.equal(colour[:, 14, 14], torch.tensor([1.0, 0.0, 0.0]))
    assert grey[0, 14, 14] == pytest.approx(0.299, abs=0.01)
    rows, columns = (colour[0] > 0.56).nonzero().T
    assert (rows.max() - rows.min(), columns.max() - columns.min()) == (4, 9)
    assert torch.equal(grey[0, 0], to_float(torch.full((28,), 30, dtype=torch.uint8)))


def test_an_image_in_the_data_sets_own_form_comes_back_as_it_was_and_ink_on_paper_inverted(saved):
    transparent = np.dstack([np.zeros((28, 28, 3), np.uint8), digit()])  # black ink on nothing, which counts as white
    for array, dark in ((digit(), False), (255 - digit(), True), (transparent, True)):
        image = read_image(saved(array), GREY)
        assert torch.equal(image.pixels, DIGIT) and image.inverted is dark
    negative = saved((65535 - digit() * 257.0).astype(np.uint16), "negative.tif")
    Image.open(negative).save(negative, tiffinfo={262: 0})  # 0 is white
    assert torch.equal(read_image(negative, GREY).pixels, DIGIT)
    for invert in (True, False):
        pixels, inverted, _ = read_image(saved(digit()), GREY, invert=invert)
        assert inverted is invert and pixels[0, 0, 0] == float(invert)
    pixels, inverted, _ = read_image(saved(np.full((32, 32, 3), 250, np.uint8)), COLOUR)
    assert not inverted and pixels.min() > 0.9  # a colour image isn't inverted by itself


def refuses(path, text):
    with pytest.raises(InputError) as caught:
        read_image(path, GREY)
    assert str(caught.value).startswith(f"{path}: expected") and text in str(caught.value), str(caught.value)


def test_a_file_that_is_no_whole_image_or_too_large_is_refused_with_the_reason(saved, tmp_path, monkeypatch):
    refuses(tmp_path / "none.png", "got nothing there")
    refuses(tmp_path, "got a folder")
    for dtype in (np.float32, np.int32):
        image = digit().astype(dtype) - 1
        refuses(saved(image, "image.tif"), "or numbers outside 0 to 65,535. Save it with 8 or 16 bits")
    for name in ("image.png", "image.jpg"):
        path = saved(np.random.RandomState(0).randint(0, 256, (64, 64)).astype(np.uint8), name)
        for size in (path.stat().st_size // 2, 0):
            path.write_bytes(path.read_bytes()[:size])
            refuses(path, "an image file that Pillow reads, got")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    refuses(saved(digit()), "an image file that Pillow reads, got: Image size (784 pixels) exceeds limit")


def test_a_drawing_is_cut_out_and_fills_its_share_of_the_frame(saved):
    paper = np.full((200, 300), 255, np.uint8)
    paper[30:90, 40:60] = 0  # a stroke of 60 x 20 in a corner
    pixels = read_image(saved(paper), GREY, ink=20 / 28).pixels[0]
    rows, columns = (pixels > 0.5).any(1).nonzero()[:, 0], (pixels > 0.5).any(0).nonzero()[:, 0]
    assert len(rows) == 20 and len(columns) == round(20 / 3)
    assert abs(int(rows[0]) + int(rows[-1]) - 27) <= 1 and abs(int(columns[0]) + int(columns[-1]) - 27) <= 1


def five(paper=1.0, ink=0.0):
    """A five of three strokes, in levels, on a sheet of 240 x 200."""
    sheet = np.full((240, 200), paper, np.float32)
    for box in (np.s_[60:75, 60:140], np.s_[60:120, 60:75], np.s_[105:120, 60:125], np.s_[105:180, 125:140]):
        sheet[box] = ink
    return sheet


def in_bytes(levels):
    return (levels * 255).round().astype(np.uint8)


FRAMED = five()
FRAMED[[10, -11], 10:-10] = FRAMED[10:-10, [10, -11]] = FRAMED[20:24, 30:34] = 0
ON_A_TABLE = np.full((480, 400), 70, np.uint8)
ON_A_TABLE[130:370, 120:320] = in_bytes(five(0.9, 0.1))
IN_A_WINDOW = np.pad(in_bytes(five(0.1, 0.9)), ((30, 40), (80, 80)), constant_values=26)
IN_A_WINDOW[:30], IN_A_WINDOW[10:20, 100:180:4], IN_A_WINDOW[-20:] = 60, 230, 60
ON_A_SHEET = {
    "on a darker table": ON_A_TABLE,
    "in a dark window with a title bar": IN_A_WINDOW,
    "a board": in_bytes(five(175 / 255, 215 / 255)),
    "in a frame with dust": in_bytes(FRAMED),
    "in a soft shadow": in_bytes(five(0.9, 0.1) * (0.7 + 0.3 * np.tanh(5 - np.arange(200) / 20))),
    "white on nothing": np.dstack([np.full((240, 200, 3), 255, np.uint8), in_bytes(five(0, 1))]),
}


@pytest.mark.parametrize("name", ON_A_SHEET)
def test_a_drawing_is_found_on_any_ground(saved, name):
    clean = read_image(saved(in_bytes(five()), "clean.png"), GREY, ink=20 / 28).pixels
    assert clean.max() == 1 and clean.min() == 0
    found = read_image(saved(ON_A_SHEET[name]), GREY, ink=20 / 28).pixels
    assert (found - clean).abs().max() < 0.25 and (found - clean).abs().mean() < 0.01


def test_what_may_be_no_drawing_is_doubted(saved):
    assert not read_image(saved(ON_A_TABLE), GREY, ink=20 / 28).doubt
    two = read_image(saved(np.hstack([ON_A_TABLE, ON_A_TABLE])), GREY, ink=20 / 28)
    assert two.doubt == "there are several sheets with drawings, and only one was read"
    sheet = np.zeros((300, 300), np.uint8)
    sheet[60:140, 60:140] = 255
    assert read_image(saved(sheet), GREY, ink=20 / 28).doubt.startswith("the ink is an area and not strokes")


def test_a_file_of_the_networks_size_has_its_levels_set_and_stays_in_place(saved):
    pixels = read_image(saved((240 - digit() // 255 * 220).astype(np.uint8)), GREY, ink=20 / 28).pixels
    assert torch.equal(pixels[0] > 0, torch.from_numpy(digit() == 255)) and pixels.max() == 1


def test_a_sheet_without_ink_stays_blank(saved):
    grain = np.random.RandomState(0).randint(-3, 4, five().shape)
    sheet = (five(0.5, 0.45) * 255 + grain).clip(0, 255).astype(np.uint8)
    assert read_image(saved(sheet), GREY, ink=1.0).pixels.max() < 0.1
