"""Pictures of graphs show what the trace holds, and molecules look like molecules."""

from __future__ import annotations

import dataclasses
import itertools

import matplotlib
import numpy as np
import pytest
from PIL import Image

from graphcaps import viz
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.viz import style
from graphcaps.viz.routing.layout import places

from .molecules import BONDS, couplings, make_trace

# Where nodes stand


def lengths_of(at, bonds):
    return np.linalg.norm(at[[i for i, _ in bonds]] - at[[j for _, j in bonds]], axis=1)


@pytest.mark.parametrize("size", [3, 6])
def test_a_ring_is_a_regular_polygon(size):
    ring = [(k, (k + 1) % size) for k in range(size)]
    at = places(size, np.array(ring))
    assert lengths_of(at, ring) == pytest.approx(1, abs=1e-3)
    radius = np.linalg.norm(at - at.mean(axis=0), axis=1)
    assert radius == pytest.approx(0.5 / np.sin(np.pi / size), abs=1e-3)


@pytest.mark.parametrize(
    ("nodes", "bonds"),
    [(1, []), (9, [(0, 1), (1, 2), (4, 5), (5, 6), (6, 4)]), (5, itertools.combinations(range(5), 2))],
)
def test_parts_stand_apart(nodes, bonds):
    at = places(nodes, np.array(list(bonds), int).reshape(-1, 2))
    apart = np.linalg.norm(at[:, None] - at, axis=2) + 9 * np.eye(nodes)
    assert at.shape == (nodes, 2) and np.isfinite(at).all() and apart.min() > 0.6


# What is drawn


def test_a_node_has_the_colour_of_its_largest_coupling_as_strong_as_it_is_decided():
    c = couplings(classes=3)[:3].astype(np.float16).astype(np.float64)  # as a trace holds them
    picture = viz.MoleculePicture(make_trace(c, class_names=("a", "b", "c")))
    assert picture.full == pytest.approx(c.max())
    for step in range(len(c)):
        picture.show(step)
        for node, shown in zip(c[step], picture.nodes.get_facecolors(), strict=True):
            strength = max(0, node.max() - 1 / 3) / (c.max() - 1 / 3)
            wanted = 1 - strength * (1 - np.array(style.color(node.argmax())))
            assert shown == pytest.approx([*wanted, 1], abs=1e-6)


def test_bars_are_as_long_as_the_class_capsules_and_the_longest_is_bold():
    trace = make_trace()
    picture = viz.MoleculePicture(trace)
    last = trace.lengths[0, 2, 0]
    assert [bar.get_width() for bar in picture.bars] == pytest.approx(last)
    bold = [text.get_text() for text in picture.figure.findobj(matplotlib.text.Text) if text.get_weight() == "bold"]
    assert f"{last.max():.2f}" in bold and f"{last.min():.2f}" not in bold


def test_every_bond_of_the_graph_is_drawn_and_no_other():
    picture = viz.MoleculePicture(make_trace())
    (bonds,) = picture.figure.findobj(matplotlib.collections.LineCollection)
    at = picture.nodes.get_offsets()
    drawn = {tuple(sorted(int(np.abs(at - end).sum(1).argmin()) for end in line)) for line in bonds.get_segments()}
    assert drawn == {tuple(sorted(bond)) for bond in BONDS} and len(bonds.get_segments()) == len(BONDS)


@pytest.mark.parametrize(("medium", "classes"), [(style.SCREEN, 12), (style.COLUMN, 2)])
def test_nothing_reaches_over_the_edge(medium, classes):
    names = tuple(f"a class with a long name {k}" for k in range(classes))
    figure = viz.MoleculePicture(
        make_trace(couplings(classes=classes), label=0, class_names=names), medium=medium
    ).figure
    figure.canvas.draw()
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside, (text.get_text(), box)


def test_without_bonds_or_an_edge_to_each_class_there_is_no_such_picture():
    trace = make_trace()
    for other in (dataclasses.replace(trace, bonds=None), dataclasses.replace(trace, src=trace.src[::-1] * 0)):
        with pytest.raises(InputError, match="trace: expected bonds among children that have an edge to each parent"):
            viz.MoleculePicture(other)


# graphcaps viz


@pytest.fixture
def file(tmp_path):
    make_trace().save(tmp_path / "graph-0.npz")
    return tmp_path / "graph-0.npz"


@pytest.mark.parametrize("format", ["gif", "svg"])
def test_viz_draws_a_file_with_bonds_into_a_folder_beside_it(file, format, capsys):
    assert main(["viz", str(file), "--what", "molecule", "--format", format]) == 0
    path = file.parent / "figures-graph-0" / f"molecule.{format}"
    assert capsys.readouterr().out == f"{path}\n" and list(path.parent.iterdir()) == [path]
    if format == "gif":
        film = Image.open(path)
        assert film.size == (720, 400) and film.n_frames == 2 * 5 + 1

    if format == "svg":  # after the 3 iterations of training, not all 4
        assert ">graph 0, after 3 iterations<" in path.read_text()


@pytest.mark.parametrize(("label", "answer"), [(0, "safe, answered wrong"), (1, "mutagenic, answered right")])
def test_a_still_names_its_class_and_answer(label, answer, tmp_path):
    lengths = np.float32([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]])[None, :, None]
    (path,) = viz.draw(make_trace(label=label, lengths=lengths), tmp_path, what="molecule", format="svg")
    for phrase in (f"true class: {answer}", "to a class, not importance"):
        assert f">{phrase}<" in path.read_text(), phrase
