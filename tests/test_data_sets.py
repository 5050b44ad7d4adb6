"""Images, their parts and splits; scikit-learn's digits, real MNIST, and MNIST in pairs and in frames."""

import hashlib

import pytest
import torch

from graphcaps.errors import InputError
from graphcaps.images.data import Images, ImageSplits, load_images, stratified_split, to_float


def digest(images):
    return hashlib.sha256(images.pixels.numpy().tobytes()).hexdigest()[:16]


def images(*labels):
    return Images(torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8), torch.tensor(labels))


def test_to_float_reaches_zero_and_one_exactly_and_stays_between():
    values = to_float(torch.arange(256, dtype=torch.uint8))
    assert values[0] == 0 and values[255] == 1 and (values.diff() > 0).all() and values.dtype == torch.float32


def test_a_split_takes_each_class_in_proportion_and_is_the_same_for_everybody():
    labels = torch.tensor([0] * 70 + [1] * 20 + [2] * 7 + [3] * 3)
    rest, drawn = stratified_split(labels, 25)
    assert labels[drawn].bincount(minlength=4).tolist() == [17, 5, 2, 1]
    assert sorted(rest.tolist() + drawn.tolist()) == list(range(100))
    drawn = stratified_split(torch.arange(60_000) * 7919 % 10, 5000)[1]
    assert hashlib.sha256(drawn.numpy().astype("<i8").tobytes()).hexdigest().startswith("89f29df7f48d0ccd")


def test_fewer_training_images_are_of_each_class_in_proportion_and_leave_the_rest_alone():
    whole = ImageSplits("toy", ("a", "b"), images(*[0] * 40, *[1] * 10), images(0, 1), images(1, 0))
    few = whole.with_train(5)
    assert few.train.labels.tolist() == [0, 0, 0, 0, 1] and few.val is whole.val and few.test is whole.test
    with pytest.raises(InputError, match="train_images: expected 1 to 50, the training images of toy, got 51"):
        whole.with_train(51)


def test_digits_are_1297_250_and_250_and_none_is_in_two_parts():
    digits = load_images("digits", download=False)
    parts = digits.train, digits.val, digits.test
    assert [len(part) for part in parts] == [1297, 250, 250]
    assert len({image.numpy().tobytes() for part in parts for image in part.pixels}) == 1797


@pytest.fixture(scope="module")
def mnist(mnist_root):
    return load_images("mnist", mnist_root, download=False)


def test_mnist_has_its_counts_and_the_split_that_everybody_has(mnist):
    assert (len(mnist.train), len(mnist.val), len(mnist.test)) == (55_000, 5_000, 10_000)
    assert mnist.test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert digest(mnist.val) == "437d2fecac452e0e"


def test_mnist40_has_every_digit_of_mnist_whole_in_fixed_places(mnist, mnist_root):
    framed = load_images("mnist40", mnist_root)
    assert framed.image_shape == (1, 40, 40) and framed.train.shift == 6
    for part in ("val", "test"):
        digits, images = getattr(mnist, part), getattr(framed, part)
        assert torch.equal(digits.labels, images.labels)
        assert torch.equal(digits.pixels.sum((1, 2, 3)), images.pixels.sum((1, 2, 3)))
    assert digest(framed.test) == "bbcecf6f111c56d7"
