"""Images and ink at other places: in training new ones each epoch, in evaluation fixed ones."""

import torch

from graphcaps.images.data import Batches, Images, ImageSplits, to_float
from graphcaps.images.data.augment import draw_maps, in_fixed_places, in_frame, ink_in_fixed_places, warped

BORDER = 3


def full(count):
    """Images of 4 x 5 without a black pixel; the label of each is its number."""
    pixels = torch.randint(1, 256, (count, 1, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return Images(pixels, torch.arange(count))


def inked(count):
    """Images of 7 x 9 whose ink, a block of 2 x 3 without a black pixel, stands at another place in each."""
    pixels = torch.zeros(count, 1, 7, 9, dtype=torch.uint8)
    ink = torch.randint(1, 256, (count, 1, 2, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    for k in range(count):
        down, right = k % 6, k % 7
        pixels[k, :, down : down + 2, right : right + 3] = ink[k]
    return Images(pixels, torch.arange(count)), ink


def places(images, shown):
    """The first row and column of the ink of each image, which must be ``shown``."""
    found = []
    for image, wanted in zip(images, shown, strict=True):
        rows, columns = (image[0].amax(axis).nonzero()[:, 0] for axis in (1, 0))
        assert torch.equal(image[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], wanted)
        found.append((rows[0].item(), columns[0].item()))
    return found


EVERYWHERE = {(down, right) for down in range(2 * BORDER + 1) for right in range(2 * BORDER + 1)}


def test_images_are_shifted_whole_to_every_place_of_the_frame_and_in_order_are_in_the_middle():
    source = full(800)
    images = in_frame(source, BORDER)
    assert images.image_shape == (1, 10, 11) and images.take(torch.tensor([3, 1])).shift == BORDER
    shown, labels = next(Batches(images, 800, augment="shift").epoch(0))
    assert set(places(shown, to_float(source.pixels[labels]))) == EVERYWHERE
    shown, _ = next(Batches(images, 800, augment="shift").in_order())
    assert places(shown, to_float(source.pixels)) == [(BORDER, BORDER)] * 800
    images = in_fixed_places(source, BORDER)  # for evaluation: places of their own, the same for everybody
    assert images.image_shape == (1, 10, 11)
    fixed = places(images.pixels, source.pixels)
    assert set(fixed) == EVERYWHERE and fixed[:6] == [(3, 1), (2, 3), (4, 2), (3, 0), (0, 4), (1, 3)]
    assert fixed[:4] == places(in_fixed_places(full(4), BORDER).pixels, full(4).pixels)


def test_affine_maps_turn_and_scale_by_at_most_their_limits_and_on_average_do_nothing():
    dot = torch.zeros(1, 1, 29, 29)
    dot[0, 0, 13:16, 23:26] = 1.0  # its centre is ten pixels to the right of the middle

    def centre(turn, width):
        ink = warped(dot, draw_maps(torch.tensor([turn, 0.5, width, 0.5]).view(4, 1)))[0, 0]
        at = torch.arange(29.0) - 14
        return float((ink.sum(1) * at).sum() / ink.sum()), float((ink.sum(0) * at).sum() / ink.sum())

    for turn, width, wanted in (0.5, 0.5, (0, 10)), (1.0, 0.5, (-2.59, 9.66)), (0.5, 0.0, (0, 11.62)):
        torch.testing.assert_close(torch.tensor(centre(turn, width)), torch.tensor(wanted).float(), atol=0.1, rtol=0)
    shown, labels = next(
        Batches(Images((255 * dot).byte().expand(500, -1, -1, -1), torch.arange(500)), 500, augment="affine").epoch(0)
    )
    middle = (shown.sum((1, 2)) * torch.arange(29.0)).sum(1) / shown.sum((1, 2, 3)) - 14
    assert 9.6 < middle.mean() < 10.4 and 1.0 < middle.std() < 2.0


def test_ink_is_put_whole_at_every_place_where_it_fits_and_each_as_often():
    source, ink = inked(8400)
    shown, labels = next(Batches(source, 8400, augment="anywhere").epoch(0))
    drawn = places(shown, to_float(ink[labels]))
    counts = [drawn.count((down, right)) for down in range(6) for right in range(7)]
    assert sum(counts) == 8400 and max(abs(count - 200) for count in counts) < 71  # five standard deviations


def test_a_network_that_trains_on_ink_anywhere_is_chosen_on_such_images_and_tested_on_others():
    source, ink = inked(4200)
    splits = ImageSplits("x", ("0",) * 4200, source, source, source)
    assert splits.for_augment("shift") is splits
    chosen = splits.for_augment("anywhere")
    assert chosen.train is splits.train and chosen.test is splits.test
    fixed = places(chosen.val.pixels, ink)
    assert len(set(fixed)) == 42 and torch.equal(chosen.val.labels, source.labels)
    assert fixed[:5] == [(3, 5), (3, 3), (2, 4), (2, 6), (5, 2)]  # the places are the same for everybody
    assert torch.equal(ink_in_fixed_places(source.take(torch.arange(5))).pixels, chosen.val.pixels[:5])
