"""The story of a README, and the explorer inside a notebook."""

import dataclasses

import numpy as np
import pytest
from PIL import Image
from traces import make_trace, words

import graphcaps
from graphcaps import viz
from graphcaps.cli import main
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.images.training.run_folder import Run

from .browser import opened


@pytest.fixture(scope="module")
def trace():
    return Run.open("multimnist").trace()


def test_the_story_goes_from_the_ink_alone_to_the_ink_tinted_in_eight_seconds(trace):
    picture = viz.StoryPicture(trace, image=10)
    frames, image = picture.frames(), picture.panels[0].image
    assert sum(frame.seconds for frame in frames) == pytest.approx(8, abs=0.3)
    assert (frames[0].position, frames[-1].position) == (-1, 14)
    pixels = np.repeat(np.moveaxis(trace.images[10], 0, -1), 3, axis=2) / 255
    for position, title, alone in (
        (-1, "Two digits share this ink. How does a network tell them apart?", True),
        (0, "At first, all parts divide themselves equally among 10 digits", False),
        (6.5, "Parts side with the digit that their votes agree with", False),
        (13, "8 parts choose 9, 5 choose 8, 3 none", False),
        (14, "8 parts choose 9, 5 choose 8, 3 none", True),
    ):
        picture.show(position)
        assert title in words(picture.figure)
        assert (f"Round {round(position) + 1} of 14" in words(picture.figure)) == (0 <= position < 14)
        assert [artist.get_visible() for artist in picture.panels[0].graph].count(alone) == 0
        assert (np.abs(image.get_array() - pixels).max() < 1e-6) == (position <= 0)
    alone = image.get_extent()
    picture.show(13)
    assert alone[1] - alone[0] > 1.5 * np.diff(image.get_extent()[:2])


def test_the_command_writes_the_film_and_a_still_of_three_rounds(tmp_path, capsys):
    line = ["viz", "multimnist", "--what", "story", "--image", "10", "--to", str(tmp_path)]
    assert main(line) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "story.gif"), str(tmp_path / "story.png")]
    assert (tmp_path / "story.gif").stat().st_size < 520_000 and Image.open(tmp_path / "story.gif").n_frames > 20
    still = viz.StoryPicture(Run.open("multimnist").trace(), image=10, medium=viz.StoryPicture.still)
    assert len(still.panels) == 3 and "iteration 1 | iteration 10 | iteration 14" in words(still.figure)


def test_a_trace_without_an_image_has_no_story():
    with pytest.raises(InputError, match="trace: expected images and decoded parents, for a story"):
        viz.StoryPicture(make_trace())


def test_a_stroke_has_the_colour_of_the_answer_that_the_decoder_draws_there(trace):
    """The formula of viz/routing/tint.py, pixel by pixel."""
    tint = viz.GraphPicture(trace, image=10).tint
    colors = np.array([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in ("#1f5fc9", "#b84e00")])
    beyond = lambda r: np.maximum(trace.c[-1, r, 10].astype(float).reshape(16, 10) - 0.1, 0).sum(axis=0)[[8, 9]]  # noqa: E731
    for r in (0, 8, 13):
        drawn, ink = trace.decoded_parents[10, r, [8, 9], 0] / 255, trace.images[10, 0] / 255
        w = beyond(r)
        m = (np.sqrt(w * w.max()) / beyond(13).max())[:, None, None] * np.minimum(1, drawn / 0.35)
        alpha, mean = np.minimum(1, m.sum(axis=0)), np.einsum("jhw,jc->hwc", m**2, colors)
        mean /= np.maximum((m**2).sum(axis=0), 1e-12)[..., None]
        wanted = ink[..., None] * (1 - alpha[..., None] + alpha[..., None] * mean)
        assert tint(trace.c[-1, r, 10].astype(float), float(r)) == pytest.approx(wanted, abs=1e-3)
    hardly = dataclasses.replace(trace, c=(0.1 + (trace.c - 0.1) * 0.01).astype(np.float16))
    pale = viz.GraphPicture(hardly, image=10).panels[0].image.get_array()
    assert np.ptp(pale, axis=2).max() < 0.1  # undecided strokes stay white


def test_a_notebook_shows_the_page_in_a_frame(chromium):
    page = graphcaps.show("multimnist", image=10)
    with opened(chromium, f"<h1>notebook</h1>{page._repr_html_()}") as shown:
        frame = shown.frame_locator("iframe")
        frame.locator("main[aria-busy=false]").wait_for()
        assert frame.locator("main").inner_text().count("8") > 0
    assert graphcaps.show(make_trace()).text.startswith("<!DOCTYPE html>")
    with pytest.raises(GraphcapsError, match="run: expected a run folder"):
        graphcaps.show("nothing")
