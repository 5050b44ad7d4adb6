"""Votes painted onto the image: credits by place, windows that share out a pixel, and the picture of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from traces import make_trace, with_pictures

from graphcaps import InputError
from graphcaps.viz import PlacesPicture, draw
from graphcaps.viz.routing.places import credit_by_place, places_of, windows

FIELDS = np.array([[2 * y, 2 * x, 5, 5] for _ in range(2) for y in range(4) for x in range(4)], np.int32)


@pytest.fixture
def trace():
    """32 children of two types at 4 x 4 places of images of 12 x 12 pixels, three parents."""
    whole = with_pictures(make_trace(32, 3, epochs=(0, 2), iterations=5, speed=0.5))
    return dataclasses.replace(whole, saliency=None, fields=FIELDS)


def test_the_credit_of_a_place_is_the_sum_over_its_children_of_coupling_times_agreement(trace):
    place_of = places_of(trace)[1]
    credit = trace.c[-1, :, 1].astype(np.float64) * trace.agreement[-1, :, 1]
    got = credit_by_place(trace, place_of, credit)
    wanted = np.zeros((5, 3, 16))
    for e, (i, j) in enumerate(zip(trace.src, trace.dst, strict=True)):
        top, left = FIELDS[i, :2] // 2
        wanted[:, j, 4 * top + left] += credit[:, e]
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    picture = PlacesPicture(trace, image=1)
    np.testing.assert_allclose(picture.maps, np.maximum(wanted[:3], 0), atol=1e-12)
    assert (wanted < 0).any() and (wanted > 0).any()


def test_a_point_is_shared_out_among_the_places_that_see_it():
    fields = places_of(dataclasses.replace(make_trace(32, 3), fields=FIELDS))[0]
    shares = windows(fields, 12, 12)  # (F, H, W)
    assert (shares >= 0).all() and (shares.sum(axis=0) <= 1).all()
    for share, (top, left, high, wide) in zip(shares, fields, strict=True):
        outside = np.ones((12, 12), bool)
        outside[top : top + high, left : left + wide] = False
        assert not share[outside].any()
        row, column = np.unravel_index(share.argmax(), share.shape)
        assert top <= row < top + high and left <= column < left + wide
    assert shares.sum(axis=0)[3:8, 3:8].min() > 0.6 and not shares[:, 11].any(), "no child sees the last row"


def test_places_are_drawn_only_where_children_see_different_parts(trace, tmp_path):
    everywhere = dataclasses.replace(trace, fields=np.tile(np.array([0, 0, 12, 12], np.int32), (32, 1)))
    assert PlacesPicture.suits(trace) and not PlacesPicture.suits(everywhere)
    assert (tmp_path / "places.png") in draw(trace, tmp_path, format="png", over="iterations")
    with pytest.raises(InputError, match="fields of its children, got none"):
        draw(dataclasses.replace(trace, fields=None), tmp_path, what="places")
