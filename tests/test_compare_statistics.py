"""Tests of differences: against the binomial distribution, and against formulas for what accuracies vary by."""

from __future__ import annotations

import numpy as np
import pytest

from graphcaps.compare import statistics
from graphcaps.compare.statistics import bootstrap, mcnemar


def test_mcnemar_is_the_binomial_of_the_images_that_one_alone_has_right():
    right, other = np.zeros(100, bool), np.zeros(100, bool)
    right[:7], other[5:17] = True, True  # 5 and 10, both on 2
    both_tails = 2 * sum(np.prod([(15 - k) / (k + 1) for k in range(n)]) for n in range(6)) / 2**15
    assert mcnemar(right, other) == mcnemar(other, right) == pytest.approx(both_tails)
    assert mcnemar(right, right) == 1


def test_the_bootstrap_covers_what_images_and_seeds_vary():
    random = np.random.default_rng(0)
    ours, theirs = random.random((1, 2000)) < 0.9, random.random((1, 2000)) < 0.9
    difference, low, high = bootstrap(ours, theirs)
    assert difference == ours.mean() - theirs.mean() and low < difference < high
    # sd of a difference of two independent proportions: 2 * sqrt(2 * 0.09 / 2000) = 0.019 on each side
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(2 * 0.09 / 2000), rel=0.1)
    far = np.concatenate([ours, np.zeros_like(ours)])  # one seed failed
    assert bootstrap(far, theirs)[1] < -0.85 and bootstrap(far, theirs)[2] > low


def test_seeds_that_are_drawn_anew_vary_as_much_as_what_they_are_from():
    ours, theirs = np.zeros((3, 100), bool), np.zeros((1, 100), bool)
    ours[1, :50], ours[2, :] = True, True  # accuracies 0, 1/2, 1 on images that are drawn
    accuracy = np.tile([0.0, 0.5, 1.0], (50_000, 1))
    drawn = statistics._of_seeds(accuracy, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert drawn.std() == pytest.approx(0.5 / np.sqrt(3), rel=0.02)  # standard error: sd 1/2 of three
    assert bootstrap(ours, theirs)[0] == 0.5


def test_images_that_both_have_right_or_wrong_do_not_widen_the_interval():
    right = np.random.default_rng(0).random((1, 1000)) < 0.5
    other = right.copy()
    other[0, :10] ^= True
    _, low, high = bootstrap(right, other)
    assert high - low < 0.02  # without pairs it would be 4 * sqrt(0.5 / 1000) = 0.09
