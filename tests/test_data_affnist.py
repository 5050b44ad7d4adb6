"""Images in the style of affNIST, whose maps are known."""

import torch

from graphcaps.images.data import Images, load_affnist, load_images, within
from graphcaps.images.data.affnist import affnist_style


def blocks(count):
    """Digits with ink of 20 x 20 somewhere in their image, as MNIST's have."""
    pixels = torch.zeros(count, 1, 28, 28, dtype=torch.uint8)
    for k in range(count):
        down, right = 2 + k % 5, 3 + k % 4
        pixels[k, :, down : down + 20, right : right + 20] = 255
    return Images(pixels, torch.arange(count) % 10)


def test_ink_comes_to_every_edge_and_shrinks_or_grows_as_the_scales_say_and_no_digit_loses_ink():
    few, many = affnist_style(blocks(20)).pixels, affnist_style(blocks(400)).pixels
    assert torch.equal(few, many[:20]) and not torch.equal(few, affnist_style(blocks(20), seed=1).pixels)
    for edge in (many[:, :, :2], many[:, :, -2:], many[..., :2], many[..., -2:]):
        assert (edge.amax((1, 2, 3)) > 0).any()
    share = many.double().sum((1, 2, 3)) / (255 * 400)  # a turn and a shear keep areas; none is cut
    assert 0.64 < share.min() < 0.7 and 1.36 < share.max() < 1.45


def test_within_is_what_a_centre_of_mass_says_to_the_nearest_pixel():
    # in 40 x 40 a digit of MNIST that isn't moved has its centre of mass at pixel 20, half a pixel beyond the middle
    pixels = torch.zeros(8, 1, 40, 40, dtype=torch.uint8)  # the last one is blank
    for k, (down, right) in enumerate([(20, 20), (26, 14), (14, 26), (27, 20), (20, 13)]):
        pixels[k, 0, down, right] = 200
    pixels[5, 0, 26:28, 20] = 100  # 6.5 below
    pixels[6, 0, 26, 20], pixels[6, 0, 27, 20] = 99, 101
    for images in (pixels, pixels.transpose(2, 3)):
        found = within(Images(images, torch.zeros(8, dtype=torch.int64)))
        assert found.tolist() == [True, True, True, False, False, True, False, True]


def test_all_images_of_mnist40_are_within_and_most_of_affnists_style_are_not(mnist_root):
    framed = load_images("mnist40", mnist_root)
    assert within(framed.val).all() and within(framed.test).all()
    assert int(within(load_affnist(mnist_root)).sum()) == 3887
