"""mnist40: MNIST anywhere in a black frame, anew each epoch in training, in fixed places in evaluation."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from graphcaps import CapsNet
from graphcaps.data import AUGMENTS, DATASETS, Batches, Images, load_images, to_float
from graphcaps.data.frame import anywhere, in_fixed_places
from graphcaps.errors import InputError

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"
BORDER = 3


def full(count):
    """Images of 4 x 5 without a black pixel; the label of each is its number."""
    pixels = torch.randint(1, 256, (count, 1, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return Images(pixels, torch.arange(count))


def place(image):
    """How many black rows are above what an image (1, 1, 10, 11) shows, and columns to its left; and what it shows."""
    rows, columns = (image[0].amax(axis).nonzero()[:, 0] for axis in (1, 0))
    shown = image[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return (rows[0].item(), columns[0].item()), shown


def places(images, pixels):
    found = []
    for image, original in zip(images, pixels, strict=True):
        where, shown = place(image)
        assert torch.equal(shown, original)
        found.append(where)
    return found


EVERYWHERE = {(down, right) for down in range(2 * BORDER + 1) for right in range(2 * BORDER + 1)}


def test_training_images_are_shifted_whole_to_every_place_of_the_frame():
    source = full(800)
    images = anywhere(source, BORDER)
    assert images.image_shape == (1, 10, 11)
    shown, labels = next(Batches(images, 800, augment="shift").epoch(0))
    assert set(places(shown, to_float(source.pixels[labels]))) == EVERYWHERE


def test_training_images_get_another_place_each_epoch():
    source = full(50)
    batches = Batches(anywhere(source, BORDER), 50, augment="shift")
    found = []
    for epoch in (0, 1):
        shown, labels = next(batches.epoch(epoch))
        order = labels.argsort()
        found.append(places(shown[order], to_float(source.pixels)))
    assert sum(a == b for a, b in zip(*found, strict=True)) < 10


@pytest.mark.parametrize("augment", AUGMENTS)
def test_training_images_in_order_are_in_the_middle(augment):
    source = full(9)
    shown, _ = next(Batches(anywhere(source, BORDER), 9, augment=augment).in_order())
    assert places(shown, to_float(source.pixels)) == [(BORDER, BORDER)] * 9


def test_training_images_that_are_not_augmented_are_in_the_middle():
    source = full(9)
    shown, labels = next(Batches(anywhere(source, BORDER), 9).epoch(0))
    assert places(shown, to_float(source.pixels[labels])) == [(BORDER, BORDER)] * 9


def test_affine_maps_shift_by_as_much_as_the_frame_allows():
    dot = torch.zeros(400, 1, 5, 5, dtype=torch.uint8)
    dot[:, :, 2, 2] = 255
    shown, _ = next(Batches(anywhere(Images(dot, torch.arange(400)), 6), 400, augment="affine").epoch(0))
    rows = torch.arange(17.0)[:, None]
    middle = (shown[:, 0] * rows).sum((1, 2)) / shown[:, 0].sum((1, 2))
    assert -6.1 < (middle - 8).min() < -5.5 and 5.5 < (middle - 8).max() < 6.1


def test_evaluation_images_are_whole_in_places_of_their_own():
    source = full(800)
    images = in_fixed_places(source, BORDER)
    assert images.image_shape == tuple(images.pixels.shape[1:]) == (1, 10, 11)
    assert torch.equal(images.labels, source.labels)
    found = places(images.pixels, source.pixels)
    assert set(found) == EVERYWHERE and len(set(found[:20])) > 10


def test_evaluation_images_have_places_that_everybody_has():
    found = places(in_fixed_places(full(6), BORDER).pixels, full(6).pixels)
    assert found == [(3, 1), (2, 3), (4, 2), (3, 0), (0, 4), (1, 3)]
    assert found[:4] == places(in_fixed_places(full(4), BORDER).pixels, full(4).pixels)


def test_a_margin_is_no_part_of_the_image_and_stays_with_it():
    images = anywhere(full(5), BORDER)
    part = images.take(torch.tensor([3, 1])).to("cpu")
    assert part.margin == BORDER and part.labels.tolist() == [3, 1]
    cut = part.cut()
    assert cut.margin == 0 and cut.image_shape == part.image_shape == (1, 10, 11)
    assert places(cut.pixels, full(5).pixels[[3, 1]]) == [(BORDER, BORDER)] * 2


@pytest.mark.parametrize("margin", [-1, 2])
def test_a_margin_that_leaves_no_image_is_an_error(margin):
    with pytest.raises(InputError, match=f"margin: expected 0 to 1, on both sides, got {margin}"):
        Images(torch.zeros(1, 1, 4, 9, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), margin)


def test_mnist40_is_mnist_in_frames_of_40(monkeypatch):
    spec = DATASETS["mnist40"]
    assert spec.files == DATASETS["mnist"].files and spec.ink == 0.5
    parts = Images(torch.full((60, 1, 28, 28), 9, dtype=torch.uint8), torch.arange(60) % 10), full(10)
    test = Images(torch.full((20, 1, 28, 28), 9, dtype=torch.uint8), torch.arange(20) % 10)
    small = {"read": lambda spec, root: (parts[0], test), "train": 60, "test": 20, "val": 10, "files": {}}
    monkeypatch.setitem(DATASETS, "mnist40", type(spec)(**{**vars(spec), **small}))
    splits = load_images("mnist40")
    assert splits.image_shape == (1, 40, 40) and [len(p) for p in (splits.train, splits.val, splits.test)] == [
        50,
        10,
        20,
    ]
    assert splits.train.margin == 6 and splits.val.margin == splits.test.margin == 0
    for part in (splits.val, splits.test):
        assert part.pixels.count_nonzero() == len(part) * 28 * 28
    batch, _ = next(Batches(splits.train, 50, augment="shift").epoch(0))
    assert batch.count_nonzero() == 50 * 28 * 28 and batch.shape[1:] == (1, 40, 40)


@pytest.mark.parametrize("preset", ["compact", "paper", "deep"])
def test_networks_take_images_of_40(preset):
    model = CapsNet.from_preset(preset, (1, 40, 40), iterations=1, engine="torch").eval()
    with torch.no_grad():
        assert model(torch.rand(1, 1, 40, 40)).reconstruction.shape == (1, 1, 40, 40)


@pytest.mark.skipif(not MNIST.is_dir(), reason="real MNIST isn't at ../shared/data/mnist")
def test_real_mnist40_has_every_digit_of_mnist_whole():
    mnist, framed = load_images("mnist", MNIST), load_images("mnist40", MNIST)
    for part in ("val", "test"):
        digits, images = getattr(mnist, part), getattr(framed, part)
        assert torch.equal(digits.labels, images.labels)
        assert torch.equal(digits.pixels.sum((1, 2, 3)), images.pixels.sum((1, 2, 3)))
    assert hashlib.sha256(framed.test.pixels.numpy().tobytes()).hexdigest().startswith("bbcecf6f111c56d7")
