"""The explorer in Chromium, from a file and offline: the trace's numbers, play, filters, keys, and 400 pixels."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from traces import make_trace, with_pictures

from graphcaps import viz
from graphcaps.trace import random_trace
from graphcaps.viz.explorer.data import explorer_data
from graphcaps.viz.routing.entropy import choice_in_words

from .browser import check_fits, contrast, opened, settle

TRACE = with_pictures(make_trace())  # 16 children, 10 parents, 2 images, 3 epochs, 10 iterations
FIELDS = np.array([[2 * y, 2 * x, 5, 5] for _ in range(32) for y in range(6) for x in range(6)], np.int32)
LARGE = with_pictures(make_trace(1152, 10, images=2, epochs=(0, 2), iterations=4, speed=0.4), size=16)
LARGE = dataclasses.replace(LARGE, saliency=None, fields=FIELDS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An explorer of each trace."""
    folder = tmp_path_factory.mktemp("pages")
    traces = {"small": TRACE, "large": LARGE, "random": random_trace(20, 10)}
    return {name: viz.draw(trace, folder / name, format="html")[0] for name, trace in traces.items()}


@pytest.fixture(scope="module")
def opened_page(chromium, files):
    with opened(chromium, files["small"]) as page:
        yield page


@pytest.fixture
def page(opened_page):
    """The page of the small trace at the last iteration and epoch, with nothing chosen."""
    opened_page.keyboard.press("Escape")
    opened_page.get_by_role("radio", name="class 0").check(force=True)
    go(opened_page, 10, 2)
    opened_page.evaluate("document.activeElement.blur()")
    return opened_page


def go(page, iteration: int, epoch: int) -> None:
    """To an iteration from 1 and a kept epoch from 0."""
    page.locator("#iteration").fill(str(iteration))
    page.locator("#epoch").fill(str(epoch))
    settle(page)


def text(page, selector: str) -> str:
    return page.locator(selector).inner_text()


def read(shown: str) -> float:
    return float(shown.replace("\u2212", "-").replace("\u202f", ""))


def half_step(values: np.ndarray, digits: int) -> float:
    """How far a shown number may be off: by quantisation of its state, and by the digits shown."""
    return float(values.max() - values.min()) / 510 + 0.5 * 10**-digits + 1e-6


# The opacities, 0 to 255, of the graph's pixels between two parts of its width. Reading a copy leaves the graph be.
OPACITIES = """([left, right]) => {
  const shown = document.querySelector(".stage > canvas"), { width, height } = shown;
  const copy = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  copy.drawImage(shown, 0, 0);
  const from = Math.round(left * width), wide = Math.max(1, Math.round((right - left) * width));
  return [...copy.getImageData(from, 0, wide, height).data.filter((_, at) => at % 4 === 3)]"""


# The colours of some points of the picture, of a copy for the same reason.
COLORS = """(points) => {
  const shown = document.querySelector("#picture canvas"), { width, height } = shown;
  const copy = Object.assign(document.createElement("canvas"), { width, height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(shown, 0, 0);
  return points.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]); }"""


def ink(page) -> int:
    """How many pixels halfway between children and parents belong to a line that is strong."""
    return page.evaluate(OPACITIES + ".filter((opacity) => opacity > 30).length; }", [0.25, 0.75])


@pytest.mark.parametrize("scheme, paper", [("light", (255, 255, 255)), ("dark", (21, 24, 28))])
def test_the_page_opens_at_the_networks_answer_and_its_colours_stand_out(chromium, files, scheme, paper):
    """By a contrast of 3 : 1, as WCAG 2.2 asks of graphics (its 1.4.11)."""
    with opened(chromium, files["small"], color_scheme=scheme) as page:
        assert text(page, "#iterations output") == "3 of 10" and text(page, "#epochs output") == "6 of 6"
        shown = [read(value) for value in page.locator("#parents .value").all_inner_texts()]
        assert shown == pytest.approx(TRACE.lengths[-1, 2, 0], abs=0.0051)
        colors = [
            tuple(int(channel) for channel in re.findall(r"\d+", each.evaluate(BACKGROUND)))
            for each in [page.locator("body"), *page.locator("#parents .dot").all()]
        ]
        assert colors[0] == paper and len(colors) == 11
        assert min(contrast(dot, paper) for dot in colors[1:]) >= 3
        go(page, 3, 0)
        assert page.locator("#parents .longest").count() == 0
        assert text(page, "#status") == "Iteration 3, epoch 0: untrained."
        assert "Untrained" in text(page, "#picture figcaption")


BACKGROUND = "(element) => getComputedStyle(element).backgroundColor"


def test_wrong_answers_are_marked(chromium, tmp_path):
    lengths = TRACE.lengths.copy()
    lengths[..., 0, :], lengths[-1, 2, 0, 7] = 0.1, 0.9  # image 0 is of class 0
    lengths[..., 1, :], lengths[-1, 2, 1, 1] = 0.1, 0.9  # image 1 of class 1
    (path,) = viz.draw(dataclasses.replace(TRACE, lengths=lengths), tmp_path, format="html")
    with opened(chromium, path) as page:
        assert page.locator(".thumbs span").all_inner_texts() == ["class 0 ✗ class 7", "class 1"]
        said = "Wrong: class 7 is longest, the true label is class 0."
        assert text(page, "#picture figcaption").startswith(said)
        assert [text(page, f"#parents button:nth-child({j + 1}) .dot") for j in (0, 7, 3)] == ["✓", "✗", ""]
        assert text(page, "#status").endswith("longest parent class 7, 0.90, wrong.")
        page.get_by_role("radio", name="class 1").check(force=True)
        settle(page)
        assert "Wrong" not in text(page, "#picture figcaption") and "✗" not in text(page, "#parents")


def test_lengths_and_couplings_are_the_traces_at_every_moment(page):
    page.locator(".stage > canvas").click(position={"x": 8, "y": 100})
    settle(page)
    child = int(re.search(r"\d+", text(page, "#child h2"))[0])
    for n, label in enumerate(("class 0", "class 1")):
        page.get_by_role("radio", name=label).check(force=True)
        for k, r in ((0, 0), (1, 5), (2, 9)):
            go(page, r + 1, k)
            shown = [read(value) for value in page.locator("#parents .value").all_inner_texts()]
            assert shown == pytest.approx(TRACE.lengths[k, r, n], abs=0.0051)
            rows = [row.split() for row in page.locator("#child tbody tr").all_inner_texts()]
            assert [row[:2] for row in rows] == [["class", str(j)] for j in range(10)]
            columns = np.array([[read(cell) for cell in row[2:]] for row in rows]).T
            for name, digits, column in zip(("c", "b", "agreement"), (3, 2, 2), columns, strict=True):
                state = getattr(TRACE, name)[k, r, n].astype(np.float64)
                wanted = state[TRACE.src == child]
                assert column == pytest.approx(wanted, abs=half_step(state, digits)), (name, n, k, r)


def test_the_title_is_that_of_the_pictures_at_every_moment(page):
    found = set()
    for n, k, r in ((0, 0, 0), (0, 2, 2), (1, 2, 2), (0, 2, 9), (1, 2, 9)):
        page.get_by_role("radio", name=f"class {n}").check(force=True)
        go(page, r + 1, k)
        assert text(page, "h1") == choice_in_words(TRACE, TRACE.c[k, r, n].astype(np.float64))
        found.add(text(page, "h1"))
    assert len(found) > 2 and "Couplings nearly equal: hardly any routing" in found


def test_entropy_and_histogram_say_the_traces_numbers(page):
    for k, r in ((0, 0), (1, 2), (2, 9)):
        go(page, r + 1, k)
        c = TRACE.c[k, r, 0].astype(np.float64).reshape(16, 10)
        entropies = -(c * np.log(np.maximum(c, 1e-12))).sum(axis=1)
        mean, ratio, level = re.findall(r"\d+\.\d+", text(page, "#entropy figcaption"))
        assert float(mean) == pytest.approx(entropies.mean(), abs=2.6e-3)  # float16 couplings sum to 1 within 5e-4
        assert float(ratio) == pytest.approx(entropies.mean() / np.log(10), abs=0.0065) and level == "2.303"
        largest, strong, edges = re.findall(r"\d+(?:\.\d+)?", text(page, "#histogram figcaption"))
        assert float(largest) == pytest.approx(c.max(), abs=5.1e-4)
        assert (int(strong), int(edges)) == ((c > 0.5).sum(), 160)


def test_a_large_graph_says_how_much_of_it_is_shown_and_frames_what_a_child_sees(chromium, files):
    with opened(chromium, files["large"]) as page:
        assert re.fullmatch(r"\d+ of 1152 children", text(page, "#children-head"))
        children = int(text(page, "#children-head").split()[0])
        assert f"{children * 10:,} of 11,520 couplings".replace(",", "\u202f") in text(page, "#shown-edges")
        largest = LARGE.c[-1, LARGE.trained_iterations - 1, 0].astype(np.float64).max()
        assert f"Largest {largest:.3f}" in text(page, "#histogram figcaption")
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        child = int(re.search(r"\d+", text(page, "#child h2"))[0])
        assert f"Frame: the 5 × 5 pixels that child {child} sees" in text(page, "#picture figcaption")
        top, left, _, _ = FIELDS[child]
        side = page.locator("#picture canvas").evaluate("(canvas) => canvas.width") / 16
        point = [int(left * side + 2.5 * side), max(0, int(top * side))]
        assert page.evaluate(COLORS, [point]) == [[255, 255, 255, 255]]


@pytest.mark.parametrize("name, scheme", [("large", "dark"), ("random", "light")])
def test_a_window_of_400_pixels_needs_no_scrolling_sideways(chromium, files, name, scheme):
    with opened(chromium, files[name], width=400, height=800, color_scheme=scheme) as page:
        graph = page.locator(".stage").bounding_box()
        assert graph["y"] + graph["height"] <= 800, "on the first screen"
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        check_fits(page)
        assert page.evaluate("document.querySelector('.stage > canvas').clientWidth") > 180
        page.locator("#iteration").fill("4")
        settle(page)
        assert text(page, "#iterations output").endswith("beyond training") == (name != "random")  # no network there
        assert page.locator("#images").is_hidden() == page.locator("#picture").is_hidden() == (name == "random")


def test_a_parent_filters_lines_and_escape_shows_all_again(page):
    whole = ink(page)
    page.locator("#parents button").nth(3).click()
    settle(page)
    assert 0 < ink(page) < whole / 3
    assert page.locator("#parents button[aria-pressed=true] .name").all_inner_texts() == ["class 3"]
    assert "class 3" in text(page, "#picture h2") and "class 3" in text(page, "#histogram .legend")
    page.keyboard.press("Escape")
    settle(page)
    assert ink(page) == whole
    assert page.locator("#parents button[aria-pressed=true]").count() == 0


def test_keys_move_through_time_and_children(page):
    assert text(page, "#iterations output").startswith("10 of 10") and text(page, "#epochs output") == "6 of 6"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    settle(page)
    assert text(page, "#iterations output").startswith("9 of 10") and text(page, "#epochs output") == "2 of 6"
    page.locator(".stage > canvas").focus()
    order = explorer_data(TRACE)["images"][0]["order"]
    for child in (order[0], order[1]):
        page.keyboard.press("ArrowDown")
        settle(page)
        assert f"Child {child} " in text(page, "#child h2")
        assert f"child {child} is selected" in text(page, "#status")
    page.keyboard.press("Escape")
    settle(page)
    assert text(page, "#child h2") == "One child"


def test_play_runs_to_the_end_and_begins_again(page):
    from playwright.sync_api import expect

    button, output = page.locator("#iterations button"), page.locator("#iterations output")
    go(page, 9, 2)
    page.locator("h1").click()
    page.keyboard.press(" ")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(button).to_have_attribute("aria-pressed", "false")
    expect(output).to_have_text(re.compile("^10 of 10"))
    button.click()
    expect(output).to_have_text(re.compile("^1 of 10"))
    expect(output).to_have_text(re.compile("^2 of 10"))
    page.keyboard.press(" ")  # the button has the focus, and pauses
    expect(button).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Play the epochs of training").click()
    expect(page.locator("#epochs output")).to_have_text(re.compile("^0 of 6"))
