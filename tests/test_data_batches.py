"""Batches: what is drawn, that it is fixed by (seed, epoch), and that every image is counted."""

import pytest
import torch

from graphcaps.errors import InputError
from graphcaps.images.data import AUGMENTS, Batches, Images, to_float


def numbered(count, shape=(1, 12, 10)):
    """Images of random pixels; the label of each is its number."""
    generator = torch.Generator().manual_seed(5)
    return Images(torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator), torch.arange(count))


def same(left, right):
    left, right = list(left), list(right)
    return len(left) == len(right) and all(
        torch.equal(a, b) and torch.equal(s, t) for (a, s), (b, t) in zip(left, right, strict=True)
    )


def sizes(batches):
    return [len(labels) for _, labels in batches]


@pytest.mark.parametrize("augment", AUGMENTS)
def test_an_epoch_taken_up_at_a_step_goes_on_bit_for_bit_and_leaves_the_global_generator_alone(augment):
    whole = list(Batches(numbered(100), 15, seed=3, augment=augment).epoch(2))
    assert len(whole) == 7
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert same(Batches(numbered(100), 15, seed=3, augment=augment).epoch(2, 4), whole[4:])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("count", "batch_size", "expected"),
    [(14, 4, [4, 4, 4, 2]), (13, 4, [4, 4, 5])],
)
def test_a_last_batch_of_one_joins_the_one_before(count, batch_size, expected):
    data = numbered(count)
    batches = Batches(data, batch_size)
    assert sizes(batches.epoch(0)) == expected and len(batches) == len(expected)
    images, labels = map(torch.cat, zip(*batches.epoch(0), strict=True))
    assert sorted(labels.tolist()) == list(range(count)) and torch.equal(images, to_float(data.pixels[labels]))


def test_arguments_out_of_range_are_errors_but_evaluation_takes_a_batch_larger_than_the_data():
    large = Batches(numbered(8), 9)
    with pytest.raises(InputError, match="batch_size: expected an integer >= 1, got 0"):
        Batches(numbered(8), 0)
    with pytest.raises(InputError, match="batch_size: expected at most 8, the number of images, got 9"):
        large.epoch(0)
    assert sizes(large.in_order()) == [8]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("augment", AUGMENTS)
def test_cuda_has_the_batches_of_the_cpu(augment):
    batches = [Batches(numbered(50), 8, augment=augment, device=device) for device in ("cpu", "cuda")]
    for (images, labels), (there, numbers) in zip(batches[0].epoch(1), batches[1].epoch(1), strict=True):
        assert there.is_cuda and torch.equal(labels, numbers.cpu())
        torch.testing.assert_close(images, there.cpu())
