"""Transforms compared with their definitions, and a network's numbers on transformed images compared with loops."""

import itertools

import pytest
import small
import torch
from torch import nn
from torch.nn.functional import pad

from graphcaps.images.analysis import robustness
from graphcaps.images.analysis.accuracy import wilson_interval
from graphcaps.images.analysis.robustness import TRANSFORMS, evaluate_affnist, evaluate_transform
from graphcaps.images.data import Batches, Images, to_float
from graphcaps.images.models import CapsNetOutput

PLACES = torch.arange(6)


@pytest.fixture
def pictures():
    return torch.rand(6, 2, 12, 10, generator=torch.Generator().manual_seed(0))


def test_turns_are_counter_clockwise_and_shifts_go_right_and_down_and_leave_zeros(pictures):
    square = pictures[..., :10, :]
    torch.testing.assert_close(robustness.rotated(90, square, PLACES), square.rot90(1, (2, 3)), atol=1e-5, rtol=0)
    wanted = torch.zeros_like(pictures)
    wanted[..., 3:, 2:] = pictures[..., :-3, :-2]
    shift = torch.tensor([[2.0, 0, 0, 0, 0, 0], [3.0, 0, 0, 0, 0, 0]])
    each = robustness.moved(pictures, torch.zeros(6), shift)
    torch.testing.assert_close(each, torch.cat([wanted[:1], pictures[1:]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", [2, 4])
def test_scrambling_moves_every_patch_of_an_image_and_loses_none(side):
    picture = torch.arange(12 * 14).view(1, 1, 12, 14).float().expand(20, -1, -1, -1)
    moved = robustness.scrambled(side, picture, torch.arange(20))
    high, wide = 12 // side, 14 // side
    left = (14 - wide * side) // 2  # 14 is no multiple of 4, so a border remains

    def patches(image: torch.Tensor) -> list[bytes]:
        inner = image[0, :, left : left + wide * side].unfold(0, high, high).unfold(1, wide, wide)
        return [inner[row, column].numpy().tobytes() for row, column in itertools.product(range(side), repeat=2)]

    for before, after in zip(picture, moved, strict=True):
        old, new = patches(before), patches(after)
        assert sorted(old) == sorted(new) and all(one != other for one, other in zip(old, new, strict=True))
    assert torch.equal(moved[..., :left], picture[..., :left])
    assert len(moved.unique(dim=0)) > 5  # each image has its own permutation


@pytest.mark.parametrize("name", TRANSFORMS)
def test_an_image_is_transformed_by_its_place_alone(pictures, name):
    transform, before = TRANSFORMS[name], pictures.clone()
    assert transform.clean in transform.severities
    for severity in set(transform.severities) - {transform.clean}:
        whole = transform.apply(severity, pictures, PLACES)
        assert whole.shape == pictures.shape and whole.min() >= 0 and whole.max() <= 1
        assert not torch.equal(whole, pictures) and torch.equal(pictures, before)
        parts = [transform.apply(severity, pictures[k : k + 4], PLACES[k : k + 4]) for k in (0, 4)]
        torch.testing.assert_close(torch.cat(parts), whole, atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def images():
    few = small.digits().test
    return Images(few.pixels[:23], few.labels[:23])


class Projected(nn.Module):
    """Lengths that are ten random projections of an image, so that answers differ without training; with dropout."""

    objects, class_names = 1, tuple("0123456789")

    def __init__(self, pixels: int = 144):
        super().__init__()
        self.drop, weight = nn.Dropout(0.5), torch.randn(pixels, 10, generator=torch.Generator().manual_seed(0))
        self.weight = nn.Parameter((weight - weight.mean(dim=0)) / 10)

    def forward(self, images: torch.Tensor) -> CapsNetOutput:
        return CapsNetOutput((self.drop(images).flatten(1) @ self.weight).sigmoid(), None, None)

    def loss(self, output: CapsNetOutput, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return output.lengths.mean()


@pytest.mark.parametrize(("name", "batch_size"), [("rotated", 5), ("scrambled", 23)])
def test_every_number_is_that_of_one_image_after_the_other(images, name, batch_size):
    shares, model = [], Projected().train()
    result = evaluate_transform(model, Batches(images, batch_size), name, shares.append)
    rows, transform = result["rows"], TRANSFORMS[name]
    assert model.training and shares[-1] == 1 and sorted(shares) == shares
    assert [row["name"] for row in rows] == [f"{severity:g}" for severity in transform.severities]
    assert rows[result["clean"]]["name"] == f"{transform.clean:g}"
    model.eval()
    for row, severity in zip(rows, transform.severities, strict=True):
        hits, shown, lengths = [0] * 10, [0] * 10, []
        for place, (pixels, label) in enumerate(zip(images.pixels, images.labels.tolist(), strict=True)):
            image = to_float(pixels[None])
            if severity != transform.clean:
                image = transform.apply(severity, image, torch.tensor([place]))
            output = model(image).lengths[0].detach()
            shown[label] += 1
            hits[label] += int(output.argmax()) == label
            lengths.append(float(output.max()))
        assert (row["images"], row["correct"], row["accuracy"]) == (23, sum(hits), sum(hits) / 23)
        assert row["interval_95"] == wilson_interval(sum(hits), 23)
        assert row["recall"] == [hit / count if count else None for hit, count in zip(hits, shown, strict=True)]
        assert row["winning_score"] == pytest.approx(sum(lengths) / 23, rel=1e-4)
    assert len({row["winning_score"] for row in rows}) == len(rows) and len({str(row["recall"]) for row in rows}) > 1


def test_affnist_has_a_row_and_its_digits_within_and_beyond_the_shifts_of_training_too(images):
    shares, model = [], Projected(1600)
    middle, corner = (pad(images.pixels, [first, 28 - first] * 2) for first in (14, 0))
    known, mixed = Images(middle, images.labels), Images(torch.cat([middle[:9], corner[9:]]), images.labels)
    for affnist, wanted in ((mixed, [23, 23, 9, 14]), (known, [23, 23, 23])):
        rows = evaluate_affnist(model, Batches(known, 10), affnist, shares.append)["rows"]
        names = ["mnist40", "affNIST-style", "affNIST-style (within)", "affNIST-style (beyond)"]
        assert [row["name"] for row in rows] == names[: len(wanted)]
        assert [row["images"] for row in rows] == wanted
        assert rows[1]["correct"] == sum(row["correct"] for row in rows[2:])
    assert rows[0] == rows[1] | {"name": "mnist40", "winning_score": pytest.approx(rows[0]["winning_score"])}
    assert shares[-1] == pytest.approx(1)
