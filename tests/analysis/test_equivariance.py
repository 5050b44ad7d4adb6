"""How capsules move: R^2 where the answer is known, and networks whose capsules say where an image's ink is."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pytest
import torch
from torch import nn

from graphcaps import CapsNet, InputError
from graphcaps.analysis.equivariance import (
    FEWEST,
    PARAMETERS,
    Equivariance,
    equivariance,
    example_images,
    line_fit,
    measured,
    readout,
)
from graphcaps.cli.tables import equivariance_table
from graphcaps.data import Batches, Images
from graphcaps.models import CapsNetOutput
from graphcaps.viz import equivariance as picture

CLASSES = ("left", "right")
STEPS = np.linspace(-30, 30, 13)


def lines(images: int = 200, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Vectors (N, 13, 4) that move along one direction with the angle, from a place of each image's own across it."""
    random = np.random.RandomState(seed)
    along, across = np.array([1.0, 2, 0, 0]), np.array([[2.0, -1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    start = random.standard_normal((images, 1, 3)) @ across
    return 0.01 * STEPS[:, None] * along + start + noise * random.standard_normal((images, 13, 4))


def angles(images: int) -> np.ndarray:
    return np.tile(STEPS, (images, 1))


# R^2 where the answer is known


def test_vectors_on_a_line_are_explained_whole_and_read_off_exactly():
    assert line_fit(lines(), angles(200)) == pytest.approx(np.ones(200))
    assert readout(lines(), angles(200)) == pytest.approx(1)


def test_a_fit_is_what_numpy_finds_number_by_number():
    vectors = lines(3, noise=0.2)
    for v, share in zip(vectors, line_fit(vectors, angles(3)), strict=True):
        left = sum(np.polyfit(STEPS, v[:, d], 1, full=True)[1][0] for d in range(4))
        assert share == pytest.approx(1 - left / ((v - v.mean(axis=0)) ** 2).sum())


def test_a_read_out_is_scored_on_images_that_it_was_not_fitted_on():
    vectors = lines(40)
    vectors[1::2] *= -1  # the held-out images move the other way
    assert readout(vectors, angles(40)) == pytest.approx(1 - 4)


def test_permuted_angles_are_the_control_of_both():
    winners = np.repeat([0, 1], 400)
    vectors = np.concatenate([lines(400, 0.05), lines(400, 0.05, seed=1)])
    found = measured(vectors, STEPS, winners, 3)
    assert found.fit.mean() > 0.8 and found.readout[:2].min() > 0.8
    assert found.fit_permuted.mean() == pytest.approx(1 / 12, abs=0.02)
    assert abs(found.readout_permuted[:2]).max() < 0.03
    assert np.isnan(found.readout[2])


# Networks whose capsules are known


class Ink(nn.Module):
    """Capsules that say how far right of the middle an image's ink is; class 1 wins where it is right of it."""

    objects, routes = 1, True

    def forward(self, images: torch.Tensor) -> CapsNetOutput:
        at = torch.arange(images.shape[3]) - (images.shape[3] - 1) / 2
        x = (images.sum(dim=(1, 2)) * at).sum(dim=1) / images.sum(dim=(1, 2, 3))
        lengths = torch.stack([x < 0, x >= 0], dim=1).float()
        capsule = torch.stack([x, torch.full_like(x, 10), torch.zeros_like(x)], dim=1)
        return CapsNetOutput(lengths, torch.stack([capsule, -2 * capsule], dim=1), None)


def dots(images: int = 2 * FEWEST, seed: int = 0) -> Images:
    """One pixel each, at the left and at the right in turn, far enough from the border to stay inside."""
    random, pixels = np.random.RandomState(seed), torch.zeros(images, 1, 21, 21, dtype=torch.uint8)
    for n in range(images):
        pixels[n, 0, random.randint(8, 13), (9, 11)[n % 2]] = 255
    return Images(pixels, torch.zeros(images, dtype=torch.int64))


@pytest.fixture(scope="module")
def found() -> Equivariance:
    return equivariance(Ink(), Batches(dots(), 7))


def test_a_shift_is_found_in_the_capsule_that_follows_it_and_in_no_other_direction(found):
    x, y = found.sweeps["shift x"], found.sweeps["shift y"]
    assert x.fit == pytest.approx(1) and x.readout == pytest.approx(1)
    assert np.isnan(y.fit).all() and y.moved.max() < 1e-5 < x.moved.min()


def test_a_dot_moves_by_pixels_to_the_right_and_turns_as_a_dot_does(found):
    image = dots().pixels[1, 0].nonzero()[0] - 10
    row, column = (float(place) for place in image)
    values = np.array(PARAMETERS["shift x"].values)
    assert found.sweeps["shift x"].vectors[1, :, 0] == pytest.approx(-2 * (column + values), abs=1e-3)
    turned = np.radians(PARAMETERS["rotation"].values)
    wanted = -2 * (column * np.cos(turned) + row * np.sin(turned))
    assert found.sweeps["rotation"].vectors[1, :, 0] == pytest.approx(wanted, abs=0.3)  # a pixel on a grid


def test_a_capsule_network_is_swept_in_eval_mode_and_left_as_it_was(monkeypatch):
    torch.manual_seed(0)
    model = CapsNet.from_preset("compact", (1, 12, 12), num_classes=2).train()
    images = Images(torch.randint(256, (3, 1, 12, 12), dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    found = equivariance(model, Batches(images, 2))
    assert model.training and found.sweeps["rotation"].vectors.shape == (3, 13, 16)
    alone = equivariance(model, Batches(images, 1))
    np.testing.assert_allclose(alone.sweeps["shift y"].vectors, found.sweeps["shift y"].vectors, atol=1e-5)


def test_networks_without_capsules_and_of_several_objects_are_refused():
    model = nn.Linear(2, 2)
    model.objects = 1
    with pytest.raises(InputError, match="^model: expected a network with capsules, got Linear. CNNs have none$"):
        equivariance(model, Batches(dots(), 5))
    pairs = Ink()
    pairs.objects = 2
    with pytest.raises(InputError, match="^model: expected a network whose images show one object, got 2$"):
        equivariance(pairs, Batches(dots(), 5))


# What is written, printed and drawn


def plain(found: Equivariance) -> dict:
    return json.loads(found.to_json(dataset="dots", model="ink", class_names=CLASSES))


def test_json_and_table_have_the_means_and_say_what_there_is_none_of(found):
    x, y = (plain(found)["parameters"][name] for name in ("shift x", "shift y"))
    assert x["fit"] == {"mean": pytest.approx(1), "sd": pytest.approx(0, abs=1e-5), "of": 80}
    assert y["fit"] == {"mean": None, "sd": None, "of": 0}
    assert [part["images"] for part in x["per_class"]] == [40, 40]
    row = next(line.split() for line in equivariance_table(found, CLASSES).splitlines() if line.startswith("shift x"))
    assert row[:5] == ["shift", "x", "-3", "3", "7"] and row[7:9] == ["1.00", "(0.00)"]
    short = equivariance_table(equivariance(Ink(), Batches(dots(10), 10)), CLASSES)
    assert short.endswith("-: fewer than 40 images")


def test_the_picture_shows_the_vectors_and_the_shares(found):
    numbers, images = plain(found), example_images(found, Batches(dots(), 5))
    assert images.shape == (2, 3, 1, 21, 21) and (images[:, 1] == dots().pixels[:2].numpy()).all()
    figure = picture(numbers, images)
    axes = {axes.get_label(): axes for axes in figure.axes}
    drawn = np.array(
        sorted(line.get_ydata().tolist() for line in axes["example 0"].lines if len(line.get_ydata()) == 13)
    )
    wanted = np.array(numbers["examples"][0]["vectors"])
    assert all(any(np.allclose(line, wanted[:, d]) for line in drawn) for d in range(3))
    shares = {line.get_label(): line.get_ydata() for line in axes["readout"].lines}
    assert shares["shift x"] == pytest.approx([1, 1])
    figure.canvas.draw()
    words = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip() and text.get_visible()]
    boxes = [text.get_window_extent() for text in words]
    assert all(box.x0 >= 0 and box.x1 <= 900 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    with pytest.raises(InputError, match=r"^images: expected \(2, 3\) \+ \(C, H, W\), got \(2, 2, 1, 21, 21\)$"):
        picture(numbers, images[:, :2])
