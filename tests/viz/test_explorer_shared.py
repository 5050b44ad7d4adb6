"""The explorer's network in Chromium, shared: links, saved pictures, and pages that are cut short or on a phone."""

import base64

import numpy as np
import pytest
from PIL import Image

from .browser import answered, check_accessible, draw, opened, settle
from .live import FEW, network, page_of
from .test_explorer_live import seen, shown_lengths, slide, visit

SEEN = "document.querySelector('#seen canvas').toDataURL()"  # the network's input


@pytest.fixture(scope="module")
def text():
    return page_of(network(), FEW)


@pytest.fixture(scope="module")
def page(chromium, text):
    """The page stays open, so each test first brings it into the state that it needs."""
    with opened(chromium, text, reduced_motion="reduce") as page:
        yield page


def state(page) -> dict:
    """The parts of the page that a link must keep."""
    settle(page)
    return page.evaluate(
        f"""() => ({{
          seen: {SEEN},
          lengths: [...document.querySelectorAll("#parents .value")].map((each) => each.textContent),
          sliders: [...document.querySelectorAll("#adjust input, #iteration, #epoch")].map((each) => each.value),
          chosen: [...document.querySelectorAll("#images input")].findIndex((each) => each.checked),
          label: document.querySelector("#pulls label").textContent,
          parent: [...document.querySelectorAll("#parents button")].findIndex((each) => each.ariaPressed === "true"),
          routings: [...document.querySelectorAll("#compare select")].map((each) => each.value),
        }})"""
    )


def test_a_link_holds_a_drawing_and_all_that_is_chosen(chromium, text, page):
    visit(page, "view=all&draw=")
    draw(page, [(0.31, 0.22), (0.72, 0.19), (0.43, 0.87)], [(0.3, 0.5), (1.2, 0.55)], [(0.8, 0.8)])
    slide(page, "turn", -30)
    slide(page, "thick", 0.25)
    slide(page, "iteration", 2)
    page.locator("#parents button").nth(4).click()
    page.locator(".stage > canvas").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[aria-controls=why]").click()
    page.locator("#compare select").nth(2).select_option("attention")
    page.locator("#compare select").nth(1).select_option("1")
    page.locator("#pin").click()
    page.locator("#name").fill("<b>bar")
    before = state(page)
    assert before["parent"] == 4 and before["label"] == "Send <b>bar to"
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text } }")
    page.locator("[aria-controls=share]").click()
    page.locator("#copy").click()
    page.wait_for_function("() => document.querySelector('#note').textContent.startsWith('The link is copied')")
    link = page.evaluate("window.copied")
    page.wait_for_function("(link) => location.href === link", arg=link)  # the address is updated too
    with opened(chromium, text, end=link[link.index("#") :], reduced_motion="reduce") as other:
        assert state(other) == before
        other.reload()
        answered(other)
        assert state(other) == before
    page.locator("[aria-controls=share]").click()


LONG_STEP = base64.urlsafe_b64encode(b"\x01" + b"\xff" * 40 + b"\x01\x00").decode().rstrip("=")
UNFIT = [
    "image=<img src=x onerror=alert(1)>",
    "image=1&image=2",
    "draw=gICA",  # a number that doesn't end
    f"draw={LONG_STEP}",
    f"draw={'A' * 70000}",
    "turn=NaN",
    "__proto__=1",
    "child=3&unknown=1",
    "pull=3.10",
    "pin=3~a name of over twelve letters",
]


def test_fragments_that_do_not_fit_are_left_out_with_a_note(page):
    visit(page, "image=2")
    before = state(page)
    for fragment in UNFIT:
        page.evaluate("document.querySelector('#note').textContent = ''")
        visit(page, fragment)
        note = page.locator("#note").text_content()
        assert note == "The end of this link doesn't fit this page, so it was ignored.", fragment
        assert state(page) == before, fragment


def test_a_saved_picture_is_named_after_the_run_and_as_large_as_it_says(page):
    visit(page, "image=2&iteration=2&parent=6&view=all")
    page.locator("[aria-controls=share]").click()
    with page.expect_download() as download:
        page.locator("#save-png").click()
    assert download.value.suggested_filename == "compact-on-mnist-run-test-3-epochs.png"
    picture = np.asarray(Image.open(download.value.path()))
    assert picture.shape == (1640, 2400, 4)
    graph = picture[220:1000, 900:1700, :3].reshape(-1, 3)
    assert len(np.unique(graph, axis=0)) > 100, "lines in many shades"
    page.locator("[aria-controls=share]").click()


def test_a_page_cut_short_says_so(chromium, text):
    with opened(chromium, text[: len(text) // 2], trouble="cut short") as page:
        assert page.locator("#broken").inner_text().startswith("This page is damaged or cut short")
        assert not page.locator("h1").is_visible()


def test_a_policy_that_forbids_webassembly_leaves_the_plain_sums(chromium, text, page):
    visit(page, "image=2&view=all")
    allowed = " 'wasm-unsafe-eval'"
    assert allowed in text
    with opened(chromium, text.replace(allowed, ""), end="#image=2&view=all") as other:
        assert shown_lengths(other) == shown_lengths(page) and other.locator("#trouble").is_hidden()


def test_a_finger_draws_with_the_answer_in_sight_and_axe_finds_nothing(chromium, text):
    touch = {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    with opened(chromium, text, width=400, height=800, end="#compare=dynamic.3.spherical.2", **touch) as page:
        box = page.locator("#sheet canvas").bounding_box()
        page.touchscreen.tap(box["x"] + 50, box["y"] + 60)
        answered(page)
        assert (seen(page) > 128).any()
        assert page.locator("#sheet canvas").evaluate("(canvas) => getComputedStyle(canvas).touchAction") == "none"
        graph = page.locator(".stage").bounding_box()
        assert graph["y"] + graph["height"] < 800 and page.evaluate("scrollY") == 0
        check_accessible(page)
