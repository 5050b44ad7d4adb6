"""Pictures show what the trace holds: widths, lines, bars and counts are read back from the drawn artists."""

import dataclasses
import re

import matplotlib
import numpy as np
import pytest
import small
from PIL import Image
from traces import drawn_texts, entropy_by_hand, make_trace, with_pictures, words

from graphcaps import viz
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.images.training.run_folder import Run
from graphcaps.viz import style
from graphcaps.viz.routing.selection import decisions
from graphcaps.viz.routing_trace import RoutingTrace

PICTURES = (viz.EntropyPicture, viz.GraphPicture)


@pytest.fixture(scope="module")
def trace():
    return with_pictures(make_trace())


# float16 couplings of a child sum to 1 within 5e-4; the picture divides by that sum, the sum by hand does not.
ROUNDED = {"abs": 2e-3}


def test_the_entropy_line_is_the_mean_over_children_of_the_traces_entropies(trace):
    picture = viz.EntropyPicture(trace, image=1)
    wanted = [entropy_by_hand(trace, trace.c[-1, r, 1]) for r in range(3)]
    assert picture.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert picture.mean.get_xdata() == pytest.approx(range(3))
    picture = viz.EntropyPicture(trace, over="epochs")  # after the iterations of training
    wanted = [entropy_by_hand(trace, trace.c[k, 2, 0]) for k in range(3)]
    assert picture.mean.get_ydata() == pytest.approx(wanted, **ROUNDED)
    assert [label.get_text() for label in picture.figure.axes[0].get_xticklabels()] == ["0", "2", "6"]


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_end_on_the_networks_answer_though_a_trace_goes_on(trace, kind):
    assert trace.num_iterations == 10
    picture = kind(trace)
    assert picture.timeline.frames()[-1].position == picture.timeline.end == 2
    assert (picture.timeline.c == trace.c[-1, :3, 0]).all()
    assert "iteration 3 of 3" in words(picture.figure).lower()


def test_children_without_a_choice_are_not_counted():
    one_each = make_trace(2, 2, edges=([0, 1], [0, 1]))
    one_chooses = make_trace(3, 2, edges=([0, 1, 2, 2], [0, 1, 0, 1]), speed=1)
    assert "One parent for each child: nothing to choose" in words(viz.GraphPicture(one_each).figure)
    assert "1 child chooses" in words(viz.GraphPicture(one_chooses).figure)
    assert "All children are undecided" in words(viz.GraphPicture(make_trace(4, 10, speed=0)).figure)


def ends(polygons) -> np.ndarray:
    """Heights of ribbons at their strips and at their bars."""
    corners = [path.vertices for path in polygons.get_paths()]
    half = (len(corners[0]) - 1) // 2
    return np.array([(path[2 * half - 1, 1] - path[0, 1], path[half, 1] - path[half - 1, 1]) for path in corners])


@pytest.mark.parametrize("children", [16, 300])
def test_strips_are_cut_into_couplings_and_what_arrives_at_a_bar_is_the_parents_load(children):
    trace = with_pictures(make_trace(children, speed=0.3))
    picture = viz.GraphPicture(trace)
    states, ribbons = trace.c[-1, :3, 0], picture.panels[0].ribbons
    bars = ribbons.bars
    assert np.concatenate(ribbons.strips).tolist() != list(range(children)) and len(ribbons.strips) <= 48
    for step, state in enumerate(states.astype(np.float64).reshape(3, children, 10)):
        picture.show(step)
        means = np.array([state[strip].sum(axis=0) for strip in ribbons.strips]) / children
        wanted = np.array([means[:, bars == bar].sum(axis=1) for bar in range(bars.max() + 1)]).T
        assert ribbons.shares[:, ::2] == pytest.approx(wanted, abs=1e-4) and not ribbons.shares[:, 1::2].any()
        heights = ends(ribbons.ways)
        assert heights[:, 0] == pytest.approx(heights[:, 1], abs=1e-6)  # nothing is lost on the way
        assert np.diff(ribbons.ends).ravel() == pytest.approx(wanted.sum(axis=0) * heights.sum(axis=0)[0], rel=1e-3)
    order = (trace.c[-1, 2, 0] * bars[trace.dst]).astype(float).reshape(children, 10).sum(axis=1)
    assert (np.diff(order[np.concatenate(ribbons.strips)]) >= -1e-3).all()


def settled(lengths: dict[int, float], **about) -> RoutingTrace:
    """Children 0 to 3 choose class 2, 4 and 5 choose 7, child 6 leans to 2, and the other nine are undecided."""
    c = np.full((16, 10), 0.1)
    c[:7] = 0.04
    c[np.arange(7), [2, 2, 2, 2, 7, 7, 2]] = 0.64
    c[6] = 0.5 / 9
    c[6, 2] = 0.5
    plain = with_pictures(make_trace(16, 10, iterations=1, images=1, epochs=(1,), trained_iterations=1))
    long = np.array([lengths.get(j, 0.2) for j in range(10)], np.float32).reshape(plain.lengths.shape)
    return dataclasses.replace(plain, c=c.reshape(plain.c.shape).astype(np.float16), lengths=long, about=about)


def test_classes_below_the_threshold_share_a_grey_bar_and_are_not_named():
    picture = viz.GraphPicture(settled({2: 0.9, 7: 0.8, 4: 0.6}, threshold=0.7))
    shown, colors = words(picture.figure), picture.panels[0].ribbons.ways.get_facecolors()[:, :3]
    assert picture.named.tolist() == [2, 7] and "8 other classes:\nnone above 0.60" in shown
    assert "4 parts choose class 2, 2 choose class 7" in shown and "class 2\n0.90" in shown and "class 4" not in shown
    assert "Of 16, 6 choose, 1 lean, 9 are undecided" in shown
    wanted = {matplotlib.colors.to_rgb(name) for name in ("#1f5fc9", "#b84e00", style.FAINT)}
    assert {tuple(color) for color in colors} == wanted
    assert picture.panels[0].ribbons.bars.tolist() == [1, 1, 0, 1, 1, 1, 1, 2, 1, 1]
    assert "4 parts choose class 2, 2 others" in words(viz.GraphPicture(settled({2: 0.9})).figure)
    undertrained = viz.GraphPicture(settled({2: 0.4}))
    assert "No class is longer than 0.50: train on" in words(undertrained.figure) and len(undertrained.named) == 0


def test_words_are_counted_from_couplings():
    """Boundaries of the three words, for two and for ten parents, and the sentence of the median pair."""
    for parents, lines in ((2, ("0.54 undecided", "0.56 leans", "0.74 leans", "0.76 chooses")),
                           (10, ("0.18 undecided", "0.20 leans", "0.54 leans", "0.56 chooses"))):  # fmt: skip
        for c, word in map(str.split, lines):
            row = np.full((1, parents), (1 - float(c)) / (parents - 1))
            row[0, 1] = float(c)
            said = decisions(make_trace(1, parents), row.ravel())
            assert (said.word.item(), said.parent.item()) == (word, 1)
    trace = Run.open("multimnist").trace()
    picture = viz.GraphPicture(trace, image=10)
    for step in range(14):
        picture.show(step)
        c = trace.c[-1, step, 10].astype(float).reshape(16, 10)
        d = (c.max(axis=1) - 0.1) / 0.9
        chosen, shown = c.argmax(axis=1)[d > 0.5], words(picture.figure)
        counts = (d > 0.5).sum(), ((d >= 0.1) & (d <= 0.5)).sum(), (d < 0.1).sum()
        assert "Of 16, {} choose, {} lean, {} are undecided".format(*counts) in shown
        for digit in set(chosen.tolist()):
            number = (chosen == digit).sum()
            assert re.search(rf"\b{number} (parts? )?chooses? {digit}\b", shown)


def test_answers_differ_under_three_kinds_of_colour_blindness():
    """Machado et al. 2009, severity 1. The distance of two colours in linear RGB, against that of black and white."""
    kinds = {
        "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
        "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
        "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
    }
    for medium in (style.SCREEN, style.dark(style.SCREEN)):
        colors = np.array([matplotlib.colors.to_rgb(c) for c in (*medium.answers[:2], medium.faint)]) ** 2.2
        for kind, matrix in kinds.items():
            seen = np.clip(colors @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
            apart = [np.linalg.norm(seen[a] - seen[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
            assert min(apart) > 0.4, kind


@pytest.mark.parametrize("channels", [1, 3])
def test_children_and_parents_are_drawn_as_their_decoded_images(trace, channels):
    draw = np.random.default_rng(3)
    votes = draw.integers(0, 256, (2, 16, channels, 12, 12), np.uint8)
    parents = draw.integers(0, 256, (2, 3, 10, channels, 12, 12), np.uint8)
    seen = {"images": np.repeat(trace.images, channels, axis=1)}
    seen = dataclasses.replace(trace, **seen, decoded_votes=votes, decoded_parents=parents)
    picture = viz.GraphPicture(seen, image=1)
    for step in (0, 2):
        picture.show(step)
        drawn = [np.asarray(image.get_array()) for image in picture.figure.axes[0].images]
        wanted = [*votes[1], *(parents[1, step, j] for j in picture.named)]
        drawn = [image for image in drawn if image.dtype == np.uint8]  # matplotlib would clip other numbers at 1
        assert len(drawn) == len(wanted) and len(picture.named) > 1
        assert all(any(np.array_equal(image, style.displayed(want)) for image in drawn) for want in wanted)


def test_a_wrong_answer_is_marked(trace):
    lengths = trace.lengths.copy()
    lengths[-1, 2, 1] = 0.1
    lengths[-1, 2, 1, 4] = 0.9  # image 1 is of class 1
    assert "true label: class 1, answer: class 4" in words(
        viz.GraphPicture(dataclasses.replace(trace, lengths=lengths), image=1).figure
    )


@pytest.mark.parametrize(
    ("kind", "over", "children", "use"),
    [(viz.EntropyPicture, "epochs", 16, "film"), (viz.GraphPicture, "iterations", 1152, "still")],
)
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
    wanted = [*(f"{name}.gif" for name in names), *(f"{name}-epochs.gif" for name in names)]
    assert [path.name for path in written] == wanted
    assert sorted(path.name for path in folder.glob("[!.]*")) == sorted(wanted)
    with pytest.raises(InputError, match="what: expected one of entropy, .*, all, got 'graphs'"):
        viz.draw(short, tmp_path / "none", what="graphs")
    assert not (tmp_path / "none").exists()
    for path in viz.draw(short, tmp_path / "stills", what="graph", format="svg"):
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


def test_reading_and_drawing_a_trace_needs_no_torch_no_dgl_and_no_pyplot(trace, tmp_path, monkeypatch):
    trace.save(tmp_path / "trace.npz")
    code = (
        "import sys; from graphcaps import RoutingTrace, viz\n"
        "assert 'matplotlib' not in sys.modules\n"
        "trace = RoutingTrace.load('trace.npz')\n"
        "viz.explorer_page(trace), viz.draw(trace, '.', format='png')\n"
        "assert not {'torch', 'dgl', 'matplotlib.pyplot', 'graphcaps.images.models'} & set(sys.modules)\n"
    )
    monkeypatch.chdir(tmp_path)
    ran = small.python("-c", code)
    assert ran.returncode == 0, ran.stderr
