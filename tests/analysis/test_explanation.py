"""Parse trees: credits compared with the formula, the fewest links, and what is said about them."""

import dataclasses
import itertools

import numpy as np
import pytest
from traces import make_trace, random_trace, with_pictures

from graphcaps import GraphcapsError
from graphcaps.images.analysis.parse_tree import in_words, parse_tree, strongest
from graphcaps.viz import GraphPicture


@pytest.fixture(scope="module")
def trace():
    """A trace with different logits, so that some links are much stronger than others."""
    return with_pictures(make_trace(speed=1.0))


def test_credits_of_a_parent_sum_to_the_lengths_of_s_and_v():
    trace = random_trace(20, 10)
    credit = np.bincount(trace.dst, parse_tree(trace).credit)
    v = trace.lengths[-1, -1, 0].astype(np.float64)
    s = np.sqrt(v / (1 - v))  # |v| = |s|^2 / (1 + |s|^2)
    assert np.allclose(credit, s * v, rtol=5e-3)  # c and agreement are float16


@pytest.mark.parametrize("keep", [0.05, 0.9, 1])
def test_no_fewer_edges_make_up_the_share(keep):
    credit = np.random.default_rng(3).normal(size=9)
    kept = strongest(credit, keep)
    wanted = keep * credit[credit > 0].sum() - 1e-9
    assert credit[kept].sum() >= wanted and (credit[kept] > 0).all() and (np.diff(credit[kept]) <= 0).all()
    for fewer in range(len(kept)):
        assert all(credit[list(some)].sum() < wanted for some in itertools.combinations(range(9), fewer))


def test_routing_that_is_not_finite_is_named(trace):
    broken = trace.agreement.copy()
    broken[-1, 2, 1, 5] = np.nan
    with pytest.raises(GraphcapsError, match="expected finite couplings and agreement of image 1, got NaN or inf"):
        parse_tree(dataclasses.replace(trace, agreement=broken), 1)


def test_the_picture_of_the_graph_has_strong_ribbons_for_links_of_the_tree_alone(trace):
    tree = parse_tree(trace, 1, 0.5)
    ribbons = GraphPicture(trace, image=1, shown_edges=tree.edges).panels[0].ribbons
    c = trace.c[-1, 2, 1].astype(float)
    assert ribbons.shares[:, ::2].sum() == pytest.approx(c[tree.edges].sum() / 16, abs=1e-3)
    opacities = {round(float(color[3]), 2) for color in ribbons.ways.get_facecolors()}
    assert opacities == {0.15, 0.8} and ribbons.shares.sum() == pytest.approx(1)


def test_the_tree_holds_the_kept_links_and_words_count_them(trace):
    tree = parse_tree(trace, 1, 0.8)
    credit = tree.credit
    assert tree.edges.tolist() == strongest(credit, 0.8).tolist()
    assert tree[:2] == (1, 0.8) and tree.total == credit[credit > 0].sum()
    lines, e = in_words(trace, tree).splitlines(), tree.edges[0]
    assert credit[e] == credit.max() == np.float64(trace.c[-1, 2, 1, e]) * trace.agreement[-1, 2, 1, e]
    children = len(set(trace.src[tree.edges].tolist()))
    lengths = trace.lengths[-1, 2, 1]
    named = [j for j in np.argsort(-lengths) if lengths[j] > 0.5]
    wanted = ", then ".join(f"class {j} ({lengths[j]:.2f})" for j in named)
    assert lines[0] == f"image: longest is {wanted}, label class 1"
    short = dataclasses.replace(trace, lengths=trace.lengths * 0.4)
    assert in_words(short, tree).startswith("image: no class is longer than 0.50: train on; the longest, ")
    assert lines[2] == f"{len(tree.edges)} of 160 links, from {children} children, make up 80% of all credit"
    assert lines[3].startswith(f"the strongest link: child {trace.src[e]} to class {trace.dst[e]}, ")
    corners = np.array([(0, 0), (0, 6), (6, 0), (9, 9)])  # as of the preset paper: four children at each position
    fields = np.concatenate([np.tile(corners, (4, 1)), np.full((16, 2), 5)], axis=1)
    placed = dataclasses.replace(trace, fields=fields.astype(np.int32))
    assert " at 3 places, " in in_words(placed, parse_tree(placed, 1, 1))
