"""Pictures show what the trace holds: widths, lines, bars and counts are read back from the drawn artists."""

import dataclasses
import gc
import math
import re
import subprocess
import sys
import time

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from graphcaps import viz
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.viz import style

from .traces import entropy_by_hand, make_trace, with_pictures

PICTURES = (viz.EntropyPicture, viz.GraphPicture, viz.HistogramPicture)


@pytest.fixture(scope="module")
def trace():
    return with_pictures(make_trace())


def words(figure):
    """All text in a figure."""
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


# float16 couplings of a child sum to 1 within 5e-4; the picture divides by that sum, the sum by hand does not.
ROUNDED = {"abs": 2e-3}


def test_the_entropy_line_is_the_mean_over_children_of_the_traces_entropies(trace):
    picture = viz.EntropyPicture(trace, image=1)
    wanted = [entropy_by_hand(trace, trace.c[-1, r, 1])[0] for r in range(10)]
    assert picture.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert picture.mean.get_xdata() == pytest.approx(range(1, 11))


def test_the_entropy_line_over_epochs_is_taken_after_the_trained_iterations(trace):
    picture = viz.EntropyPicture(trace, over="epochs")
    wanted = [entropy_by_hand(trace, trace.c[k, 2, 0])[0] for k in range(3)]
    assert picture.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert [label.get_text() for label in picture.figure.axes[0].get_xticklabels()] == ["0", "2", "6"]


def test_the_entropy_band_is_one_standard_deviation_wide_on_either_side(trace):
    picture = viz.EntropyPicture(trace)
    low, high = np.split(picture.band.get_xy()[:20, 1], 2)
    spread = [entropy_by_hand(trace, trace.c[-1, r, 0])[1] for r in range(10)]
    assert (high[::-1] - low) / 2 == pytest.approx(spread, **ROUNDED)


def test_the_entropy_line_grows_to_the_position_shown(trace):
    picture = viz.EntropyPicture(trace)
    whole = picture.mean.get_ydata()
    picture.show(2.5)
    assert picture.mean.get_xdata() == pytest.approx([1, 2, 3, 3.5])
    assert picture.mean.get_ydata() == pytest.approx([*whole[:3], (whole[2] + whole[3]) / 2])


def test_uniform_couplings_lie_on_the_uniform_level_in_spite_of_float16():
    picture = viz.EntropyPicture(make_trace(30, 10, epochs=(1,)))
    level = picture.uniform.get_ydata()[0]
    assert level == pytest.approx(math.log(10))
    picture.show(0)
    assert picture.mean.get_ydata() == pytest.approx([level])
    assert "H / ln 10 = 1.000" in words(picture.figure)


def test_the_uniform_level_of_a_sparse_graph_is_the_mean_over_linked_children():
    sparse = make_trace(4, 3, edges=([0, 0, 0, 1, 1, 3, 3], [0, 1, 2, 0, 2, 1, 2]))
    picture = viz.EntropyPicture(sparse)
    assert picture.uniform.get_ydata()[0] == pytest.approx((math.log(3) + math.log(2) + math.log(2)) / 3)
    assert len(picture.children.get_segments()) == 3
    assert picture.mean.get_ydata()[-1] == pytest.approx(entropy_by_hand(sparse, sparse.c[-1, -1, 0])[0], **ROUNDED)


def test_noise_is_not_zoomed_into():
    picture = viz.EntropyPicture(make_trace(60, 10, speed=1e-6))
    low, high = picture.figure.axes[0].get_ylim()
    assert high - low >= 0.01


def test_a_line_per_child_is_drawn_only_where_they_are_few(trace):
    assert len(viz.EntropyPicture(trace).children.get_segments()) == 16
    assert viz.EntropyPicture(make_trace(60, 3)).children is None


def test_iterations_beyond_training_are_named_and_those_of_training_are_not(trace):
    picture = viz.GraphPicture(trace)
    assert "beyond the 3 iterations of training" in words(picture.figure)
    assert "iteration 10, beyond training" in words(picture.figure)
    picture.show(2)
    assert "beyond" not in words(picture.figure) and "the network's answer" in words(picture.figure)
    picture.show(2.5)
    assert "iteration 3 → 4, beyond training" in words(picture.figure) and "answer" not in words(picture.figure)
    assert "beyond" in words(picture.figure)
    assert "beyond" not in words(viz.EntropyPicture(make_trace(trained_iterations=10)).figure)
    assert "beyond" in words(viz.EntropyPicture(trace).figure)


@pytest.mark.parametrize("over", ["iterations", "epochs"])
def test_line_widths_and_opacities_grow_linearly_with_the_couplings_of_the_trace(trace, over):
    picture = viz.GraphPicture(trace, over=over)
    states = trace.c[-1, :, 0] if over == "iterations" else trace.c[:, 2, 0]
    states = states.astype(np.float64)
    for step, state in enumerate(states):
        picture.show(step)
        share = state[picture.edges] / max(0.5, states.max())
        assert picture.lines.get_linewidths() == pytest.approx(0.4 + 4.6 * share)
        assert picture.lines.get_colors()[:, 3] == pytest.approx(0.16 + 0.79 * share)


def test_between_two_iterations_widths_lie_between(trace):
    picture = viz.GraphPicture(trace)
    widths = []
    for position in (3, 3.25, 4):
        picture.show(position)
        widths.append(np.array(picture.lines.get_linewidths()))
    assert widths[1] == pytest.approx(0.75 * widths[0] + 0.25 * widths[2])


def test_each_line_joins_its_child_to_its_parent_in_the_parents_colour(trace):
    picture = viz.GraphPicture(trace)
    nodes = picture.nodes.get_offsets()
    starts = {}
    for edge, path, rgba in zip(picture.edges, picture.lines.get_segments(), picture.lines.get_colors(), strict=True):
        assert path[-1] == pytest.approx(nodes[trace.dst[edge]])
        assert tuple(rgba[:3]) == pytest.approx(viz.color(trace.dst[edge]))
        starts.setdefault(trace.src[edge], set()).add(tuple(path[0]))
    assert all(len(places) == 1 for places in starts.values())
    assert len(set.union(*starts.values())) == 16


def test_bars_are_the_lengths_and_the_longest_parent_is_marked(trace):
    picture = viz.GraphPicture(trace, image=1)
    for step in (0, 9):
        picture.show(step)
        lengths = trace.lengths[-1, step, 1]
        assert [path.get_extents().width for path in picture.bars.get_paths()] == pytest.approx(lengths)
        winner = int(lengths.argmax())
        assert int(np.argmax(picture.nodes.get_linewidths())) == winner
        assert [width > 0 for width in picture.bars.get_linewidths()] == [j == winner for j in range(10)]
        assert f"longest parent: class {winner} ({lengths[winner]:.2f})" in words(picture.figure)
    assert "true label: class 1" in words(picture.figure)


def test_the_untrained_network_crowns_nobody(trace):
    picture = viz.GraphPicture(trace, over="epochs")
    assert max(picture.nodes.get_linewidths()) > 0
    picture.show(0)
    assert max(picture.nodes.get_linewidths()) == max(picture.bars.get_linewidths()) == 0
    assert "untrained" in words(picture.figure) and "longest" not in words(picture.figure)


@pytest.mark.parametrize("medium", [style.SCREEN, style.COLUMN])
def test_a_wrong_answer_is_marked(trace, medium):
    lengths = trace.lengths.copy()
    lengths[-1, :, 1] = 0.1
    lengths[-1, 2:, 1, 1] = lengths[-1, :2, 1, 4] = 0.9  # image 1 is of class 1
    picture = viz.GraphPicture(dataclasses.replace(trace, lengths=lengths), image=1, medium=medium)
    for step, wrong in ((1, True), (2, False)):
        picture.show(step)
        shown = re.split(r"\s+", next(text for text in words(picture.figure).split(" | ") if "true label" in text))
        assert " ".join(shown) == "true label: class 1" + " longest: class 4 wrong" * wrong


def test_short_parents_can_be_told_apart():
    faint = make_trace(4, 3)
    faint = dataclasses.replace(faint, lengths=faint.lengths / 100)
    picture = viz.GraphPicture(faint)
    for length in faint.lengths[-1, -1, 0]:
        assert f"{length:.3f}" in words(picture.figure)
    end = picture.figure.axes[-1].get_xlim()[1]
    assert 1 < end / faint.lengths[-1, :, 0].max() < 4


def test_a_large_graph_shows_the_strongest_couplings_of_the_answer_and_says_how_many():
    large = make_trace(1152, 10, images=1, epochs=(1,), iterations=5)
    picture = viz.GraphPicture(large, top=250)
    answer, last = large.c[-1, 2, 0], large.c[-1, -1, 0]
    assert len(picture.lines.get_segments()) == len(set(picture.edges)) == 250
    assert answer[picture.edges].min() >= np.delete(answer, picture.edges).max()
    assert last[picture.edges].min() < np.delete(last, picture.edges).max()
    assert "the 250 strongest of 11,520 lines\nof iteration 3, in every frame" in words(picture.figure)
    assert "strongest" not in words(viz.GraphPicture(make_trace()).figure)


def test_a_still_says_how_far_the_strongest_coupling_is_from_undecided(trace):
    picture = viz.GraphPicture(trace.up_to_training(), medium=style.COLUMN)
    assert f"undecided 0.100, strongest {trace.c[-1, 2, 0].max():.3f}" in words(picture.figure)
    sparse = make_trace(4, 3, edges=([0, 0, 0, 1, 1, 3, 3], [0, 1, 2, 0, 2, 1, 2]))
    said = words(viz.GraphPicture(sparse, medium=style.COLUMN).figure)
    assert "strongest" in said and "undecided" not in said


def test_where_couplings_hardly_move_nobody_is_said_to_choose(trace):
    still = viz.GraphPicture(make_trace(60, 10, speed=0.0001))
    still.show(2)
    assert "Couplings, iteration 3 of 3: nearly equal" in words(still.figure)
    assert "entropy 100.0% of undecided" in words(still.figure)
    picture = viz.GraphPicture(make_trace(60, 10, speed=1.0))
    picture.show(0)  # equal here too, but this is how the choice begins
    assert "Children choose parents: iteration 1 of 3" in words(picture.figure)


def test_an_answer_that_hardly_moved_is_called_so_and_what_follows_is_not():
    late = make_trace(60, 10, iterations=10, speed=0.01)
    picture = viz.GraphPicture(late)
    shares = [entropy_by_hand(late, c)[0] / math.log(10) for c in late.c[-1, :, 0]]
    assert shares[2] > 0.99 > shares[9]
    for step, share in enumerate(shares):
        picture.show(step)
        assert "Couplings, iteration" in words(picture.figure)
        assert ("nearly equal" in words(picture.figure)) == (share > 0.99)


def test_histogram_counts_are_those_of_the_trace_and_sum_to_the_edges(trace):
    picture = viz.HistogramPicture(trace)
    to_winner = trace.dst == trace.lengths[-1, 2, 0].argmax()
    for step in (0, 4, 9):
        picture.show(step)
        c = trace.c[-1, step, 0].astype(np.float64)
        for bars, chosen in ((picture.bars, c), (picture.winner_bars, c[to_winner])):
            heights = [bar.get_height() for bar in bars]
            assert sum(heights) == len(chosen)
            ends = [bar.get_x() for bar in bars][1:]
            assert heights == np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=len(bars)).tolist()


def test_the_histogram_marks_one_over_the_number_of_edges(trace):
    marked = [line.get_xdata()[0] for line in viz.HistogramPicture(trace).uniform]
    assert marked == pytest.approx([1 / 10])
    sparse = make_trace(4, 3, edges=([0, 0, 0, 1, 1, 3], [0, 1, 2, 0, 2, 1]))
    marked = [line.get_xdata()[0] for line in viz.HistogramPicture(sparse).uniform]
    assert sorted(marked) == pytest.approx([1 / 3, 1 / 2, 1])


def test_a_class_has_one_colour_in_every_picture(trace):
    graph, histogram = viz.GraphPicture(trace), viz.HistogramPicture(trace)
    winner = int(trace.lengths[-1, 2, 0].argmax())
    for j in range(10):
        assert tuple(graph.bars.get_facecolors()[j, :3]) == pytest.approx(viz.color(j))
        assert tuple(graph.nodes.get_facecolors()[j, :3]) == pytest.approx(viz.color(j))
    assert histogram.winner_bars[0].get_facecolor()[:3] == pytest.approx(viz.color(winner))
    assert len({viz.color(j) for j in range(30)}) == 30
    line = viz.EntropyPicture(trace).mean.get_color()
    assert min(math.dist(to_rgb(line), viz.color(j)) for j in range(10)) > 0.3


def test_colours_stand_out_from_paper_and_from_each_other():
    """By the contrast of WCAG 2.2, and in Oklab, as eyes see them and as those without red or green cones do."""

    def linear(color):
        value = np.array(color)
        return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)

    def oklab(light):  # Ottosson 2020
        to_cones = [
            [0.4122215, 0.5363325, 0.0514460],
            [0.2119035, 0.6806995, 0.1073970],
            [0.0883025, 0.2817188, 0.6299787],
        ]
        to_lab = [
            [0.2104543, 0.7936178, -0.0040720],
            [1.9779985, -2.4285922, 0.4505937],
            [0.0259040, 0.7827718, -0.8086758],
        ]
        return np.cbrt(np.clip(light, 0, 1) @ np.transpose(to_cones)) @ np.transpose(to_lab)

    for j in range(30):
        assert 1.05 / (linear(viz.color(j)) @ [0.2126, 0.7152, 0.0722] + 0.05) >= 3
    ten = linear([viz.color(j) for j in range(10)])
    # Machado, Oliveira & Fernandes 2009, severity 1
    protan = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    deutan = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    for seen, least in ((np.eye(3), 0.133), (protan, 0.088), (deutan, 0.089)):
        lab = oklab(ten @ np.transpose(seen))
        apart = np.linalg.norm(lab[:, None] - lab, axis=-1)
        assert apart[np.triu_indices(10, 1)].min() > least


@pytest.mark.parametrize("kind", PICTURES)
def test_titles_say_the_iteration_or_the_epoch(trace, kind):
    picture = kind(trace)
    assert "iteration 10, beyond training" in words(picture.figure)
    picture.show(1)
    assert "iteration 2 of 3" in words(picture.figure)
    picture.show(1.5)
    assert "iteration 2 → 3 of 3" in words(picture.figure)
    assert "iteration 10 of 10" in words(kind(dataclasses.replace(trace, trained_iterations=10)).figure)
    picture = kind(trace, over="epochs")
    picture.show(1)
    assert "epoch 2 of 6 - after 3 iterations" in words(picture.figure)


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("children, parents, iterations", [(3, 2, 5), (5, 1, 4), (1, 1, 1), (20, 43, 3), (1, 4, 2)])
def test_all_sizes_can_be_drawn(kind, children, parents, iterations):
    small = make_trace(children, parents, iterations=iterations, images=1, epochs=(0,))
    picture = kind(small)
    for frame in picture.timeline.frames()[:3]:
        picture.show(frame.position)
        picture.figure.canvas.draw()


def drawn_texts(figure):
    """Every text that is drawn, with the pixels it covers."""
    figure.canvas.draw()
    beyond = set()
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text not in beyond]
    return [(text.get_text(), text.get_size(), text.get_window_extent()) for text in texts if text.get_text()]


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("over", ["iterations", "epochs"])
@pytest.mark.parametrize("medium", [style.SCREEN, style.COLUMN], ids=["screen", "column"])
@pytest.mark.parametrize("children, speed", [(16, 0.1), (1152, 0.1), (1152, 0.0001)])
def test_text_can_be_read_whole(kind, over, medium, children, speed):
    names = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    long = dataclasses.replace(
        with_pictures(make_trace(children, 10, images=1, epochs=(0, 4, 10), speed=speed), size=6), class_names=names
    )
    picture = kind(long, over=over, medium=medium)
    width, height = picture.figure.get_size_inches() * picture.figure.dpi
    for position in (0, 0.5, picture.timeline.answer, picture.timeline.end):
        picture.show(position)
        texts = drawn_texts(picture.figure)
        for k, (text, size, box) in enumerate(texts):
            assert size >= medium.small >= 7, f"{text!r} is too small"
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{text!r} is cut off"
            for other, _, place in texts[:k]:
                apart = box.x0 >= place.x1 or place.x0 >= box.x1 or box.y0 >= place.y1 or place.y0 >= box.y1
                assert apart, f"{text!r} lies over {other!r}"


def test_draw_writes_every_file_and_reports_each(trace, tmp_path):
    short = with_pictures(make_trace(6, 3, iterations=1, images=1, epochs=(0, 1), trained_iterations=1))
    told = []
    written = viz.draw(short, tmp_path / "new" / "figures", on_written=lambda path: told.append((path, path.exists())))
    moving = ["entropy.gif", "graph.gif", "histogram.gif"]
    over_epochs = ["entropy-epochs.gif", "graph-epochs.gif", "histogram-epochs.gif"]
    assert [path.name for path in written] == [*moving, *over_epochs, "sheet.png"]
    assert told == [(path, True) for path in written]
    assert sorted(path.name for path in (tmp_path / "new" / "figures").iterdir()) == sorted(p.name for p in written)


@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_a_saved_figure_is_the_same_file_each_time_and_whatever_the_callers_settings(tmp_path, format):
    for name in ("one", "two"):
        with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": name, "savefig.facecolor": "red"}):
            viz.save(viz.confusion(np.eye(3, dtype=int)), tmp_path / "made" / f"{name}.{format}")
    one, two = sorted((tmp_path / "made").iterdir())
    assert one.read_bytes() == two.read_bytes() and one.stat().st_size > 1000


@pytest.mark.parametrize("format", ["svg", *(pytest.param(name, marks=pytest.mark.long) for name in ("png", "pdf"))])
def test_stills_are_made_for_a_column_of_a_paper(tmp_path, format):
    short = with_pictures(make_trace(6, 3, iterations=4, images=1, epochs=(0, 1), history={"val_loss": [1.0, 0.5]}))
    written = viz.draw(short, tmp_path, format=format)
    names = ["entropy", "graph", "histogram", "entropy-epochs", "sheet"]  # over epochs the others end with that answer
    assert [path.name for path in written] == [f"{name}.{format}" for name in names]
    for path in written:
        inches = 9 if path.stem == "sheet" else 3.4
        if format == "png":
            with Image.open(path) as image:
                assert image.width / image.info["dpi"][0] == pytest.approx(inches, rel=1e-3)
        else:
            size = {"svg": rb'width="([\d.]+)pt"', "pdf": rb"/MediaBox \[ 0 0 ([\d.]+) "}[format]
            assert float(re.search(size, path.read_bytes())[1]) == pytest.approx(72 * inches)
    again = viz.draw(short, tmp_path / "again", format=format)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_the_text_of_vector_pictures_is_text(trace, tmp_path):
    (svg,) = viz.draw(trace, tmp_path, what="graph", over="iterations", format="svg")
    said = re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())
    lengths = trace.lengths[-1, 2, 0]
    assert {"class 0", "coupling c", f"{lengths.max():.2f}", f"{lengths.min():.2f}"} <= set(said)
    (pdf,) = viz.draw(trace, tmp_path, what="graph", over="iterations", format="pdf")
    assert b"/FontFile2" in pdf.read_bytes() and b"/Type3" not in pdf.read_bytes()


@pytest.mark.parametrize("what", ["graph", "histogram", "entropy"])
def test_a_still_is_the_networks_answer_and_of_entropy_the_whole_curve(trace, tmp_path, what):
    beyond = dataclasses.replace(trace, trained_iterations=3)
    cut = {name: getattr(trace, name)[:, :3] for name in ("b", "c", "agreement", "lengths")}
    files = [
        viz.draw(some, tmp_path / name, what=what, over="iterations", format="svg")[0].read_bytes()
        for name, some in (("beyond", beyond), ("cut", dataclasses.replace(beyond, **cut)))
    ]
    assert (files[0] == files[1]) == (what != "entropy")


def test_draw_of_a_trace_without_model_writes_what_it_can(tmp_path):
    bare = make_trace(4, 3, iterations=2, images=1, epochs=(0,), trained_iterations=2)
    assert [path.name for path in viz.draw(bare, tmp_path)] == ["entropy.gif", "graph.gif", "histogram.gif"]
    (only,) = viz.draw(bare, tmp_path, what="graph", over="iterations")
    assert only.name == "graph.gif"


def test_a_gif_has_every_frame_and_stays_under_a_megabyte(trace, tmp_path):
    (path,) = viz.draw(trace, tmp_path, what="graph", over="iterations")
    with Image.open(path) as gif:
        assert gif.n_frames == len(viz.GraphPicture(trace).timeline.frames()) == 10 + 9 * 4
        assert 600 <= gif.width <= 800
        assert gif.info["loop"] == 0
        durations = []
        for frame in range(gif.n_frames):
            gif.seek(frame)
            durations.append(gif.info["duration"])
    answer = 2 * 5  # iteration 3, four frames after each
    assert max(durations) == durations[answer] > durations[-1] > durations[0] > durations[1]
    assert durations.count(durations[answer]) == 1
    assert path.stat().st_size < 1_000_000


def test_a_gif_frame_is_the_figure_as_matplotlib_draws_it(trace, tmp_path):
    from graphcaps.viz.routing.movie import Film, Palette

    picture = viz.GraphPicture(trace)
    film = Film(picture)
    frame = film.pixels(4.0)
    picture.show(4.0)
    picture.figure.canvas.draw()
    whole = np.array(picture.figure.canvas.buffer_rgba())
    assert np.abs(frame.astype(int) - whole).max() <= 64  # where antialiased edges of moving and still parts meet
    assert (frame == whole).mean() > 0.999
    shown = np.array(Palette([frame]).image(frame).convert("RGB"))
    assert shown[0, 0].tolist() == [255, 255, 255]
    off = np.abs(shown.astype(int) - frame[..., :3]).max(axis=-1)
    assert off.mean() < 1 and (off > 24).mean() < 0.001  # of 255; the rarest colours have none of their own


@pytest.mark.long
def test_an_animation_of_160_edges_takes_less_than_5_seconds_of_cpu(trace, tmp_path):
    started = time.process_time()
    viz.draw(trace, tmp_path, what="graph", over="iterations")
    assert time.process_time() - started < 5


def test_mp4_plays_as_long_as_the_gif(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason='mp4 needs pip install -e ".[video]"')
    short = make_trace(4, 3, iterations=3, epochs=(0,))
    (path,) = viz.draw(short, tmp_path, what="histogram", format="mp4")
    assert path.name == "histogram.mp4"
    _, seconds = ffmpeg.count_frames_and_secs(str(path))
    frames = viz.HistogramPicture(short).timeline.frames()
    assert seconds == pytest.approx(sum(frame.seconds for frame in frames), rel=0.1)


def test_mp4_without_ffmpeg_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(GraphcapsError, match=r'expected imageio-ffmpeg.*pip install -e "\.\[video\]"'):
        viz.draw(make_trace(), tmp_path / "none", format="mp4")
    assert not (tmp_path / "none").exists()


def test_the_sheet_shows_the_parts_that_the_trace_holds(trace):
    def places(figure):
        return {axes.get_label().split()[0] for axes in figure.axes}

    assert places(viz.sheet(trace)) == {"loss", "accuracy", "input", "reconstruction", "perturbed"}
    assert places(viz.sheet(dataclasses.replace(trace, perturbed=None))) == {
        "loss",
        "accuracy",
        "input",
        "reconstruction",
    }
    assert places(viz.sheet(dataclasses.replace(trace, history={}, reconstructions=None))) == {"perturbed"}
    assert places(viz.sheet(make_trace(history={"val_loss": [1.0, 0.5]}))) == {"loss"}


def test_the_sheets_curves_and_pictures_are_those_of_the_trace(trace):
    figure = viz.sheet(trace)
    axes = {place.get_label(): place for place in figure.axes}
    (line,) = axes["loss"].lines
    assert line.get_xydata().tolist() == [[1, 0.9], [2, 0.5], [3, 0.3]]
    assert (axes["reconstruction 1"].images[0].get_array() == trace.reconstructions[1, 0]).all()
    mosaic = axes["perturbed 0"].images[0].get_array()
    assert (mosaic[2 * 13 : 2 * 13 + 12, 3 * 13 : 3 * 13 + 12] == trace.perturbed[0, 2, 3, 0]).all()
    assert "changed by −0.25 to +0.25" in words(figure)


def test_the_sheet_says_which_images_are_taken_for_another_class(trace):
    lengths = np.zeros_like(trace.lengths)
    lengths[-1, 2, 0, 0] = lengths[-1, 2, 1, 7] = 0.9  # labels are 0 and 1
    said = words(viz.sheet(dataclasses.replace(trace, lengths=lengths)))
    assert said.count("(wrong)") == 1
    assert "class 7 (wrong)" in said


def test_the_sheet_takes_an_image_of_each_class_first():
    several = make_trace(2, 3, images=12)
    pictured = dataclasses.replace(with_pictures(several), labels=np.array([0] * 10 + [2, 1]))
    inputs = [axes.get_label() for axes in viz.sheet(pictured).axes if axes.get_label().startswith("input")]
    assert inputs[:3] == ["input 0", "input 11", "input 10"]
    assert len(inputs) == 10


def test_colour_images_are_shown_in_colour():
    colour = with_pictures(make_trace(4, 3), channels=3)
    graph, sheet = viz.GraphPicture(colour), viz.sheet(colour)
    assert graph.figure.axes[0].images[0].get_array().shape == (12, 12, 3)
    sheet.canvas.draw()
    places = {axes.get_label(): axes for axes in sheet.axes}
    assert places["perturbed 0"].images[0].get_array().shape == (4 * 13, 5 * 13, 3)


def test_a_confusion_matrix_shows_counts_with_true_classes_in_rows():
    figure = viz.confusion(np.array([[8, 2, 0], [0, 9, 1], [0, 0, 10]]), ("ant", "bee", "cow"))
    (axes,) = figure.axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells[(1, 0)] == "2" and cells[(0, 1)] == "0" and cells[(2, 2)] == "10"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ant", "bee", "cow"]
    assert axes.get_ylabel() == "true class"
    assert "27 of 30 right (90.00 %)" in words(figure)
    errors = axes.images[0].get_array()
    assert errors.mask.tolist() == np.eye(3, dtype=bool).tolist()


@pytest.mark.parametrize(
    "matrix, names, said",
    [
        (np.zeros((2, 3), int), (), r"matrix: expected \(J, J\) counts, got \(2, 3\)"),
        (np.eye(2), (), r"matrix: expected integers >= 0, got float64"),
        (-np.eye(2, dtype=int), (), r"matrix: expected integers >= 0, got int64 from -1"),
        (np.eye(2, dtype=int), ("a",), r"class_names: expected 2 names or none, got 1"),
    ],
)
def test_a_confusion_matrix_that_is_none_is_refused(matrix, names, said):
    with pytest.raises(InputError, match=said):
        viz.confusion(matrix, names)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"what": "graphs"}, r"what: expected entropy, graph, histogram, places, molecule, sheet or all, got 'graphs'"),
        ({"over": "time"}, r"over: expected both, iterations or epochs, got 'time'"),
        ({"format": "avi"}, r"format: expected gif, mp4, png, svg, pdf or html, got 'avi'"),
        ({"image": 2}, r"image: expected an image of the trace, 0 to 1, got 2"),
        ({"image": -1}, r"image: expected an image of the trace, 0 to 1, got -1"),
        ({"top": 0, "what": "graph"}, r"top: expected an integer >= 1, got 0"),
    ],
)
def test_options_that_dont_fit_are_refused_by_name(trace, tmp_path, options, said):
    with pytest.raises(InputError, match=said):
        viz.draw(trace, tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_epochs_of_a_trace_with_one_epoch_are_refused(tmp_path):
    with pytest.raises(InputError, match="over: expected iterations for a trace with one epoch, got 'epochs'"):
        viz.draw(make_trace(epochs=(0,)), tmp_path, over="epochs")


def test_a_sheet_of_a_trace_without_anything_for_it_is_refused(tmp_path):
    with pytest.raises(InputError, match="trace: expected training curves or pictures to draw, got none"):
        viz.draw(make_trace(), tmp_path, what="sheet")


@pytest.mark.parametrize("name", ["c", "lengths"])
def test_numbers_that_are_not_finite_are_named_and_spoil_no_other_image(trace, name):
    values = getattr(trace, name).copy()
    values[-1, 4, 1, 3] = np.nan
    broken = dataclasses.replace(trace, **{name: values})
    with pytest.raises(GraphcapsError, match=f"trace: {name} of image 1: expected finite .* at iteration 5"):
        viz.GraphPicture(broken, image=1)
    viz.GraphPicture(broken, image=0)
    viz.GraphPicture(broken, over="epochs", image=1)


def test_arrays_that_dont_fit_together_are_refused(trace):
    with pytest.raises(InputError, match="trace: lengths"):
        viz.HistogramPicture(dataclasses.replace(trace, lengths=trace.lengths[..., :4]))
    with pytest.raises(InputError, match="trace: expected edges to draw, got none"):
        viz.EntropyPicture(make_trace(3, 2, edges=(np.zeros(0, int), np.zeros(0, int))))


@pytest.mark.parametrize("format", ["png", "html"])
def test_what_is_refused_leaves_no_folder(trace, tmp_path, format):
    with pytest.raises(InputError, match="image: expected"):
        viz.draw(trace, tmp_path / "new" / "figures", image=99, format=format)
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_a_file_is_refused_before_anything_is_drawn(trace, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(GraphcapsError, match=r"folder: expected one that can be written, got .*file: .*Choose another"):
        viz.draw(trace, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_full_disk_leaves_the_old_picture(tmp_path, monkeypatch):
    short = make_trace(4, 3, iterations=2, epochs=(0,))
    (path,) = viz.draw(short, tmp_path, what="entropy")
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(GraphcapsError, match="No space left on device"):
        viz.draw(short, tmp_path, what="entropy")
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["entropy.gif"]


def test_figures_are_freed_and_belong_to_no_window(tmp_path):
    gc.collect()
    before, windows = sum(type(each) is Figure for each in gc.get_objects()), shown()
    for what in ("entropy", "sheet"):
        viz.draw(with_pictures(make_trace(4, 3, images=1, iterations=1, epochs=(0,))), tmp_path, what=what)
    gc.collect()
    assert sum(type(each) is Figure for each in gc.get_objects()) == before
    assert shown() == windows


def shown() -> list[int]:
    """pyplot's figures: other tests' programs may have left some."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot.get_fignums() if pyplot else []


def test_the_callers_matplotlib_settings_are_neither_used_nor_changed(trace):
    with matplotlib.rc_context({"font.size": 40, "axes.spines.top": True}):
        picture = viz.HistogramPicture(trace)
        assert matplotlib.rcParams["font.size"] == 40
    assert {text.get_size() for text in picture.figure.axes[0].get_xticklabels()} == {9}
    assert not picture.figure.axes[0].spines.top.get_visible()


def test_drawing_needs_no_torch_no_dgl_and_no_pyplot(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    code = (
        "import sys; from graphcaps import viz; from graphcaps.trace import RoutingTrace\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"viz.draw(RoutingTrace.load({str(tmp_path / 'trace.npz')!r}), {str(tmp_path)!r}, what='sheet')\n"
        f"viz.draw(RoutingTrace.load({str(tmp_path / 'trace.npz')!r}), {str(tmp_path)!r}, format='html')\n"
        "viz.GraphPicture, viz.EntropyPicture, viz.HistogramPicture, viz.confusion\n"
        "assert not {'torch', 'dgl', 'matplotlib.pyplot', 'graphcaps.models'} & set(sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
