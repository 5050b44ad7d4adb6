"""Transformed test images: each transform against its definition, and every number of a network on them by loops."""

from __future__ import annotations

import itertools
import json

import matplotlib
import numpy as np
import pytest
import small
import torch
from torch import nn

from graphcaps import InputError
from graphcaps.analysis.accuracy import wilson_interval
from graphcaps.analysis.robustness import Robustness, Row, evaluate_transform
from graphcaps.data import Batches, Images, to_float
from graphcaps.data.transforms import TRANSFORMS, rotated, scrambled, shifted
from graphcaps.models import CapsNetOutput
from graphcaps.viz import robustness

CLASSES = ("ant", "bee", "cat")


@pytest.fixture
def pictures():
    return torch.rand(6, 2, 12, 10, generator=torch.Generator().manual_seed(0))


PLACES = torch.arange(6)


# Transforms


def test_a_turn_by_90_degrees_is_counter_clockwise(pictures):
    square = pictures[..., :10, :]
    torch.testing.assert_close(rotated(square, 90), square.rot90(1, (2, 3)), atol=1e-5, rtol=0)


def test_a_shift_moves_whole_pixels_right_and_down_and_leaves_zeros(pictures):
    wanted = torch.zeros_like(pictures)
    wanted[..., 3:, 2:] = pictures[..., :-3, :-2]
    torch.testing.assert_close(shifted(pictures, 2, 3), wanted, atol=1e-5, rtol=0)
    each = shifted(pictures, torch.tensor([2.0, 0, 0, 0, 0, 0]), torch.tensor([3.0, 0, 0, 0, 0, 0]))
    torch.testing.assert_close(each, torch.cat([wanted[:1], pictures[1:]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", [2, 4])
def test_scrambling_moves_every_patch_of_an_image_and_loses_none(side):
    places = torch.arange(40)
    height, width = 12, 14  # 14 is no multiple of 3 and 4
    picture = torch.arange(2 * height * width).view(1, 2, height, width).float().expand(40, -1, -1, -1)
    moved = scrambled(picture, side, places)
    high, wide = height // side, width // side
    left = (width - wide * side) // 2
    inner = slice(left, left + wide * side)
    rest = torch.ones(width, dtype=torch.bool)
    rest[inner] = False
    assert torch.equal(moved[..., rest], picture[..., rest])

    def patches(image: torch.Tensor) -> list[bytes]:
        cut = image[:, :, inner]
        return [
            cut[:, high * r : high * (r + 1), wide * c : wide * (c + 1)].numpy().tobytes()
            for r, c in itertools.product(range(side), repeat=2)
        ]

    for before, after in zip(picture, moved, strict=True):
        old, new = patches(before), patches(after)
        assert sorted(old) == sorted(new) and all(one != other for one, other in zip(old, new, strict=True))
    assert len(np.unique(moved.numpy(), axis=0)) > 5  # images have permutations of their own


@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_image_is_transformed_by_its_place_alone(pictures, name):
    transform, before = TRANSFORMS[name], pictures.clone()
    assert transform.clean in transform.severities
    for severity in set(transform.severities) - {transform.clean}:
        whole = transform.apply(pictures, severity, PLACES)
        assert whole.shape == pictures.shape and whole.min() >= 0 and whole.max() <= 1
        assert not torch.equal(whole, pictures) and torch.equal(pictures, before)
        parts = [transform.apply(pictures[k : k + 4], severity, PLACES[k : k + 4]) for k in (0, 4)]
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)


# A network on them


@pytest.fixture(scope="module")
def images():
    few = small.digits().test
    return Images(few.pixels[:23], few.labels[:23])


class Projected(nn.Module):
    """Ten fixed random projections of an image as lengths: its answers differ without training. Trains with dropout."""

    objects = 1

    def __init__(self):
        super().__init__()
        self.drop, weight = nn.Dropout(0.5), torch.randn(144, 10, generator=torch.Generator().manual_seed(0))
        self.register_buffer("weight", (weight - weight.mean(dim=0)) / 10)

    def forward(self, images: torch.Tensor) -> CapsNetOutput:
        return CapsNetOutput((self.drop(images).flatten(1) @ self.weight).sigmoid(), None, None)


@pytest.fixture
def model():
    return Projected()


@pytest.mark.parametrize(("name", "batch_size"), [("rotated", 5), ("scrambled", 23)])
def test_every_number_is_that_of_one_image_after_the_other(model, images, name, batch_size):
    shares = []
    found = evaluate_transform(model.train(), Batches(images, batch_size), name, shares.append)
    assert model.training and shares[-1] == 1 and len(shares) == -(-23 // batch_size)
    transform = TRANSFORMS[name]
    assert [row.name for row in found.rows] == [f"{severity:g}" for severity in transform.severities]
    assert found.rows[found.clean].name == f"{transform.clean:g}"
    model.eval()
    for row, severity in zip(found.rows, transform.severities, strict=True):
        hits, of_class, lengths = [0] * 10, [0] * 10, []
        for place, (pixels, label) in enumerate(zip(images.pixels, images.labels.tolist(), strict=True)):
            image = to_float(pixels[None])
            if severity != transform.clean:
                image = transform.apply(image, severity, torch.tensor([place]))
            with torch.no_grad():
                output = model(image).lengths[0]
            of_class[label] += 1
            hits[label] += int(output.argmax()) == label
            lengths.append(float(output.max()))
        assert (row.images, row.correct) == (23, sum(hits)) and row.interval == wilson_interval(sum(hits), 23)
        assert (row.hits, row.of_class) == (tuple(hits), tuple(of_class))
        assert row.score == pytest.approx(sum(lengths) / 23, rel=1e-4)
    assert len({row.score for row in found.rows}) == len(found.rows) and len({row.hits for row in found.rows}) > 1


def test_wrong_names_and_sizes_are_refused(model, images, pictures):
    wanted = "^transform: expected one of rotated, .* got 'rotate'. Did you mean 'rotated'"
    with pytest.raises(InputError, match=wanted):
        evaluate_transform(model, Batches(images, 23), "rotate")
    with pytest.raises(InputError, match="^side: expected 2 to 10 patches per side, got 11$"):
        scrambled(pictures, 11, torch.arange(6))


# What is printed and drawn


def table(on: str = "noisy", says: str = "noise") -> Robustness:
    rows = Row("0", 19, 20, (9, 10, 0), (10, 10, 0), 0.9), Row("0.5", 8, 20, (8, 0, 0), (10, 10, 0), 0.8)
    return Robustness(on, says, rows, 0)


def found(**settings) -> dict:
    about = {"dataset": "digits", "model": "compact", "class_names": CLASSES}
    return json.loads(table(**settings).to_json(**about))


def test_the_json_has_every_number_and_none_for_a_class_without_images():
    rows = found()["rows"]
    assert [row["recall"] for row in rows] == [[0.9, 1.0, None], [0.8, 0.0, None]]
    assert (rows[1]["accuracy"], rows[1]["winning_score"], rows[1]["name"]) == (0.4, 0.8, "0.5")


def test_the_picture_has_accuracy_score_and_recall_over_the_same_columns():
    figure = robustness(found())
    above, below = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in above.lines}
    assert lines == {"accuracy": [[0, 0.95], [1, 0.4]], "mean winning score": [[0, 0.9], [1, 0.8]]}
    assert below.images[0].get_array().filled(-1).tolist() == [[0, pytest.approx(0.1)], [0, 1], [-1, -1]]
    assert [text.get_text() for text in below.texts] == ["90", "80", "100", "0", "-", "-"]
    figure.canvas.draw()
    assert above.get_window_extent().x0 == below.get_window_extent().x0 and above.get_xlim() == below.get_xlim()
    words = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()]
    boxes = [text.get_window_extent() for text in words]
    assert all(box.x0 >= 0 and box.x1 <= 720 and box.y0 >= 0 for box in boxes)
    assert "0\nclean" in [text.get_text() for text in words]
