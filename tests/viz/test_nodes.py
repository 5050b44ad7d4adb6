"""The picture of a user's graph: edges in the colours and widths of a trace's couplings."""

import dataclasses

import matplotlib
import numpy as np
import pytest
from PIL import Image
from traces import make_trace, words

from graphcaps import viz
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.trace import RoutingTrace
from graphcaps.viz.routing.nodes import edges_to_draw

CAPS = 3
EDGES = [(0, 1), (1, 0), (1, 2), (3, 1), (2, 2), (4, 5)]


def trace_of(edges=EDGES, speed=1.0, **fields) -> RoutingTrace:
    """A routing along these edges, to three capsules of each node."""
    ends = np.array(edges, np.int32)
    children = np.repeat(np.arange(len(edges)), CAPS)
    parents = (ends[:, 1:] * CAPS + np.arange(CAPS)).ravel()
    votes = {"nodes": ends.repeat(CAPS, axis=0), "num_caps": CAPS}
    number = CAPS * int(ends.max() + 1)
    return make_trace(len(edges), number, edges=(children, parents), speed=speed, **votes, **fields)


def test_an_edge_has_the_colour_of_its_capsule_and_the_width_of_the_coupling():
    trace = trace_of()
    picture = viz.NodesPicture(trace, "epochs", image=1)
    states = trace.c[:, 2, 1].astype(float).reshape(3, len(EDGES), CAPS)
    assert picture.low == pytest.approx(1 / 3)
    in_order, paper = [sorted(EDGES)[k] for k in picture.order], np.array(matplotlib.colors.to_rgb(viz.style.FAINT))
    for step, state in enumerate(states):
        picture.show(step)
        drawn = zip(in_order, picture.lines.get_linewidths(), picture.lines.get_colors(), strict=True)
        for edge, width, color in drawn:
            c = state[EDGES.index(edge)]
            strength = max(0, (c.max() - 1 / 3) / (1 - 1 / 3))
            assert color[:3] == pytest.approx(paper + strength * (viz.color(c.argmax()) - paper), abs=1e-6)
            assert width == pytest.approx(0 if edge == (2, 2) else 0.5 + 4.5 * strength)
            if edge == (2, 2):
                assert picture.nodes.get_linewidths()[2] == pytest.approx(0.5 + 4.5 * strength)


def test_edges_join_their_nodes_and_positions_and_names_that_are_given_are_taken():
    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 2), (2, 2), (2, 0)])
    for trace in (trace_of(), dataclasses.replace(trace_of(), positions=corners, node_names=tuple("CCNOCC"))):
        picture = viz.NodesPicture(trace)
        at, paths = picture.nodes.get_offsets(), {}
        for k, line in zip(picture.order, picture.lines.get_segments(), strict=True):
            assert np.stack((line[0], line[-1])) == pytest.approx(at[picture.edges[k]])
            paths[tuple(picture.edges[k])] = line[6]
        along, across = at[1] - at[0], paths[0, 1] - at[0]
        assert along[0] * across[1] - along[1] * across[0] < -1e-3  # to the right of where it goes
        assert np.abs(paths[1, 2] - (at[1] + at[2]) / 2).max() < 0.1 * np.linalg.norm(at[2] - at[1])  # no other way
    assert np.array(at - at[0]) * 2 == pytest.approx(corners) and "C | C | N | O | C | C" in words(picture.figure)


def test_names_too_long_for_nodes_are_left_out_but_not_that_of_the_chosen_node():
    named = dataclasses.replace(trace_of([(k, k % 2) for k in range(2, 90)]), node_names=("Jean Valjean",) * 90)
    assert "Jean Valjean" not in words(viz.NodesPicture(named).figure)
    assert "Jean Valjean and 44 that vote for it" in words(viz.NodesPicture(named, node=0).figure)


def test_a_large_graph_is_drawn_in_part_a_neighbourhood_or_the_largest_degrees_and_says_so():
    draw = np.random.default_rng(0)
    edges = np.unique(np.sort(draw.integers(0, 900, (4000, 2)) ** 2 // 900, axis=1), axis=0)
    drawn, degree = edges_to_draw(edges, None), np.bincount(edges.ravel())
    assert 1900 < drawn.sum() <= 2000
    shown = np.unique(edges[drawn])
    others = np.setdiff1d(np.unique(edges), shown)
    assert degree[shown].min() >= np.sort(degree[others])[-1] - 1
    assert (edges_to_draw(edges, 500) == (edges[:, 1] == 500)).all()
    assert edges_to_draw(np.array([(k, 0) for k in range(1, 3000)]), 0).sum() == 2000
    trace = trace_of(edges.tolist(), iterations=3, images=1, epochs=(1,))
    assert f"the {len(shown)} nodes with the most edges, of {edges.max() + 1}" in words(viz.NodesPicture(trace).figure)
    line = f"node 500 and {(edges[:, 1] == 500).sum()} that vote for it, of {edges.max() + 1} nodes; 3 of 9 votes"
    cut = dataclasses.replace(trace, about={"edges": "3 of 9"})
    assert line in words(viz.NodesPicture(cut, node=500).figure)


def test_a_file_is_drawn_and_moves(tmp_path, capsys):
    trace_of(epochs=(1,)).save(tmp_path / "routing.npz")
    assert main(["viz", str(tmp_path / "routing.npz"), "--what", "nodes", "--node", "1"]) == 0
    path = tmp_path / "figures-routing" / "nodes.gif"
    assert capsys.readouterr().out == f"{path}\n" and Image.open(path).n_frames == 1 + 2 * 5 + 1


@pytest.mark.parametrize(
    ("draw", "text"),
    [
        (lambda: viz.draw(trace_of(), "x", what="entropy", node=1), "node: expected none unless a graph's nodes are"),
        (lambda: viz.NodesPicture(trace_of(), node=6), "node: expected a node of the graph, 0 to 5, got 6"),
        (lambda: viz.NodesPicture(make_trace()), "trace: expected one of CapsuleConv on a graph with one kind of node"),
    ],
)
def test_arguments_that_do_not_fit_are_named(draw, text):
    with pytest.raises(InputError) as caught:
        draw()
    assert str(caught.value).startswith(text)
