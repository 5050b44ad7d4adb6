"""Parse trees: credits compared with the formula, the fewest links, and files that can be read back."""

from __future__ import annotations

import dataclasses
import itertools
import json

import networkx
import numpy as np
import pytest
from traces import make_trace, with_pictures

from graphcaps import GraphcapsError, InputError
from graphcaps.analysis.parse_tree import credits_of, parse_tree, strongest, write_parts
from graphcaps.trace import random_trace
from graphcaps.viz import parts


@pytest.fixture(scope="module")
def trace():
    """A trace with different logits, so that some links are much stronger than others."""
    return with_pictures(make_trace(speed=1.0))


@pytest.fixture(scope="module")
def with_fields(trace):
    """A trace like that of the preset paper: no saliency, four children at each of four positions."""
    corners = np.array([(0, 0), (0, 6), (6, 0), (9, 9)])
    fields = np.concatenate([np.tile(corners, (4, 1)), np.full((16, 2), 5)], axis=1)
    return dataclasses.replace(trace, saliency=None, fields=fields.astype(np.int32))


def test_credits_of_a_parent_sum_to_the_lengths_of_s_and_v():
    trace = random_trace(20, 10)
    credit = np.bincount(trace.dst, credits_of(trace, 0))
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


def test_wrong_arguments_and_routing_that_is_not_finite_are_named(trace):
    with pytest.raises(InputError, match=r"keep: expected a share of the credit, above 0 and up to 1, got "):
        strongest(np.ones(2), float("nan"))
    with pytest.raises(InputError, match="image: expected an image of the trace, 0 to 1, got "):
        parse_tree(trace, 2)
    broken = trace.agreement.copy()
    broken[-1, 2, 1, 5] = np.nan
    with pytest.raises(GraphcapsError, match="expected finite couplings and agreement of image 1, got NaN or inf"):
        parse_tree(dataclasses.replace(trace, agreement=broken), 1)
    bare = dataclasses.replace(trace, images=None)
    with pytest.raises(InputError, match="trace: expected .*Traces of training runs have them"):
        parts(bare, parse_tree(bare))


def test_the_tree_holds_the_kept_links_with_their_numbers(trace):
    tree, kept = parse_tree(trace, 1, 0.8), strongest(credits_of(trace, 1), 0.8)
    assert sorted(key for *_, key in tree.edges(keys=True)) == sorted(kept)
    for child, parent, e, link in tree.edges(keys=True, data=True):
        i, j = trace.src[e], trace.dst[e]
        assert (child, parent) == (f"child {i}", f"parent {j}")
        assert (link["c"], link["agreement"]) == (trace.c[-1, 2, 1, e], trace.agreement[-1, 2, 1, e])
        assert link["credit"] == link["c"] * link["agreement"]
        assert tree.nodes[child] == {"layer": 0, "index": i}
        length = float(trace.lengths[-1, 2, 1, j])
        assert tree.nodes[parent] == {"layer": 1, "index": j, "name": f"class {j}", "length": length}
    about = {"image": 1, "epoch": 6, "iteration": 3, "keep": 0.8, "kept_edges": len(kept), "of_edges": 160}
    assert about.items() <= tree.graph.items() and tree.graph["label"] == "class 1"
    assert tree.graph["dataset"] == "digits"


@pytest.mark.parametrize("name", ["trace", "with_fields"])
def test_both_files_read_back_as_the_tree(name, request, tmp_path):
    trace = request.getfixturevalue(name)
    tree = parse_tree(trace, 0)
    graphml, node_link, picture = write_parts(trace, tree, tmp_path)
    assert picture.stat().st_size > 10_000
    from_json = networkx.node_link_graph(json.loads(node_link.read_text()), edges="edges")
    assert from_json.graph == tree.graph
    for read in (from_json, networkx.read_graphml(graphml, force_multigraph=True)):
        assert dict(read.nodes(data=True)) == dict(tree.nodes(data=True))
        links = {(child, parent, int(key)): data for child, parent, key, data in read.edges(keys=True, data=True)}
        assert links == {edge[:3]: edge[3] for edge in tree.edges(keys=True, data=True)}
