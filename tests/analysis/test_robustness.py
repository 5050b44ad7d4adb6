"""Transformed test images: each transform against its definition, and every number of a network on them by loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import small
import torch
from torch import nn

from graphcaps.analysis.accuracy import wilson_interval
from graphcaps.analysis.robustness import evaluate_transform
from graphcaps.data import Batches, Images, to_float
from graphcaps.data.transforms import TRANSFORMS, rotated, scrambled, shifted
from graphcaps.models import CapsNetOutput


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
    rows = found["rows"]
    assert model.training and shares[-1] == 1 and len(shares) == -(-23 // batch_size)
    transform = TRANSFORMS[name]
    assert [row["name"] for row in rows] == [f"{severity:g}" for severity in transform.severities]
    assert rows[found["clean"]]["name"] == f"{transform.clean:g}"
    model.eval()
    for row, severity in zip(rows, transform.severities, strict=True):
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
        assert (row["images"], row["correct"]) == (23, sum(hits)) and row["interval_95"] == wilson_interval(
            sum(hits), 23
        )
        assert row["recall"] == [hit / shown if shown else None for hit, shown in zip(hits, of_class, strict=True)]
        assert row["winning_score"] == pytest.approx(sum(lengths) / 23, rel=1e-4)
    assert len({row["winning_score"] for row in rows}) == len(rows) and len({str(row["recall"]) for row in rows}) > 1
