"""Intervals, compared with Student's intervals and with simulations."""

import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm

from experiments.statistics import difference, paired

pytestmark = pytest.mark.long


def test_for_one_seed_each_it_is_the_interval_of_paired_images():
    random = np.random.default_rng(0)
    ours, theirs = random.random((1, 2000)) < 0.9, random.random((1, 2000)) < 0.9
    gap, low, high = difference(ours, theirs)
    assert gap == ours.mean() - theirs.mean() and (low + high) / 2 == pytest.approx(gap)
    each = ours[0].astype(float) - theirs[0]
    assert (high - low) / 2 == pytest.approx(1.959964 * each.std() / 2000**0.5)


def test_intervals_hold_the_truth_in_95_percent():
    """Of two networks that are equally good on 2,000 images, at 90 % with an sd of 2 points over ten seeds.

    An answer is right if the image's difficulty is below the seed's skill. Half of the difficulty's variance belongs to
    the image, a quarter to the image and the network, and a quarter is drawn for each seed and image.
    """
    random, skill, hits = np.random.default_rng(0), norm.ppf(0.9), 0
    for _ in range(1000):
        shared, right = random.normal(scale=0.5**0.5, size=2000), []
        for _ in range(2):
            hard = shared + random.normal(scale=0.5, size=2000)
            skills = skill + random.normal(scale=0.02 / norm.pdf(skill), size=(10, 1))
            right.append(hard + random.normal(scale=0.5, size=(10, 2000)) < skills)
        _, low, high = difference(*right)
        hits += low <= 0 <= high
    # Three standard deviations of a share of 0.95 in 1,000 draws are 0.021. Too wide intervals also fail.
    assert 0.93 < hits / 1000 < 0.995


def test_folds_that_share_their_training_graphs_have_a_wider_interval():
    ours, theirs = [0.8, 0.7, 0.9, 0.75], [0.7, 0.7, 0.8, 0.8]
    low, high = stats.ttest_rel(ours, theirs).confidence_interval()
    assert paired([*ours, 0.1], theirs) == pytest.approx((0.0375, low, high))
    gap, wide_low, wide_high = paired(ours, theirs, 0.25)
    assert wide_high - wide_low == pytest.approx((high - low) * 2**0.5) and gap == pytest.approx(0.0375)
    assert paired([0.8], theirs) is None
