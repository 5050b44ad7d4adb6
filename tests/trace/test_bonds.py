"""Traces of graphs: what bonds and tags they take, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps import RoutingTrace
from graphcaps.errors import InputError

from .molecules import BONDS, NAMES, TAGS, make_trace


def test_a_bond_in_both_directions_is_one_and_loops_are_none():
    trace = make_trace(bonds=[(1, 0), (0, 1), (2, 2), (2, 1), (1, 2), (0, 1)])
    assert trace.bonds.tolist() == [[0, 1], [1, 2]] and trace.bonds.dtype == np.int32


def test_tensors_and_lists_give_the_same_and_a_file_gives_it_back(tmp_path):
    plain, tensors = make_trace(), make_trace(bonds=torch.tensor(BONDS), tags=torch.tensor(TAGS))
    plain.save(tmp_path / "graph.npz")
    for trace in (tensors, RoutingTrace.load(tmp_path / "graph.npz")):
        assert np.array_equal(trace.bonds, plain.bonds) and np.array_equal(trace.node_tags, plain.node_tags)
        assert trace.tag_names == NAMES


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bonds": [(0, 9)]}, "trace: bonds: expected indices in [0, 9), got others"),
        ({"bonds": [(0.5, 1)]}, "bonds: expected (M, 2) integers, got (1, 2) float64"),
        ({"tags": [0] * 8}, "trace: node_tags: expected (V=9), got (8,)"),
        ({"tags": [3] * 9}, "trace: node_tags: expected indices in [0, 3), got others"),
    ],
)
def test_what_does_not_fit_is_named(fields, text):
    with pytest.raises(InputError) as caught:
        make_trace(**fields)
    assert str(caught.value) == text
