"""Images, the parts of a data set, and the split that makes them."""

from __future__ import annotations

import hashlib

import pytest
import torch

from graphcaps.data import Images, ImageSplits, stratified_split, to_float
from graphcaps.errors import InputError


def images(count=4, shape=(1, 8, 8), label=0):
    return Images(torch.zeros(count, *shape, dtype=torch.uint8), torch.full((count,), label))


@pytest.mark.parametrize(
    ("pixels", "labels", "text"),
    [
        (
            torch.zeros(4, 1, 8, 8),
            torch.zeros(4, dtype=torch.int64),
            r"pixels: expected uint8 .* got torch.float32 \(4, 1, 8, 8\)",
        ),
        (
            torch.zeros(4, 1, 8, 8, dtype=torch.uint8),
            torch.zeros(3, dtype=torch.int64),
            r"labels: expected int64 \(4,\).* got .*\(3,\)",
        ),
    ],
)
def test_pixels_and_labels_that_do_not_fit_are_an_error(pixels, labels, text):
    with pytest.raises(InputError, match=text):
        Images(pixels, labels)


def test_a_label_without_a_name_is_an_error():
    with pytest.raises(InputError, match="toy val labels: expected 0 to 1, got 2 to 2"):
        ImageSplits("toy", ("a", "b"), images(), images(label=2), images())


def test_to_float_reaches_zero_and_one_exactly_and_stays_between():
    values = to_float(torch.arange(256, dtype=torch.uint8))
    assert values[0] == 0 and values[255] == 1 and (values.diff() > 0).all() and values.dtype == torch.float32


def test_a_split_takes_each_class_in_proportion_and_exactly_the_count():
    labels = torch.tensor([0] * 70 + [1] * 20 + [2] * 7 + [3] * 3)
    kept, taken = stratified_split(labels, 25)
    assert labels[taken].bincount(minlength=4).tolist() == [17, 5, 2, 1]
    assert sorted(kept.tolist() + taken.tolist()) == list(range(100))


def test_a_split_is_the_same_for_everybody():
    labels = torch.arange(60_000) * 7919 % 10
    digest = hashlib.sha256(stratified_split(labels, 5000)[1].numpy().astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("89f29df7f48d0ccd")


@pytest.mark.parametrize("count", [0, 10])
def test_a_split_that_leaves_nothing_is_an_error(count):
    with pytest.raises(InputError, match="count: expected 1 to 9"):
        stratified_split(torch.arange(10), count)


def test_fewer_training_images_are_of_each_class_in_proportion_and_leave_the_rest_alone():
    whole = ImageSplits("toy", ("a", "b"), mixed(40, 10), mixed(3, 3), mixed(2, 2))
    few = whole.with_train(5)
    assert few.train.labels.tolist() == [0, 0, 0, 0, 1] and few.val is whole.val and few.test is whole.test
    assert whole.with_train(50).train is whole.train
    with pytest.raises(InputError, match="train_images: expected 1 to 50, the training images of toy, got 51"):
        whole.with_train(51)


def mixed(zeros, ones):
    labels = torch.tensor([0] * zeros + [1] * ones)
    return Images(torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8), labels)
