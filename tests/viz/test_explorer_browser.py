"""The explorer of a trace in Chromium, from a file and offline: its numbers, time, keys, windows."""

import dataclasses
import re

import numpy as np
import pytest
from traces import make_trace, with_pictures

from graphcaps import viz

from .browser import ROWS, check_axe, check_fits, opened, press, read, sealed, settle, text, visit

TRACE = with_pictures(make_trace(speed=0.04))  # 16 children, 10 parents, 2 images, 3 epochs, 10 rounds
FIELDS = np.array([[2 * y, 2 * x, 5, 5] for _ in range(32) for y in range(6) for x in range(6)], np.int32)
LARGE = with_pictures(make_trace(1152, 10, images=2, epochs=(0, 2), iterations=4, speed=0.4), size=16)
LARGE = dataclasses.replace(LARGE, fields=FIELDS)


def page_of(trace, path):
    path.write_text(viz.explorer_page(trace), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An explorer of each trace."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: page_of(trace, folder / f"{name}.html") for name, trace in (("small", TRACE), ("large", LARGE))}


@pytest.fixture(scope="module")
def opened_page(chromium, files):
    with opened(chromium, files["small"]) as page:
        yield page


@pytest.fixture
def page(opened_page):
    """The page of the small trace at the last round and epoch, with all children shown and the drawer of why open."""
    opened_page.keyboard.press("Escape")
    opened_page.get_by_role("radio", name="class 0").check(force=True)
    for door in ("more", "why"):
        if opened_page.locator(f"#{door}").is_hidden():
            opened_page.locator(f"[aria-controls={door}]").click()
    if opened_page.locator("#all").get_attribute("aria-pressed") == "false":
        opened_page.locator("#all").click()
    go(opened_page, 10, 2)
    opened_page.evaluate("document.activeElement.blur()")
    return opened_page


def go(page, round_: int, epoch: int) -> None:
    """Go to a round, counted from 1, and a recorded epoch, counted from 0."""
    page.locator("#iteration").fill(str(round_), force=True)
    page.locator("#epoch").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(epoch)
    )
    settle(page)


def test_the_page_opens_at_the_answer_and_axe_finds_nothing_in_the_dark_and_in_the_light(chromium, files):
    with opened(chromium, files["small"], color_scheme="dark") as page:
        assert text(page, "#entropy output") == "3, the answer"
        lengths = TRACE.lengths[-1, 2, 0].astype(float)
        third, second, longest = lengths.argsort()[-3:]
        assert lengths[second] > TRACE.threshold
        names = page.locator("#parents .name").all_inner_texts()
        others = f"8 other classes: none above {np.ceil(100 * lengths[third]) / 100:.2f}"
        assert names == [f"class {longest}", f"class {second}", others]
        press(page, "#parents .others")
        assert page.locator("#parents button").count() == 10
        for paper in ("rgb(21, 24, 28)", "rgb(255, 255, 255)"):
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            check_axe(page)
            press(page, "#theme")
        go(page, 3, 0)
        assert page.locator("#parents .longest").count() == 0
        assert text(page, "#status") == "Round 3, epoch 0: untrained."


def test_wrong_answers_are_marked(chromium, tmp_path):
    lengths = TRACE.lengths.copy()
    lengths[..., 0, :], lengths[-1, 2, 0, 7] = 0.1, 0.9  # image 0 is of class 0
    lengths[..., 1, :], lengths[-1, 2, 1, 1] = 0.1, 0.9  # image 1 of class 1
    path = page_of(dataclasses.replace(TRACE, lengths=lengths), tmp_path / "wrong.html")
    with opened(chromium, path) as page:
        visit(page, sealed(page, "view=all"))
        assert page.locator(".thumbs span").all_inner_texts() == ["class 0 ✗ class 7", "class 1"]
        assert [page.locator(f"[data-parent='{j}'] .mark").text_content() for j in (0, 7, 3)] == ["✓", "✗", ""]
        assert text(page, "#status").endswith("the longest parent is class 7 with 0.90, which is wrong.")
        page.get_by_role("radio", name="class 1").check(force=True)
        settle(page)
        assert "wrong" not in text(page, "#status") and "✗" not in text(page, "#parents")


def test_numbers_and_title_are_the_traces_at_every_moment(page):
    page.locator(".stage > canvas").click(position={"x": 8, "y": 100})
    settle(page)
    child = int(re.search(r"\d+", text(page, "#child h2"))[0])
    for n, label in enumerate(("class 0", "class 1")):
        page.get_by_role("radio", name=label).check(force=True)
        for k, r in ((0, 0), (1, 5), (2, 9)):
            go(page, r + 1, k)
            shown = [length for _, length in sorted(page.locator("#parents button").evaluate_all(ROWS))]
            assert shown == pytest.approx(TRACE.lengths[k, r, n], abs=0.0051)
            rows = [row.split() for row in page.locator("#child tbody tr").all_inner_texts()]
            assert [row[:2] for row in rows] == [["class", str(j)] for j in range(10)]
            columns = np.array([[read(cell) for cell in row[2:]] for row in rows]).T
            for name, digits, column in zip(("c", "b", "agreement"), (3, 2, 2), columns, strict=True):
                state = getattr(TRACE, name)[k, r, n].astype(np.float64)
                off = np.ptp(state) / 510 + 0.5 * 10**-digits + 1e-6  # half a step of the state, and of the digits
                assert column == pytest.approx(state[TRACE.src == child], abs=off), (name, n, k, r)
            c = TRACE.c[k, r, n].astype(np.float64).reshape(16, 10)
            parents = c.argmax(axis=1)[c.max(axis=1) > 0.55]  # halfway from a tenth to 1
            counts = sorted(np.unique(parents, return_counts=True)[1].tolist(), reverse=True)
            named = [int(count) for count in re.findall(r"(\d+) (?!parts|none)", text(page, "h1"))]
            assert (named[:3] == counts[:3] and sum(named) == sum(counts)) or not counts
            assert ("No part has chosen" in text(page, "h1")) == (not counts)
            entropy = -(c * np.log(np.maximum(c, 1e-12))).sum(axis=1).mean()
            mean, level = re.findall(r"\d+\.\d+", text(page, "#mean"))
            assert float(mean) == pytest.approx(entropy, abs=8e-3) and level == "2.30"


def test_play_stops_at_the_answer_and_dragging_along_the_curve_goes_beyond_it(page):
    from playwright.sync_api import expect

    output = page.locator("#entropy output")
    go(page, 2, 2)
    page.locator("h1").click()
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_text("Pause")
    expect(page.locator("#play")).to_have_text("Play")
    assert output.inner_text() == "3, the answer"
    page.locator("#beyond").click()
    expect(output).to_have_text("4, beyond training")
    page.keyboard.press(" ")  # the button has the focus, and pauses
    expect(page.locator("#beyond")).to_have_text("Beyond")
    box = page.locator("#entropy canvas").bounding_box()
    places = [box["x"] + 40 + (r + 0.4) / 9.8 * (box["width"] - 54) for r in range(10)]
    page.mouse.move(places[1], box["y"] + 50)
    page.mouse.down()
    for r, shown in ((1, "2"), (2, "3, the answer"), (8, "9, beyond training")):
        page.mouse.move(places[r] + 4, box["y"] + 60, steps=5)
        settle(page)
        assert output.inner_text() == shown
    page.mouse.up()


def test_keys_move_through_time_and_children_and_a_parent_filters_lines(page):
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")
    settle(page)
    page.locator(".stage > canvas").focus()
    page.keyboard.press("ArrowDown")
    settle(page)
    c, longest = TRACE.c[1, 2, 0].reshape(16, 10).astype(float), TRACE.lengths[1, 2, 0].argmax()
    child = int(c[:, longest].argmax())  # from top to bottom, children give less to the parent that is named
    assert text(page, "#status").startswith("Round 9, epoch 2:")
    assert f"Part #{child} " in text(page, "#child h2") and f"part #{child} is selected" in text(page, "#status")
    page.keyboard.press("Escape")
    press(page, "#parents [data-parent='3']")
    assert page.locator("#parents button[aria-pressed=true] .name").all_inner_texts() == ["class 3"]
    press(page, "#clear")
    assert page.locator("#parents button[aria-pressed=true]").count() == 0


IN_SIGHT = """() => ["#sheet canvas", ".stage", "#entropy canvas"].every((name) => {
  const { top, bottom, left, right } = document.querySelector(name).getBoundingClientRect();
  return top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth && bottom - top > 100;
})"""


def test_the_screen_fits_in_every_window_and_a_large_graph_says_how_much_of_it_is_shown(chromium, files):
    with opened(chromium, files["small"]) as small:
        for width, height in ((1280, 720), (400, 800)):
            small.set_viewport_size({"width": width, "height": height})
            settle(small)
            assert small.evaluate(IN_SIGHT)
            check_fits(small)
    with opened(chromium, files["large"], width=320, height=800, color_scheme="dark") as large:
        assert re.search(r"\d+ of 1\u202f152 children", text(large, "#shown-edges"))
        large.locator(".stage > canvas").focus()
        large.keyboard.press("ArrowDown")
        settle(large)
        child = re.search(r"part #(\d+) is selected", text(large, "#status"))[1]
        title = large.locator("#sheet canvas").get_attribute("title")
        assert title == f"The frame holds the 5 × 5 pixels that part #{child} sees."
        assert large.evaluate("document.querySelector('.stage > canvas').clientWidth") > 150
        check_fits(large)
