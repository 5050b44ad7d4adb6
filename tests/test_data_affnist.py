"""affNIST: the official files, written here as they are; and the images in their style, whose poses are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from graphcaps.data import Images, affnist, affnist_style, load_affnist, within
from graphcaps.data.affnist import Poses, draw_poses, drawn, read_affnist
from graphcaps.errors import InputError

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"


def written(path, count=3, **fields):
    """A file as the official ones are: 1 x 1 struct, images in columns; returns the images (N, 40, 40)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.random.RandomState(count).randint(0, 256, (count, 40, 40)).astype(np.uint8)
    labels = np.arange(count) % 10
    content = {
        "affNIST_version": "1.0",
        "human_readable_transform": np.zeros((6, count)),
        "image": images.reshape(count, 1600).T,
        "image_transformation_matrix": np.zeros((9, count)),
        "label_one_of_n": np.eye(10)[labels].T,
        "label_int": labels[None].astype(np.uint8),
    }
    savemat(path, {"affNISTdata": {**content, **fields}}, do_compression=True)
    return images


def test_an_official_image_stands_upright(tmp_path):
    images = written(tmp_path / "1.mat")
    read = read_affnist(tmp_path / "1.mat")
    assert read.pixels.dtype == torch.uint8 and read.pixels.is_contiguous()
    assert np.array_equal(read.pixels[:, 0].numpy(), images) and read.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"image": np.zeros((1600, 3))}, r"image: expected uint8 \(1600, N\), got float64 \(1600, 3\)"),
        ({"label_int": np.array([[0, 10, 1]])}, "label_int: expected 0 to 9, got 0 to 10"),
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_named(tmp_path, fields, text):
    written(tmp_path / "1.mat", **fields)
    with pytest.raises(InputError, match=r"1.mat: " + text):
        read_affnist(tmp_path / "1.mat")


def test_a_file_without_the_struct_is_refused(tmp_path):
    savemat(tmp_path / "1.mat", {"affNISTdata": {"image": 1, "labels": 2}})
    with pytest.raises(InputError, match="expected a struct affNISTdata with image and label_int, got image, labels"):
        read_affnist(tmp_path / "1.mat")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    written(tmp_path / "1.mat")
    whole = (tmp_path / "1.mat").read_bytes()
    for size in (0, 127, 132, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.mat").write_bytes(whole[:size])
        with pytest.raises(InputError, match="cut.mat: expected"):
            read_affnist(tmp_path / "cut.mat")


def test_a_damaged_official_file_is_an_error_and_not_passed_over(tmp_path):
    images = written(tmp_path / "affNIST" / "test.mat")
    read, name = load_affnist(tmp_path)
    assert name == "affNIST" and np.array_equal(read.pixels[:, 0].numpy(), images)
    (tmp_path / "affNIST" / "test.mat").write_bytes(b"")
    with pytest.raises(InputError, match="test.mat: expected a whole MATLAB 5 file"):
        load_affnist(tmp_path)


def blocks(count=300, side=28):
    """Digits with ink of 20 x 20 somewhere in their image, as MNIST's have."""
    pixels = torch.zeros(count, 1, side, side, dtype=torch.uint8)
    for k in range(count):
        down, right = 2 + k % 5, 3 + k % 4
        pixels[k, :, down : down + 20, right : right + 20] = 255
    return Images(pixels, torch.arange(count) % 10)


def test_validation_images_are_never_the_official_ones(tmp_path, monkeypatch):
    written(tmp_path / "affNIST" / "test.mat")
    monkeypatch.setattr(affnist, "load_images", lambda name, root: type("Splits", (), {"val": blocks(3)}))
    assert load_affnist(tmp_path, "val")[1] == "affNIST-style"
    with pytest.raises(InputError, match="split: expected test or val, got 'train'"):
        load_affnist(tmp_path, "train")


def test_poses_fill_their_ranges_and_no_more():
    poses = draw_poses(blocks(2000))
    for values, low, high in (
        (poses.degrees, -20, 20),
        (poses.shear, -0.2, 0.2),
        (poses.scale[0], 0.8, 1.2),
        (poses.scale[1], 0.8, 1.2),
    ):
        slack = 0.01 * (high - low)
        assert low <= values.min() <= low + slack and high - slack <= values.max() <= high
    numbers = torch.stack([poses.degrees, poses.shear, *poses.scale, *poses.shift])
    assert (torch.corrcoef(numbers) - torch.eye(6)).abs().max() < 0.1


def test_no_digit_loses_ink_and_some_come_to_every_edge():
    digits = blocks()
    poses = draw_poses(digits)
    image, wide = drawn(digits, poses).pixels, drawn(digits, poses, side=60).pixels
    assert torch.equal(image, wide[:, :, 10:50, 10:50])
    assert torch.equal(image.sum((1, 2, 3)), wide.sum((1, 2, 3)))
    for edge in (image[:, :, :2], image[:, :, -2:], image[..., :2], image[..., -2:]):
        assert (edge.amax((1, 2, 3)) > 0).any()


def dots(*where):
    """An image of 29 x 29 for each (right, down) from the middle, with one dot there."""
    pixels = torch.zeros(len(where), 1, 29, 29, dtype=torch.uint8)
    for k, (right, down) in enumerate(where):
        pixels[k, 0, 14 + down, 14 + right] = 255
    return Images(pixels, torch.zeros(len(where), dtype=torch.int64))


def centre(images):
    """(N, 2): the mean place of the ink, right and down from the middle."""
    weights = images.pixels[:, 0].double()
    axis = torch.arange(weights.shape[-1]) - (weights.shape[-1] - 1) / 2
    return (
        torch.stack([(weights * axis).sum((1, 2)), (weights * axis[:, None]).sum((1, 2))], 1)
        / weights.sum((1, 2), keepdim=True)[:, 0]
    )


def posed(degrees=0.0, shear=0.0, scale=(1.0, 1.0), shift=(0.0, 0.0)):
    return Poses(
        *(torch.tensor([x], dtype=torch.float64) for x in (degrees, shear)),
        *(torch.tensor(x, dtype=torch.float64)[:, None] for x in (scale, shift)),
    )


@pytest.mark.parametrize(
    ("pose", "start", "end"),
    [
        (posed(degrees=90), (8, 0), (0, -8)),
        (posed(shear=0.2), (0, 10), (2, 10)),
        (posed(scale=(1.2, 0.8)), (10, -10), (12, -8)),
        (posed(shift=(3, -5)), (1, 1), (4, -4)),
        (posed(90, 0.2, (1.2, 0.8), (1, 2)), (10, 10), (8 + 1, -12 - 1.6 + 2)),
    ],
)
def test_a_pose_takes_a_point_where_it_says(pose, start, end):
    # 31 pixels, an odd number like the image's 29, keep the middle a pixel
    found = centre(drawn(dots(start), pose, side=31))[0]
    assert found.tolist() == pytest.approx(end, abs=0.05)


def test_within_is_what_a_centre_of_mass_says_to_the_nearest_pixel():
    # in 40 x 40 a digit of MNIST that isn't moved has its centre of mass at pixel 20, half a pixel beyond the middle
    pixels = torch.zeros(7, 1, 40, 40, dtype=torch.uint8)
    for k, (down, right) in enumerate([(20, 20), (26, 14), (14, 26), (27, 20), (20, 13)]):
        pixels[k, 0, down, right] = 200
    pixels[5, 0, 26:28, 20] = 100  # 6.5 below
    pixels[6, 0, 26, 20], pixels[6, 0, 27, 20] = 99, 101
    labels = torch.zeros(7, dtype=torch.int64)
    assert within(Images(pixels, labels)).tolist() == [True, True, True, False, False, True, False]
    assert within(Images(pixels.transpose(2, 3), labels)).tolist() == [True, True, True, False, False, True, False]
    assert within(Images(torch.zeros(1, 1, 40, 40, dtype=torch.uint8), labels[:1])).tolist() == [True]


def test_the_seed_fixes_the_images_and_more_digits_leave_the_first_as_they_are():
    few, many = blocks(20), blocks(50)
    assert torch.equal(affnist_style(few).pixels, affnist_style(many).pixels[:20])
    assert not torch.equal(affnist_style(few).pixels, affnist_style(few, seed=1).pixels)
    assert draw_poses(few).degrees[:3].tolist() == pytest.approx([1.9525, -2.4965, 2.7218], abs=1e-4)


@pytest.mark.skipif(not MNIST.is_dir(), reason="real MNIST isn't at ../shared/data/mnist")
def test_all_images_of_mnist40_are_within_and_most_of_affnists_style_are_not():
    from graphcaps.data import load_images

    framed = load_images("mnist40", MNIST)
    assert within(framed.val).all() and within(framed.test).all()
    digits = load_images("mnist", MNIST).test
    poses = draw_poses(digits)
    inside = within(drawn(digits, poses))
    assert int(inside.sum()) == 3887 and int((poses.shift.abs() <= 6).all(0).sum()) == 3315
    assert int((inside != (poses.shift.abs() <= 6.5).all(0)).sum()) == 300
