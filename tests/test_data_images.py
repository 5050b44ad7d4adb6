"""Images, the parts of a data set, and the split that makes them."""

from __future__ import annotations

import hashlib

import pytest
import torch

from graphcaps.data import Images, ImageSplits, stratified_split, to_float
from graphcaps.errors import InputError


def images(*labels):
    return Images(torch.zeros(len(labels), 1, 8, 8, dtype=torch.uint8), torch.tensor(labels))


def test_pixels_labels_and_class_names_that_do_not_fit_are_an_error():
    pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(InputError, match=r"pixels: expected uint8 .* got torch.float32 \(4, 1, 8, 8\)"):
        Images(pixels.float(), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(InputError, match=r"labels: expected int64 \(4,\).* got .*\(3,\)"):
        Images(pixels, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="toy val labels: expected 0 to 1, got 2 to 2"):
        ImageSplits("toy", ("a", "b"), images(0), images(2), images(1))


def test_to_float_reaches_zero_and_one_exactly_and_stays_between():
    values = to_float(torch.arange(256, dtype=torch.uint8))
    assert values[0] == 0 and values[255] == 1 and (values.diff() > 0).all() and values.dtype == torch.float32


def test_a_split_takes_each_class_in_proportion_and_exactly_the_count_and_is_the_same_for_everybody():
    labels = torch.tensor([0] * 70 + [1] * 20 + [2] * 7 + [3] * 3)
    kept, taken = stratified_split(labels, 25)
    assert labels[taken].bincount(minlength=4).tolist() == [17, 5, 2, 1]
    assert sorted(kept.tolist() + taken.tolist()) == list(range(100))
    # The split is the same for everybody.
    labels = torch.arange(60_000) * 7919 % 10
    digest = hashlib.sha256(stratified_split(labels, 5000)[1].numpy().astype("<i8").tobytes()).hexdigest()
    assert digest.startswith("89f29df7f48d0ccd")


def test_fewer_training_images_are_of_each_class_in_proportion_and_leave_the_rest_alone():
    whole = ImageSplits("toy", ("a", "b"), images(*[0] * 40, *[1] * 10), images(0, 1), images(1, 0))
    few = whole.with_train(5)
    assert few.train.labels.tolist() == [0, 0, 0, 0, 1] and few.val is whole.val and few.test is whole.test
    assert whole.with_train(50).train is whole.train
    with pytest.raises(InputError, match="train_images: expected 1 to 50, the training images of toy, got 51"):
        whole.with_train(51)
