"""The explorer in Chromium, from a file and offline: the trace's numbers, play, filters, keys, and 400 pixels."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

from graphcaps import viz
from graphcaps.trace import RoutingTrace
from graphcaps.viz import style
from graphcaps.viz.explorer.data import explorer_data
from graphcaps.viz.routing.timeline import wide_range

from .browser import AS_BYTES, browser, opened, settle, why_not
from .traces import make_trace, with_pictures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

TRACE = with_pictures(make_trace())  # 16 children, 10 parents, 2 images, 3 epochs, 10 iterations
FIELDS = np.array([[2 * y, 2 * x, 5, 5] for _ in range(32) for y in range(6) for x in range(6)], np.int32)
LARGE = with_pictures(make_trace(1152, 10, images=2, epochs=(0, 2), iterations=4, speed=0.4), size=16)
LARGE = dataclasses.replace(LARGE, saliency=None, fields=FIELDS)
VOTES = np.zeros((1152, 10))
VOTES[0:1152:36, 1] = VOTES[35:1152:36, 7] = 1  # all children of the first place for class 1, of the last for class 7
BLACK = dataclasses.replace(
    LARGE,
    images=np.zeros_like(LARGE.images),
    agreement=np.broadcast_to(VOTES.ravel(), LARGE.agreement.shape).astype(np.float16),
    c=np.full_like(LARGE.c, 0.1),
)


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An explorer of each trace."""
    folder = tmp_path_factory.mktemp("pages")
    traces = {"small": TRACE, "large": LARGE, "black": BLACK, "random": RoutingTrace.random(20, 10)}
    return {name: viz.draw(trace, folder / name, format="html")[0] for name, trace in traces.items()}


@pytest.fixture
def page(chromium, files):
    with opened(chromium, files["small"]) as page:
        for _ in range(7):
            page.keyboard.press("ArrowRight")
        settle(page)
        yield page


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


def contrast(one, other) -> float:
    """Of two colours, red, green and blue in 0 to 255, as WCAG 2.2 defines it: 1 to 21."""
    light = []
    for color in (one, other):
        value = np.array(color) / 255
        linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(light) + 0.05) / (min(light) + 0.05)


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


def test_the_page_opens_at_the_networks_answer(chromium, files):
    with opened(chromium, files["small"]) as page:
        assert text(page, "#iterations output") == "3 of 10" and text(page, "#epochs output") == "6 of 6"
        shown = [read(value) for value in page.locator("#parents .value").all_inner_texts()]
        assert shown == pytest.approx(TRACE.lengths[-1, 2, 0], abs=0.0051)


def test_epoch_0_crowns_nobody(page):
    assert page.locator("#parents .longest").count() == 1
    go(page, 3, 0)
    assert page.locator("#parents .longest").count() == 0
    assert text(page, "#status") == "Iteration 3, epoch 0: untrained."
    assert "Untrained" in text(page, "#picture figcaption")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_parents_stand_out_from_the_paper(chromium, files, scheme):
    """A contrast of 3 : 1, as WCAG 2.2 asks of graphics (its 1.4.11)."""
    with opened(chromium, files["small"], color_scheme=scheme) as page:
        colour = "(element) => getComputedStyle(element).backgroundColor"
        paper, *dots = (
            [int(channel) for channel in re.findall(r"\d+", shown)]
            for shown in (
                page.locator("body").evaluate(colour),
                *page.locator("#parents .dot").evaluate_all(
                    "(dots) => dots.map((dot) => getComputedStyle(dot).backgroundColor)"
                ),
            )
        )
        assert len(dots) == 10 and min(contrast(dot, paper) for dot in dots) >= 3


def test_a_narrow_page_still_says_what_is_beyond_training(chromium, files):
    with opened(chromium, files["small"], width=400) as page:
        go(page, 4, 2)
        assert text(page, "#iterations output").split("\n") == ["4 of 10", "beyond training"]


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


def test_a_large_graph_says_how_much_of_it_is_shown(chromium, files):
    with opened(chromium, files["large"]) as page:
        assert re.fullmatch(r"\d+ of 1152 children", text(page, "#children-head"))
        children = int(text(page, "#children-head").split()[0])
        assert f"{children * 10:,} of 11,520 couplings".replace(",", "\u202f") in text(page, "#kept")
        largest = LARGE.c[-1, LARGE.trained_iterations - 1, 0].astype(np.float64).max()
        assert f"Largest {largest:.3f}" in text(page, "#histogram figcaption")


def test_hovering_a_line_tells_the_traces_numbers(page):
    canvas = page.locator(".stage > canvas")
    width = canvas.bounding_box()["width"]
    seen = set()
    for y in range(15, 540, 35):
        canvas.hover(position={"x": width * 0.4, "y": y})
        settle(page)
        if not page.locator("#tip").is_visible():
            continue
        said = text(page, "#tip").replace("\u2212", "-")
        numbers = re.search(
            r"child (\d+) → class (\d)\ncoupling c +(\S+)\nlogit b +(\S+)\nvote agreement +(\S+)", said
        ).groups()
        child, parent = map(int, numbers[:2])
        edge = child * 10 + parent
        for name, digits, shown in zip(("c", "b", "agreement"), (3, 2, 2), numbers[2:], strict=True):
            state = getattr(TRACE, name)[-1, -1, 0].astype(np.float64)
            assert float(shown) == pytest.approx(state[edge], abs=half_step(state, digits))
        seen.add(edge)
    assert len(seen) > 5
    page.mouse.move(2, 2)
    settle(page)
    assert not page.locator("#tip").is_visible()


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


def test_one_line_is_as_wide_and_strong_as_its_coupling(page):
    """One child and one parent leave one line; beside the child its pixels add up to width times opacity."""
    c = TRACE.c[-1, -1, 0].astype(np.float64)
    widest = wide_range(TRACE.c[:, :, 0].astype(np.float64))[1]
    label = page.locator("#scale").get_attribute("aria-label")
    assert widest > 0.5 and label == f"Width of lines: 0, 0.10 undecided, {widest:.2f}"
    order = explorer_data(TRACE)["images"][0]["order"]
    height = page.locator(".stage > canvas").bounding_box()["height"]
    for edge in (c.argmax(), c.argmin(), np.argsort(c)[-4]):
        child, parent = divmod(int(edge), 10)
        page.keyboard.press("Escape")
        page.locator(".stage > canvas").click(position={"x": 8, "y": height / 16 * (order.index(child) + 0.5)})
        page.locator("#parents button").nth(parent).click()
        page.mouse.move(2, 2)
        settle(page)
        column = np.array(page.evaluate(OPACITIES + "; }", [0.2, 0.2])) / 255
        drawn = column[column > 0.08].sum()  # the others are paler
        share = c[edge] / widest
        assert drawn == pytest.approx((0.4 + 5.1 * share) * (0.4 + 0.55 * share), abs=0.25)


def test_an_undecided_child_and_an_undecided_image_have_thin_lines(chromium, tmp_path):
    """The widest line stands for five equal shares or more, so couplings of 0.09 to 0.11 are a fifth of that."""
    draw = np.random.default_rng(0)
    c = draw.uniform(0.09, 0.11, size=TRACE.c.shape).astype(np.float16)
    (path,) = viz.draw(dataclasses.replace(TRACE, c=c), tmp_path, format="html")
    with opened(chromium, path) as page:
        assert page.locator("#scale").get_attribute("aria-label") == "Width of lines: 0, 0.10 undecided, 0.50"
        page.locator(".stage > canvas").click(position={"x": 8, "y": 100})
        page.mouse.move(2, 2)
        settle(page)
        opacities = np.array(page.evaluate(OPACITIES + "; }", [0.5, 0.5])) / 255
        drawn = opacities[opacities > 0.1]  # ten lines, apart here; the other children's are paler
        assert 0 < drawn.sum() < 10 * 1.2 * (0.4 + 5.1 * 0.22) * (0.4 + 0.55 * 0.22)


def test_the_glow_follows_the_parent_that_is_chosen(page):
    def glow():
        settle(page)
        return page.evaluate("document.querySelector('#picture canvas').toDataURL()")

    by_parent = set()
    for j in (0, 4, 7):
        page.locator("#parents button").nth(j).click()
        by_parent.add(glow())
    assert len(by_parent) == 3
    go(page, 1, 2)
    assert "No child has chosen class 7 yet" in text(page, "#picture figcaption")


def test_the_field_of_a_child_is_framed(chromium, files):
    with opened(chromium, files["large"]) as page:
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        child = int(re.search(r"\d+", text(page, "#child h2"))[0])
        assert f"Frame: the 5 × 5 pixels that child {child} sees" in text(page, "#picture figcaption")
        top, left, _, _ = FIELDS[child]
        side = page.locator("#picture canvas").evaluate("(canvas) => canvas.width") / 16
        white = page.evaluate(
            "([x, y]) => [...document.querySelector('#picture canvas').getContext('2d').getImageData(x, y, 1, 1).data]",
            [int(left * side + 2.5 * side), max(0, int(top * side))],
        )
        assert white == [255, 255, 255, 255]


def test_places_are_painted_in_the_colours_of_the_parents_they_vote_for(chromium, files):
    def pixels(page):
        settle(page)
        side = page.locator("#picture canvas").evaluate("(canvas) => canvas.width") / 16
        return np.array(page.evaluate(COLORS, [[int(x * side)] * 2 for x in (2, 13, 7.5)]))[:, :3]

    colors = [255 * np.array(style.color(j)) for j in (1, 7)]
    with opened(chromium, files["black"]) as page:
        first, last, between = pixels(page)
        for got, color in zip((first, last), colors, strict=True):
            assert got.max() > 60 and np.abs(got / got.max() - color / color.max()).max() < 0.05
        assert between.max() < 20
        assert text(page, "#picture h2") == "Which parts vote for what"
        page.locator("#parents button").nth(7).click()
        first, last, _ = pixels(page)
        assert first.max() < 5 < 60 < last.max()
        assert text(page, "#picture h2") == "Which parts vote for class 7"
        page.locator("#parents button").nth(3).click()
        settle(page)
        assert "No part votes for class 3 here" in text(page, "#picture figcaption")


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


def test_tab_reaches_every_control_in_order_and_shows_where_it_is(page):
    reached = []
    page.locator("#begin").focus()  # the tour's, before them
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => {
                  const now = document.activeElement, shown = now.matches(".thumbs input") ? now.parentElement : now;
                  const name = now.id || now.getAttribute("aria-label") || now.tagName;
                  return [name, getComputedStyle(shown).outlineStyle];
                }"""
            )
        )
    names = [name for name, _ in reached]
    assert names[:3] == ["copy", "save-png", "save-svg"] and names[3].startswith("class 0")
    assert names[4:8] == ["Play the iterations", "iteration", "Play the epochs of training", "epoch"]
    assert names[8].startswith("Couplings of 16 children with 10 parents")
    assert [name.split(",")[0] for name in names[9:19]] == [f"class {j}" for j in range(10)]
    assert {style for _, style in reached[:19]} == {"solid"}


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


def test_less_motion_shows_whole_steps_only(chromium, files):
    from playwright.sync_api import expect

    with opened(chromium, files["small"], reduced_motion="reduce") as page:
        go(page, 9, 2)
        page.evaluate(
            """() => {
              window.seen = new Set();
              const look = () => {
                window.seen.add(document.querySelector("#parents .value").textContent);
                requestAnimationFrame(look);
              };
              look();
            }"""
        )
        page.locator("h1").click()
        page.keyboard.press(" ")
        expect(page.locator("#iterations output")).to_have_text(re.compile("^10 of 10"))
        settle(page)
        wanted = {f"{TRACE.lengths[2, r, 0, 0]:.2f}" for r in (8, 9)}
        assert set(page.evaluate("[...window.seen]")) == wanted


@pytest.mark.parametrize("name", ["small", "large", "random"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_window_of_400_pixels_needs_no_scrolling_sideways(chromium, files, name, scheme):
    with opened(chromium, files[name], color_scheme=scheme) as page:
        page.set_viewport_size({"width": 400, "height": 800})
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.querySelector('.stage > canvas').clientWidth") > 180
        outside = page.evaluate(
            """() => [...document.querySelectorAll("body *")].filter((element) => {
              const { left, right, width } = element.getBoundingClientRect();
              return width > 1 && (left < -1 || right > innerWidth + 1);
            }).map((element) => element.tagName + element.id)"""
        )
        assert outside == []


def test_the_colours_are_those_of_dark_and_light(chromium, files):
    for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 28)")):
        with opened(chromium, files["small"], color_scheme=scheme) as page:
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper


def test_names_that_look_like_markup_are_shown_as_they_are(chromium, tmp_path):
    name = "</script><b>"
    hostile = dataclasses.replace(TRACE, class_names=(name, *TRACE.class_names[1:]), about={"run": name})
    (path,) = viz.draw(hostile, tmp_path, format="html")
    with opened(chromium, path) as page:
        assert page.locator("#parents .name").first.inner_text() == name
        assert name in text(page, "#source") and name in page.title()
        assert page.locator("b").count() == 0


def test_a_trace_without_images_offers_none(chromium, files):
    with opened(chromium, files["random"]) as page:
        assert page.locator("#images").is_hidden() and page.locator("#picture").is_hidden()


def test_a_new_trace_is_drawn_by_one_call(chromium, files, tmp_path):
    """What a live page does: show(data) again, with fewer images, epochs and parents."""
    script = "show(stored);"
    small, other = files["small"].read_text(), explorer_data(RoutingTrace.random(6, 3, iterations=4))
    assert script in small
    twice = small.replace(
        script, f"{script}\nchoose({{ parent: 7, child: 12 }});\n{AS_BYTES}\nshow(asBytes({json.dumps(other)}));"
    )
    twice = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", twice)
    path = tmp_path / "twice.html"
    path.write_text(twice)
    with opened(chromium, path) as page:
        assert page.locator("#parents button").count() == 3
        assert page.locator("#picture").is_hidden() and page.locator("#epochs").is_hidden()
        assert text(page, "#children-head") == "6 children" and text(page, "#child h2") == "One child"
