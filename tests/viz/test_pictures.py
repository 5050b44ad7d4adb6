"""Pictures show what the trace holds: widths, lines, bars and counts are read back from the drawn artists."""

import dataclasses
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image
from traces import drawn_texts, entropy_by_hand, make_trace, with_pictures, words

from graphcaps import viz
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.viz import style

PICTURES = (viz.EntropyPicture, viz.GraphPicture)


@pytest.fixture(scope="module")
def trace():
    return with_pictures(make_trace())


# float16 couplings of a child sum to 1 within 5e-4; the picture divides by that sum, the sum by hand does not.
ROUNDED = {"abs": 2e-3}


def test_the_entropy_line_is_the_mean_over_children_of_the_traces_entropies(trace):
    picture = viz.EntropyPicture(trace, image=1)
    wanted = [entropy_by_hand(trace, trace.c[-1, r, 1])[0] for r in range(3)]
    assert picture.curves.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert picture.curves.mean.get_xdata() == pytest.approx(range(1, 4))
    picture = viz.EntropyPicture(trace, over="epochs")  # after the iterations of training
    wanted = [entropy_by_hand(trace, trace.c[k, 2, 0])[0] for k in range(3)]
    assert picture.curves.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert [label.get_text() for label in picture.figure.axes[0].get_xticklabels()] == ["0", "2", "6"]


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_end_on_the_networks_answer_though_a_trace_goes_on(trace, kind):
    assert trace.num_iterations == 10
    picture = kind(trace)
    assert picture.timeline.frames()[-1].position == picture.timeline.end == 2
    assert (picture.timeline.c == trace.c[-1, :3, 0]).all()
    assert "iteration 3 of 3" in words(picture.figure).lower()


@pytest.mark.parametrize("over", ["iterations", "epochs"])
def test_line_widths_and_opacities_grow_linearly_with_the_couplings_of_the_trace(trace, over):
    picture = viz.GraphPicture(trace, over=over)
    (panel,) = picture.panels
    states = (trace.c[-1, :3, 0] if over == "iterations" else trace.c[:, 2, 0]).astype(np.float64)
    for step, state in enumerate(states):
        picture.show(step)
        c = state[panel.edges]
        assert panel.lines.get_linewidths() == pytest.approx(panel.width(0) + (panel.width(1) - panel.width(0)) * c)
        assert panel.lines.get_colors()[:, 3] == pytest.approx(0.12 + 0.83 * c)


def test_children_without_a_choice_are_not_counted():
    one_each = make_trace(2, 2, edges=([0, 1], [0, 1]))
    one_chooses = make_trace(3, 2, edges=([0, 1, 2, 2], [0, 1, 0, 1]), speed=1)
    assert "One parent for each child: nothing to choose" in words(viz.GraphPicture(one_each).figure)
    assert "1 child chooses" in words(viz.GraphPicture(one_chooses).figure)
    assert "All children are undecided" in words(viz.GraphPicture(make_trace(4, 10, speed=0)).figure)


def test_each_line_joins_its_child_to_its_parent_in_the_parents_colour(trace):
    picture = viz.GraphPicture(trace, show_all=True)
    (panel,) = picture.panels
    starts = {}
    for edge, path, rgba in zip(panel.edges, panel.lines.get_segments(), panel.lines.get_colors(), strict=True):
        frame = panel.frames[trace.dst[edge]].get_bbox()
        assert path[-1] == pytest.approx((frame.x0 - 2, (frame.y0 + frame.y1) / 2))
        assert tuple(rgba[:3]) == pytest.approx(viz.color(trace.dst[edge]))
        starts.setdefault(trace.src[edge], set()).add(tuple(path[0]))
    assert all(len(places) == 1 for places in starts.values()) and len(set.union(*starts.values())) == 16


def test_undecided_children_and_parents_that_none_chooses_are_folded_with_their_number():
    """Children 0 to 5 choose parent 2 or 7, the other ten are undecided; parent 2 is longest, 7 second."""
    goal = np.array([2, 2, 2, 2, 7, 7])
    c = np.full((16, 10), 0.1)
    c[:6] = 0.04
    c[np.arange(6), goal] = 0.64
    plain = make_trace(16, 10, iterations=1, images=1, epochs=(1,), trained_iterations=1)
    lengths = np.full(10, 0.2)
    lengths[[2, 7]] = 0.9, 0.8
    settled = dataclasses.replace(
        plain, c=c.reshape(plain.c.shape).astype(np.float16), lengths=lengths.reshape(plain.lengths.shape)
    )
    picture = viz.GraphPicture(settled)
    assert sorted(picture.chosen.children) == list(range(6)) and picture.chosen.parents.tolist() == [2, 7]
    shown = words(picture.figure)
    assert "+ 10 that stay undecided" in shown and "4 children choose parent 2, 2 choose parent 7" in shown
    assert "parent 2\n0.90" in shown and "parent 7\n0.80" in shown
    assert [bar.get_height() / bar.get_width() for bar in picture.panels[0].bars] == pytest.approx([-0.9, -0.8])
    everything = viz.GraphPicture(settled, show_all=True)
    assert len(everything.panels[0].edges) == 160 and "+" not in words(everything.figure)


@pytest.mark.parametrize("channels", [1, 3])
def test_children_and_parents_are_drawn_as_their_decoded_images(trace, channels):
    draw = np.random.default_rng(3)
    votes = draw.integers(0, 256, (2, 16, channels, 12, 12), np.uint8)
    parents = draw.integers(0, 256, (2, 3, 10, channels, 12, 12), np.uint8)
    seen = {"images": np.repeat(trace.images, channels, axis=1), "reconstructions": None}
    seen = dataclasses.replace(trace, **seen, decoded_votes=votes, decoded_parents=parents)
    picture = viz.GraphPicture(seen, image=1)
    for step in (0, 2):
        picture.show(step)
        drawn = [np.asarray(image.get_array()) for image in picture.figure.axes[0].images]
        wanted = [votes[1, i] for i in picture.chosen.children] + [parents[1, step, j] for j in picture.chosen.parents]
        wanted = [style.displayed(image) for image in wanted]
        drawn = [image for image in drawn if image.dtype == np.uint8]  # matplotlib would clip other numbers at 1
        assert all(any(np.array_equal(image, want) for image in drawn) for want in wanted)
        c = trace.c[-1, step, 1].astype(float).reshape(16, 10)
        best = trace.c[-1, 2, 1].reshape(16, 10).argmax(axis=1)  # the parent whose vote is drawn
        shown = {image.get_alpha() for image in picture.figure.axes[0].images} - {None}
        assert sorted(shown) == pytest.approx(sorted({np.sqrt(c[i, best[i]]) for i in picture.chosen.children}))


FIELDS = np.array([[2 * y, 2 * x, 5, 5] for y in range(4) for x in range(4)], np.int32)


DECODED = {"decoded_parents": np.full((2, 3, 10, 1, 12, 12), 200, np.uint8)}


@pytest.mark.parametrize("seen", [{}, {"saliency": None, "fields": FIELDS}, DECODED])
def test_equal_couplings_leave_the_image_as_it_is_and_choices_colour_it(trace, seen):
    picture = viz.GraphPicture(dataclasses.replace(trace, **seen), image=1)
    picture.show(0)  # all couplings are equal
    plain = np.repeat(np.moveaxis(trace.images[1], 0, -1), 3, axis=2) / 255
    assert np.asarray(picture.figure.axes[0].images[0].get_array()) == pytest.approx(plain, abs=2e-3)
    picture.show(2)
    assert np.abs(np.asarray(picture.figure.axes[0].images[0].get_array()) - plain).max() > 0.1


def test_a_wrong_answer_is_marked(trace):
    lengths = trace.lengths.copy()
    lengths[-1, 2, 1] = 0.1
    lengths[-1, 2, 1, 4] = 0.9  # image 1 is of class 1
    assert "true label: class 1, answer: class 4" in words(
        viz.GraphPicture(dataclasses.replace(trace, lengths=lengths), image=1).figure
    )


def test_all_of_a_large_graph_is_a_sample_of_children_with_all_their_edges():
    large = make_trace(512, 10, images=2, epochs=(1,), speed=0.5)
    panel = viz.GraphPicture(large, show_all=True).panels[0]
    drawn = np.unique(large.src[panel.edges])
    assert sorted(panel.edges) == np.flatnonzero(np.isin(large.src, drawn)).tolist()
    assert len(panel.edges) == 320 and set(panel.edges) == set(
        viz.GraphPicture(large, show_all=True, image=1).panels[0].edges
    )


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("over, children, use", [("epochs", 16, "film"), ("iterations", 1152, "still")])
def test_text_can_be_read_whole(kind, over, children, use):
    medium = getattr(kind, use)
    names = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
    plain = make_trace(children, 10, images=1, epochs=(0, 4, 10), speed=0.1)
    picture = kind(dataclasses.replace(with_pictures(plain, size=6), class_names=names), over=over, medium=medium)
    width, height = picture.figure.get_size_inches() * picture.figure.dpi
    for position in (0, 0.5, picture.timeline.end):
        picture.show(position)
        texts = drawn_texts(picture.figure)
        for k, (text, size, box) in enumerate(texts):
            assert size >= medium.small >= 7, f"{text!r} is too small"
            assert min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height, f"{text!r} is cut off"
            for other, _, place in texts[:k]:
                apart = box.x0 >= place.x1 or place.x0 >= box.x1 or box.y0 >= place.y1 or place.y0 >= box.y1
                assert apart, f"{text!r} lies over {other!r}"


def test_draw_writes_every_file(tmp_path):
    short = with_pictures(make_trace(3, 2, iterations=1, images=1, epochs=(0, 1), trained_iterations=1))
    folder = tmp_path / "new" / "figures"
    written = viz.draw(short, folder)
    names = ["entropy", "graph"]
    wanted = [*(f"{name}.gif" for name in names), *(f"{name}-epochs.gif" for name in names), "sheet.png"]
    assert [path.name for path in written] == wanted
    assert sorted(path.name for path in folder.glob("[!.]*")) == sorted(wanted)
    with pytest.raises(InputError, match="what: expected one of entropy, .*, sheet, all, got 'graphs'"):
        viz.draw(short, tmp_path / "none", what="graphs")
    assert not (tmp_path / "none").exists()
    for path in viz.draw(short, tmp_path / "stills", what="graph", over="iterations", format="svg"):
        width = float(re.search(rb'width="([\d.]+)pt"', path.read_bytes())[1])
        assert width == pytest.approx(72 * 6.9)  # as wide as a paper, in points


def test_a_saved_figure_is_the_same_file_each_time_and_under_any_settings_of_the_caller(tmp_path):
    for name in ("one", "two"):
        with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": name, "savefig.facecolor": "red"}):
            viz.save(viz.confusion(np.eye(3, dtype=int)), tmp_path / "made" / f"{name}.pdf")
    one, two = sorted((tmp_path / "made").glob("*.pdf"))
    assert one.read_bytes() == two.read_bytes() and one.stat().st_size > 1000


def test_a_gif_is_small_has_every_frame_and_its_last_is_the_figure_as_matplotlib_draws_it(trace, tmp_path):
    path, durations = viz.picture(trace, "graph", tmp_path / "graph.gif"), []
    assert path.stat().st_size < 1_000_000
    picture = viz.GraphPicture(trace)
    picture.figure.canvas.draw()
    whole = np.array(picture.figure.canvas.buffer_rgba())[..., :3]
    with Image.open(path) as gif:
        assert gif.n_frames == len(picture.timeline.frames()) == 1 + 3 + 2 * 4 and gif.info["loop"] == 0
        for frame in range(gif.n_frames):
            gif.seek(frame)
            durations.append(gif.info["duration"])
        shown = np.array(gif.convert("RGB"))
    assert durations[-1] > durations[0] == durations[1] == durations[6] >= 1100 > durations[2]
    assert shown[0, 0].tolist() == [255, 255, 255]
    off = np.abs(shown.astype(int) - whole).max(axis=-1)
    assert off.mean() < 3 and (off > 24).mean() < 0.001  # on a scale to 255: noise has more colours than a palette


def test_mp4_plays_as_long_as_the_gif(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason='mp4 needs pip install -e ".[video]"')
    short = make_trace(4, 3, iterations=3, epochs=(0,))
    (path,) = viz.draw(short, tmp_path, what="entropy", format="mp4")
    _, seconds = ffmpeg.count_frames_and_secs(str(path))
    frames = viz.EntropyPicture(short).timeline.frames()
    assert seconds == pytest.approx(sum(frame.seconds for frame in frames), rel=0.1)


def test_the_sheet_shows_the_reconstructions_of_a_trained_decoder(trace):
    with pytest.raises(InputError, match="trace: expected .*reconstructions"):
        viz.sheet(dataclasses.replace(trace, epochs=trace.epochs - trace.epochs[-1]))
    lengths = np.zeros_like(trace.lengths)
    lengths[-1, 2, 0, 0] = lengths[-1, 2, 1, 7] = 0.9  # labels are 0 and 1
    figure = viz.sheet(dataclasses.replace(trace, lengths=lengths))
    axes = {place.get_label(): place for place in figure.axes}
    assert (axes["reconstruction 1"].images[0].get_array() == trace.reconstructions[1, 0]).all()
    assert words(figure).count("wrong") == 1 and "class 7\nwrong" in words(figure)


def test_a_confusion_matrix_shows_counts_with_true_classes_in_rows():
    figure = viz.confusion(np.array([[8, 2, 0], [0, 9, 1], [0, 0, 10]]), ("ant", "bee", "cow"))
    (axes,) = figure.axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells[(1, 0)] == "2" and cells[(0, 1)] == "0" and cells[(2, 2)] == "10"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ant", "bee", "cow"]
    assert axes.get_ylabel() == "true class" and "27 of 30 images right (90.00 %)" in words(figure)
    assert axes.images[0].get_array().mask.tolist() == np.eye(3, dtype=bool).tolist()


def test_numbers_that_are_not_finite_are_named_and_spoil_no_other_image(trace):
    values = trace.c.copy()
    values[-1, 2, 1, 3] = np.nan
    broken = dataclasses.replace(trace, c=values)
    with pytest.raises(GraphcapsError, match="trace: c of image 1: expected finite .* at iteration 3"):
        viz.GraphPicture(broken, image=1)
    viz.GraphPicture(broken, image=0)


def test_drawing_needs_no_torch_no_dgl_and_no_pyplot(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    code = (
        "import sys; from graphcaps import RoutingTrace, viz\n"
        "assert 'matplotlib' not in sys.modules\n"
        "trace = RoutingTrace.load('trace.npz')\n"
        "viz.draw(trace, '.', what='sheet'), viz.explorer_page(trace), viz.draw(trace, '.', format='png')\n"
        "assert not {'torch', 'dgl', 'matplotlib.pyplot', 'graphcaps.images.models'} & set(sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
