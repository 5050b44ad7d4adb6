"""Equivariance: R^2 of vectors with a known answer, and of a network whose capsules hold the position of the ink."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from graphcaps.analysis.equivariance import MIN_IMAGES, equivariance, line_fit, measured, readout
from graphcaps.data import Batches, Images
from graphcaps.models import CapsNetOutput

STEPS = np.linspace(-30, 30, 13)


def lines(images: int = 200, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Vectors (N, 13, 4) that move along one direction with the angle. Each image has its own start across it."""
    random = np.random.RandomState(seed)
    along, across = np.array([1.0, 2, 0, 0]), np.array([[2.0, -1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    start = random.standard_normal((images, 1, 3)) @ across
    return 0.01 * STEPS[:, None] * along + start + noise * random.standard_normal((images, 13, 4))


def angles(images: int) -> np.ndarray:
    return np.tile(STEPS, (images, 1))


def test_vectors_on_a_line_are_explained_whole_and_read_off_exactly():
    assert line_fit(lines(), angles(200)) == pytest.approx(np.ones(200))
    assert readout(lines(), angles(200)) == pytest.approx(1)


def test_a_read_out_is_scored_on_images_that_it_was_not_fitted_on():
    vectors = lines(40)
    vectors[1::2] *= -1  # the held-out images move the other way
    assert readout(vectors, angles(40)) == pytest.approx(1 - 4)


def test_permuted_angles_are_the_control_of_both():
    winners = np.repeat([0, 1], 400)
    vectors = np.concatenate([lines(400, 0.05), lines(400, 0.05, seed=1)])
    found = measured(vectors, STEPS, winners == np.arange(3)[:, None])
    assert found["fit"].mean() > 0.8 and found["readout"][:2].min() > 0.8
    assert found["fit_permuted"].mean() == pytest.approx(1 / 12, abs=0.02)
    assert abs(found["readout_permuted"][:2]).max() < 0.03
    assert np.isnan(found["readout"][2])


class Ink(nn.Module):
    """Capsules that hold the distance of the ink to the right of the middle; class 1 wins if it is positive."""

    objects, routes = 1, True

    def forward(self, images: torch.Tensor) -> CapsNetOutput:
        at = torch.arange(images.shape[3]) - (images.shape[3] - 1) / 2
        x = (images.sum(dim=(1, 2)) * at).sum(dim=1) / images.sum(dim=(1, 2, 3))
        lengths = torch.stack([x < 0, x >= 0], dim=1).float()
        capsule = torch.stack([x, torch.full_like(x, 10), torch.zeros_like(x)], dim=1)
        return CapsNetOutput(lengths, torch.stack([capsule, -2 * capsule], dim=1), None)


def dots(images: int = 2 * MIN_IMAGES, seed: int = 0) -> Images:
    """Images of one pixel, left or right of the middle in turn, which no shift moves out of the image."""
    random, pixels = np.random.RandomState(seed), torch.zeros(images, 1, 21, 21, dtype=torch.uint8)
    for n in range(images):
        pixels[n, 0, random.randint(8, 13), (9, 11)[n % 2]] = 255
    return Images(pixels, torch.zeros(images, dtype=torch.int64))


@pytest.fixture(scope="module")
def found() -> dict:
    return equivariance(Ink(), Batches(dots(), 7))[0]


def test_a_shift_is_found_in_the_capsule_that_follows_it_and_in_no_other_direction(found):
    x, y = found["parameters"]["shift x"], found["parameters"]["shift y"]
    exact = {"mean": pytest.approx(1), "sd": pytest.approx(0, abs=1e-5), "of": 80}
    assert x["fit"] == x["readout"] | {"of": 80} == exact
    assert y["fit"] == {"mean": None, "sd": None, "of": 0}
    assert y["moved"]["mean"] < 1e-5 < 0.01 < x["moved"]["mean"]
    assert [part["images"] for part in x["per_class"]] == [40, 40]
