"""Pictures of graphs show what the trace holds, and molecules look like molecules."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from graphcaps import viz
from graphcaps.cli import main
from graphcaps.errors import InputError
from graphcaps.trace.graph_trace import TracedGraph
from graphcaps.viz import style
from graphcaps.viz.routing.layout import places

from .molecules import BONDS, NAMES, TAGS, couplings, make_trace, molecule

MUTAG = next(
    (p for k in (1, 2) if (p := Path(__file__).parents[k] / "../shared/data/tu/MUTAG/MUTAG.txt").exists()),
    Path("/nowhere"),
)


def words(figure):
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


# Where nodes stand


def lengths_of(at, bonds):
    return np.linalg.norm(at[[i for i, _ in bonds]] - at[[j for _, j in bonds]], axis=1)


def crossings(at, bonds):
    """Pairs of bonds without a common node whose lines cross."""

    def side(a, b, c):
        return np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    found = 0
    for (i, j), (k, m) in itertools.combinations(bonds, 2):
        if len({i, j, k, m}) == 4:
            a, b, c, d = at[[i, j, k, m]]
            found += side(a, b, c) != side(a, b, d) and side(c, d, a) != side(c, d, b)
    return found


@pytest.mark.parametrize("size", [3, 5, 6, 8])
def test_a_ring_is_a_regular_polygon(size):
    ring = [(k, (k + 1) % size) for k in range(size)]
    at = places(size, np.array(ring))
    assert lengths_of(at, ring) == pytest.approx(1, abs=1e-3)
    radius = np.linalg.norm(at - at.mean(axis=0), axis=1)
    assert radius == pytest.approx(0.5 / np.sin(np.pi / size), abs=1e-3)


def test_rings_that_share_a_bond_stay_regular_and_others_turn_away():
    naphthalene = [(k, (k + 1) % 10) for k in range(10)] + [(0, 5)]
    at = places(10, np.array(naphthalene))
    assert lengths_of(at, naphthalene) == pytest.approx(1, abs=0.02) and crossings(at, naphthalene) == 0
    six = at[[0, 1, 2, 3, 4, 5]]
    assert np.linalg.norm(six - six.mean(axis=0), axis=1) == pytest.approx(1, abs=0.03)


def test_two_rings_on_a_bond_are_not_twisted():
    biphenyl = [(k, (k + 1) % 6) for k in range(6)] + [(6 + k, 6 + (k + 1) % 6) for k in range(6)] + [(0, 6)]
    at = places(12, np.array(biphenyl))
    assert lengths_of(at, biphenyl) == pytest.approx(1, abs=0.05) and crossings(at, biphenyl) == 0
    width, height = at.max(axis=0) - at.min(axis=0)
    assert width > 2 * height  # level


TWISTED_AT_FIRST = (
    "0-1 0-5 1-2 2-3 2-18 3-4 4-5 5-6 6-7 6-11 7-8 8-9 9-10 9-15 10-11 10-12 12-13 12-14 15-16 15-17 18-19 18-20"
)


def test_a_ring_that_is_twisted_from_the_first_start_is_not_from_another():
    bonds = [tuple(map(int, bond.split("-"))) for bond in TWISTED_AT_FIRST.split()]
    at = places(21, np.array(bonds))
    assert lengths_of(at, bonds) == pytest.approx(1, abs=0.1) and crossings(at, bonds) == 0


def test_bonds_at_a_ring_stand_at_120_degrees():
    at = places(9, np.array(BONDS))
    for middle, (left, right) in {0: (1, 5), 6: (7, 8)}.items():
        ends = at[[left, right]] - at[middle]
        cosine = ends[0] @ ends[1] / np.prod(np.linalg.norm(ends, axis=1))
        assert np.degrees(np.arccos(cosine)) == pytest.approx(120, abs=4)


def test_the_same_graph_stands_the_same():
    assert np.array_equal(places(9, np.array(BONDS)), places(9, np.array(BONDS)))


@pytest.mark.parametrize(
    ("nodes", "bonds"),
    [(1, []), (5, []), (9, [(0, 1), (1, 2), (4, 5), (5, 6), (6, 4)]), (5, itertools.combinations(range(5), 2))],
)
def test_parts_stand_apart(nodes, bonds):
    at = places(nodes, np.array(list(bonds), int).reshape(-1, 2))
    apart = np.linalg.norm(at[:, None] - at, axis=2) + 9 * np.eye(nodes)
    assert at.shape == (nodes, 2) and np.isfinite(at).all() and apart.min() > 0.6


@pytest.mark.skipif(not MUTAG.exists(), reason="no MUTAG in ../shared/data/tu")
def test_real_molecules_have_equal_bonds_that_do_not_cross():
    lines = iter(MUTAG.read_text().splitlines())
    sizes = []
    for _ in range(min(60, int(next(lines)))):
        nodes = int(next(lines).split()[0])
        rows = [list(map(int, next(lines).split())) for _ in range(nodes)]
        bonds = sorted({tuple(sorted((i, j))) for i, row in enumerate(rows) for j in row[2:]})
        if len(sizes) % 6 == 0:
            at = places(nodes, np.array(bonds))
            assert lengths_of(at, bonds) == pytest.approx(1, abs=0.15) and crossings(at, bonds) == 0
        sizes.append(nodes)
    assert max(sizes) > 20


# What is drawn


def test_a_node_has_the_colour_of_its_largest_coupling_as_strong_as_it_is_decided():
    c = couplings(classes=3)
    picture = viz.MoleculePicture(make_trace(molecule(c=c), class_names=("a", "b", "c")))
    assert picture.full == pytest.approx(c.max())
    for step in range(4):
        picture.show(step)
        for node, shown in zip(c[step], picture.nodes.get_facecolors(), strict=True):
            strength = (node.max() - 1 / 3) / (c.max() - 1 / 3)
            wanted = 1 - strength * (1 - np.array(style.color(node.argmax())))
            assert shown == pytest.approx([*wanted, 1], abs=1e-6)


def test_undecided_nodes_are_white_and_noise_is_not_zoomed_into():
    picture = viz.MoleculePicture(make_trace(molecule(c=couplings(speed=1e-6))))
    assert picture.nodes.get_facecolors() == pytest.approx(1, abs=1e-3)
    assert picture.full == pytest.approx(0.51)


def test_between_iterations_colours_and_bars_are_between():
    trace = make_trace()
    picture = viz.MoleculePicture(trace)
    picture.show(1.5)
    lengths = trace.graphs[0].lengths
    assert [bar.get_width() for bar in picture.bars] == pytest.approx((lengths[1] + lengths[2]) / 2)
    assert "iteration 2 → 3 of 3" in words(picture.figure)


def test_bars_are_as_long_as_the_class_capsules_and_the_longest_is_bold():
    trace = make_trace()
    picture = viz.MoleculePicture(trace)
    last = trace.graphs[0].lengths[-1]
    assert [bar.get_width() for bar in picture.bars] == pytest.approx(last)
    bold = [text.get_text() for text in picture.figure.findobj(matplotlib.text.Text) if text.get_weight() == "bold"]
    assert f"{last.max():.2f}" in bold and f"{last.min():.2f}" not in bold


def test_letters_are_the_names_of_the_tags_and_each_stands_on_its_node():
    picture = viz.MoleculePicture(make_trace())
    assert [text.get_text() for text in picture.letters] == [NAMES[tag] for tag in TAGS]
    assert [text.get_position() for text in picture.letters] == [tuple(at) for at in picture.nodes.get_offsets()]
    assert viz.MoleculePicture(make_trace(tag_names=())).letters == []


def test_every_bond_of_the_graph_is_drawn_and_no_other():
    picture = viz.MoleculePicture(make_trace())
    (bonds,) = picture.figure.findobj(matplotlib.collections.LineCollection)
    at = picture.nodes.get_offsets()
    drawn = {tuple(sorted(int(np.abs(at - end).sum(1).argmin()) for end in line)) for line in bonds.get_segments()}
    assert drawn == {tuple(sorted(bond)) for bond in BONDS} and len(bonds.get_segments()) == len(BONDS)


def test_words_say_which_graph_its_class_and_where_training_ends():
    picture = viz.MoleculePicture(make_trace(molecule(), molecule(label=None)), 0)
    assert "made up, graph 0, true class: mutagenic" in words(picture.figure)
    assert "beyond the 3 iterations of training" in words(picture.figure)
    picture.show(2)
    assert "beyond" not in words(picture.figure)
    assert "true class" not in words(viz.MoleculePicture(make_trace(molecule(label=None))).figure)


def test_without_lengths_the_classes_are_named_and_have_no_bars():
    picture = viz.MoleculePicture(make_trace(molecule(lengths=None)))
    assert picture.bars == [] and "safe" in words(picture.figure) and "length" not in words(picture.figure)


@pytest.mark.parametrize("medium", [style.SCREEN, style.COLUMN], ids=["screen", "column"])
@pytest.mark.parametrize("classes", [1, 2, 12])
def test_nothing_reaches_over_the_edge(medium, classes):
    names = [f"a class with a long name {k}" for k in range(classes)]
    trace = make_trace(molecule(c=couplings(classes=classes), label=0), class_names=names)
    figure = viz.MoleculePicture(trace, medium=medium).figure
    figure.canvas.draw()
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside, (text.get_text(), box)


@pytest.mark.parametrize("graph", [1, -1, True, 0.0])
def test_a_graph_that_the_trace_has_not_is_named(graph):
    with pytest.raises(InputError) as caught:
        viz.MoleculePicture(make_trace(), graph)
    assert str(caught.value) == f"image: expected a graph of the trace, 0 to 0, got {graph!r}"


# graphcaps viz


@pytest.fixture
def folder(tmp_path):
    other = TracedGraph.of([0, 1], [(0, 1)], couplings(nodes=2), label=0)
    trace = make_trace(molecule(), vars(other))
    trace.save(tmp_path / "graphs.npz")
    return tmp_path


@pytest.mark.parametrize("format", ["gif", "png", "svg", "pdf"])
def test_viz_draws_a_folder_of_graphs(folder, format, capsys):
    assert main(["viz", str(folder), "--format", format]) == 0
    path = folder / "figures" / f"molecule-0.{format}"
    assert capsys.readouterr().out == f"{path}\n" and list(path.parent.iterdir()) == [path]
    if format == "gif":
        film = Image.open(path)
        assert film.size == (720, 400) and film.n_frames == 3 * 5 + 1
    if format == "png":
        assert Image.open(path).width == 1020
        picture = viz.MoleculePicture(make_trace(), medium=style.COLUMN)
        picture.show(2)
        shown = np.asarray(Image.open(path).convert("RGB"))
        assert (shown == _pixels(picture)).mean() > 0.999  # after the 3 iterations of training, not all 4
    if format == "svg":
        assert ">C<" in path.read_text() or "C</text>" in path.read_text()


def _pixels(picture):
    """(H, W, 3) of a picture as a PNG has it."""
    file = io.BytesIO()
    with style.applied(style.COLUMN):
        picture.figure.savefig(file, dpi=300)
    return np.asarray(Image.open(file).convert("RGB"))


def test_the_image_picks_the_graph_and_names_the_file(folder, tmp_path):
    for k in (0, 1):
        assert main(["viz", str(folder), "--format", "svg", "--image", str(k), "--to", str(tmp_path / "to")]) == 0
    first, second = ((tmp_path / "to" / f"molecule-{k}.svg").read_text() for k in (0, 1))
    assert first.count("</text>") - second.count("</text>") == 9  # nine letters and two lengths, two letters
    again = viz.draw_graph(make_trace(), tmp_path / "again", format="svg").read_text()
    assert again == first


@pytest.mark.parametrize(("label", "said"), [(0, "safe, answered wrong"), (1, "mutagenic, answered right")])
def test_a_still_names_its_graph_class_answer_and_iteration(label, said, tmp_path):
    lengths = [[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]]  # the answer is that after the 3 iterations of training
    trace = make_trace(molecule(), molecule(lengths=lengths, label=label))
    text = viz.draw_graph(trace, tmp_path, format="svg", image=1).read_text()
    for words in ("graph 1, after 3 iterations", f"true class: {said}", "to a class, not importance"):
        assert f">{words}<" in text, words


def test_a_still_of_a_graph_of_unknown_class_or_lengths_claims_no_answer(tmp_path):
    for missing in ({"label": None}, {"lengths": None}):
        assert "answered" not in viz.draw_graph(make_trace(molecule(**missing)), tmp_path, format="svg").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--image", "2"], "image: expected a graph of the trace, 0 to 1, got 2"),
        (["--format", "html"], "format: expected gif, mp4, png, svg or pdf for graphs, got 'html'"),
        (
            ["--what", "entropy"],
            "what: expected all for a folder of graphs (there is one picture of each), got entropy\n",
        ),
        (
            ["--over", "epochs"],
            "over: expected both for a folder of graphs (there is one picture of each), got epochs\n",
        ),
    ],
)
def test_what_graphs_have_not_is_answered_in_words_and_makes_no_folder(folder, words, text, capsys):
    assert main(["viz", str(folder), *words, "--to", str(folder / "to")]) == 2
    assert not (folder / "to").exists()
    assert capsys.readouterr().err.startswith(f"graphcaps: {text}")


def test_drawing_needs_neither_torch_nor_dgl(folder):
    code = (
        "import sys; from graphcaps.cli import main; "
        f"main(['viz', {str(folder)!r}, '--format', 'png']); print(sorted({{'torch', 'dgl'}} & set(sys.modules)))"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert seen.stdout.splitlines()[-1] == "[]", seen.stderr
