"""Two routings side by side, links that hold what the page shows, and the view as a file, in Chromium.

The network isn't trained, and its capsules are long.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import numpy as np
import pytest
import torch
from PIL import Image

from graphcaps import route, viz
from graphcaps.data import Images, to_float

from .browser import browser, opened, settle, why_not
from .live import digits, network, page_of
from .traces import make_trace, with_pictures

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

FIRST = [int((digits().labels == label).int().argmax()) for label in range(4)]
FEW = Images(digits().pixels[FIRST], digits().labels[FIRST])
SVG = "{http://www.w3.org/2000/svg}"
SEEN = "document.querySelector('#seen canvas').toDataURL()"  # what the network sees


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared") / "explorer.html"
    path.write_text(page_of(network(), FEW), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(chromium, path):
    """It stays open, so a test begins with setting what it needs."""
    with opened(chromium, path, reduced_motion="reduce") as page:
        answered(page)
        yield page


def answered(page) -> None:
    page.locator("main[aria-busy=false]").wait_for()
    settle(page)


def visit(page, fragment: str) -> None:
    """Go on to this link, as by typing it."""
    page.evaluate(
        """(text) => new Promise((done) => {
          const before = location.hash;
          addEventListener("hashchange", done, { once: true });
          location.hash = text;
          if (location.hash === before) done();
        })""",
        fragment,
    )
    answered(page)


def copied(page) -> str:
    """The link, by the button."""
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text } }")
    page.locator("#copy").click()
    page.wait_for_function("() => document.querySelector('#note').textContent.startsWith('The link is copied')")
    return page.evaluate("window.copied")


def end(link: str) -> str:
    return link[link.index("#") :]


def draw(page, *lines) -> None:
    """Lines of points (x, y) in [0, 1] of the sheet's sides, by mouse."""
    page.locator("#clean").click()
    box = page.locator("#desk > canvas").bounding_box()
    for line in lines:
        for n, (x, y) in enumerate(line):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=5 if n else 1)
            if n == 0:
                page.mouse.down()
        page.mouse.up()
    answered(page)


def state(page) -> dict:
    """What a link is to keep."""
    settle(page)
    return page.evaluate(
        f"""() => ({{
          seen: {SEEN},
          lengths: [...document.querySelectorAll("#parents .value")].map((each) => each.textContent),
          sliders: [...document.querySelectorAll("#adjust input, #time input")].map((each) => each.value),
          chosen: [...document.querySelectorAll("#images input")].findIndex((each) => each.checked),
          child: document.querySelector("#child h2").textContent,
          parent: [...document.querySelectorAll("#parents button")].findIndex((each) => each.ariaPressed === "true"),
          compared: document.querySelector("#compare details").open,
          routings: [...document.querySelectorAll("#compare select")].map((each) => each.value),
        }})"""
    )


def test_a_link_holds_a_drawing_and_all_that_is_chosen(chromium, path, page):
    visit(page, "")
    draw(page, [(0.31, 0.22), (0.72, 0.19), (0.43, 0.87)], [(0.3, 0.5), (1.2, 0.55)], [(0.8, 0.8)])
    page.locator("#turn").fill("-30")
    page.locator("#thick").fill("0.25")
    answered(page)
    page.locator("#iteration").fill("2")
    page.locator("#parents button").nth(4).click()
    page.locator(".stage > canvas").focus()
    page.keyboard.press("ArrowDown")
    page.locator("#compare summary").click()
    page.locator("#compare select").nth(2).select_option("attention")
    page.locator("#compare select").nth(1).select_option("1")
    before = state(page)
    assert before["compared"] and before["parent"] == 4 and before["child"].startswith("Child")
    link = copied(page)
    page.wait_for_function("(link) => location.href === link", arg=link)  # the address follows by itself
    with opened(chromium, path, end=end(link), reduced_motion="reduce") as other:
        answered(other)
        assert state(other) == before and other.locator("#note").inner_text() == ""
        other.reload()
        answered(other)
        assert state(other) == before
        other.locator("#clean").click()
        answered(other)
        other.wait_for_function("() => location.hash.startsWith('#draw=&')")
        assert other.evaluate(SEEN) != before["seen"]
        visit(other, end(link)[1:])
        assert state(other) == before


@pytest.mark.long
def test_a_link_holds_an_image_of_the_shelf(chromium, path, page):
    visit(page, "image=6&down=2&child=3")
    before = state(page)
    assert before["chosen"] == 6 and before["child"] == "Child 3 divides itself" and not before["compared"]
    with opened(chromium, path, end=end(copied(page)), reduced_motion="reduce") as other:
        answered(other)
        assert state(other) == before
    visit(page, "")
    page.wait_for_function("() => location.hash === ''")
    assert copied(page) == path.as_uri()


def test_where_the_clipboard_is_refused_the_link_stands_in_a_field(page):
    visit(page, "image=1")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')) }")
    page.evaluate("() => { document.execCommand = () => false }")
    page.locator("#copy").click()
    page.locator("#link").wait_for()
    assert page.locator("#link").input_value().endswith("#image=1")
    assert page.locator("#note").inner_text().startswith("Copy the link from the field.")
    assert page.evaluate("getSelection().toString()").endswith("#image=1")
    page.evaluate("delete document.execCommand")


def test_a_link_holds_the_numbers_of_the_capsule_that_are_bent(chromium, path, page):
    bent = "[...document.querySelectorAll('#bend input')].map((each) => each.value)"
    drawn = "document.querySelector('#bend > canvas').toDataURL()"
    visit(page, "image=2")
    plain = page.evaluate(drawn)
    page.locator("#number-5").fill("0.2")
    page.locator("#number-16").fill("-0.25")
    answered(page)
    before = [page.evaluate(bent), page.evaluate(drawn)]
    assert before[1] != plain
    page.wait_for_function("() => location.hash === '#image=2&bend=5.20.16.-25'")
    with opened(chromium, path, end=end(copied(page)), reduced_motion="reduce") as other:
        answered(other)
        assert [other.evaluate(bent), other.evaluate(drawn)] == before
        other.locator("#back").click()
        other.wait_for_function("() => location.hash === '#image=2'")
        assert other.evaluate(drawn) == plain


LONG_STEP = base64.urlsafe_b64encode(b"\x01" + b"\xff" * 40 + b"\x01\x00").decode().rstrip("=")
HOSTILE = [
    "image=<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "image=99999999999999999999",
    "image=-1",
    "image=1.5",
    "image=1&image=2",
    "image=1&draw=",
    "draw=%%%",
    "draw=A",
    "draw=gICA",  # a number that doesn't end
    "draw=" + "gICA" * 49 + "AA",  # one that is too large for any place
    "draw=BQAA",  # a line of five points with one
    "draw=AA",  # a line of no points
    f"draw={LONG_STEP}",
    f"draw={'A' * 70000}",
    "turn=NaN",
    "turn=1e9",
    "turn=Infinity",
    "right=7.5",
    "thick=",
    "iteration=0",
    "iteration=11",
    "epoch=2",
    "child=16",
    "parent=constructor",
    "__proto__=1",
    "constructor=1",
    "compare=dynamic.3",
    "compare=dynamic.3.constructor.1",
    "compare=dynamic.99.uniform.1",
    "child=3&unknown=1",
    "bend=5",
    "bend=0.5",
    "bend=17.5",
    "bend=3.26",
    "bend=3.0",
    "bend=3.5.3.6",
    "bend=__proto__.5",
]


@pytest.mark.long
def test_fragments_that_do_not_fit_are_left_out_with_a_note(chromium, path, page):
    visit(page, "image=2")
    before = state(page)
    for fragment in HOSTILE:
        page.evaluate("document.querySelector('#note').textContent = ''")
        visit(page, fragment)
        assert page.locator("#note").inner_text() == "The end of this link doesn't fit this page, so it is left out."
        assert state(page) == before, fragment
    visit(page, "")
    with opened(chromium, path, end=f"#draw={LONG_STEP}", reduced_motion="reduce") as other:  # at the start, too
        answered(other)
        assert "doesn't fit" in other.locator("#note").inner_text()
        assert state(other) == state(page)


@torch.no_grad()
def lengths_of(pixels: torch.Tensor, routing: str, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """(J,) and couplings (E,) of the network's own votes under another routing."""
    layer, seen = network().capsules, []
    u = network().children_of(to_float(pixels[None]))
    route(layer.graph(), layer.votes(u), routing=routing, iterations=iterations, on_iteration=lambda *s: seen.append(s))
    _, _, c, v, _ = seen[-1]
    return v[:, 0].norm(dim=-1).numpy(), c[:, 0].numpy()


def test_compared_lengths_and_couplings_are_those_of_python(page):
    visit(page, "image=3&compare=dynamic.3.uniform.3")
    assert "trained with dynamic routing, 3 iterations" in page.locator("#trained-with").inner_text()
    pairs = [(("dynamic", 2), ("nobody", 7)), (("uniform", 3), ("attention", 3)), (("dynamic", 3), ("spherical", 4))]
    seen = set()
    for one, other in pairs:
        visit(page, f"image=3&compare={one[0]}.{one[1]}.{other[0]}.{other[1]}")
        bars = page.locator("#compare tbody .bar").evaluate_all(
            "(bars) => bars.map((bar) => Number(bar.style.getPropertyValue('--share')))"
        )
        shown, couplings = np.array(bars).reshape(10, 2).T, []
        for side, (routing, iterations) in enumerate((one, other)):
            lengths, c = lengths_of(FEW.pixels[3], routing, iterations)
            couplings.append(c)
            assert shown[side] == pytest.approx(lengths, abs=5e-3)
            seen.add(tuple(lengths.round(3)))
            entropy = float(-(c * np.log(c)).sum() / 16)
            cells = page.locator("#compare tfoot td").all_inner_texts()
            assert float(cells[2 + side].split()[0]) == pytest.approx(entropy, abs=5e-3)
            assert cells[side].split()[0] == str(lengths.argmax())
        child, parent, *values = re.match(
            r"child (\d+) → (\d): (\S+), (\S+)", page.locator("#moved li").first.inner_text()
        ).groups()
        edge, apart = int(child) * 10 + int(parent), abs(couplings[0] - couplings[1])
        assert apart[edge] > apart.max() - 5e-3
        assert [float(value) for value in values] == pytest.approx([float(c[edge]) for c in couplings], abs=5e-3)
        assert ("κ" in page.locator("#trained-with").inner_text()) == (other[0] == "spherical")
    assert len(seen) == 6


def test_space_opens_and_closes_the_comparison_and_plays_nothing(page):
    is_open = "document.querySelector('#compare details').open"
    before = page.evaluate(is_open)
    page.locator("#compare summary").focus()
    for now in (not before, before):
        page.keyboard.press("Space")
        assert page.evaluate(is_open) is now
    assert page.locator("#iterations button").get_attribute("aria-pressed") == "false"


def test_a_coupling_that_differs_is_chosen_in_the_graph(page):
    visit(page, "image=3&compare=dynamic.3.uniform.3")
    said = page.locator("#moved button").first.inner_text()
    page.locator("#moved button").first.focus()
    page.keyboard.press("Enter")
    child, parent = re.match(r"child (\d+) → (\d)", said).groups()
    chosen = state(page)
    assert chosen["child"] == f"Child {child} divides itself" and chosen["parent"] == int(parent)


@pytest.mark.long
def test_the_comparison_follows_a_drawing_and_a_blank_sheet_has_no_answer(page):
    visit(page, "compare=dynamic.3.uniform.1")
    first = page.locator("#compare tbody").inner_text()
    draw(page, [(0.5, 0.2), (0.5, 0.8)])
    assert page.locator("#compare tbody").inner_text() != first
    page.locator("#clean").click()
    answered(page)
    assert page.locator("#differs").inner_text() == "A blank sheet has no answer."
    visit(page, "")
    assert not state(page)["compared"]


def saved(page, kind: str) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(f"#save-{kind}").click()
    return download.value.suggested_filename, download.value.path().read_bytes()


def test_a_saved_svg_has_a_line_for_each_coupling_and_the_numbers(page):
    visit(page, "image=2&iteration=2&parent=6")
    name, content = saved(page, "svg")
    assert name == "compact-on-mnist-run-test-3-epochs.svg"
    root = ElementTree.fromstring(content)
    graph = root.find(f"{SVG}g[@class='graph']")
    lines = graph.findall(f"{SVG}path")
    assert len(lines) == 160 and all("C" in line.get("d") for line in lines)
    assert sum(float(line.get("stroke-opacity")) > 0.1 for line in lines) == 16
    numbers = [int(each.text) for each in sorted(graph.findall(f"{SVG}text"), key=lambda each: float(each.get("y")))]
    assert sorted(numbers) == list(range(16))
    page.locator(".stage > canvas").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert state(page)["child"] == f"Child {numbers[2]} divides itself"
    root = ElementTree.fromstring(saved(page, "svg")[1])
    weights = {
        each.text: each.get("font-weight") for each in root.find(f"{SVG}g[@class='graph']").findall(f"{SVG}text")
    }
    assert [int(number) for number, weight in weights.items() if weight == "700"] == [numbers[2]]
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert {*page.locator("#parents .value").all_inner_texts(), "Children choose parents"} <= set(texts)
    assert page.locator("#entropy figcaption").inner_text() in texts
    assert len(root.findall(f"{SVG}image")) == 1  # the picture beside the graph
    links = [value for each in root.iter() for key, value in each.attrib.items() if key.endswith("href")]
    assert links and all(value.startswith("data:image/png;base64,") for value in links)


def test_charts_of_drawings_and_images_have_numbers_at_their_ends(page):
    """What a saved view shows of an axis: its outermost numbers stand at or beyond all that is drawn."""
    for fragment in ("image=2", "draw="):
        visit(page, fragment)
        if fragment == "draw=":
            draw(page, [(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)])
        root = ElementTree.fromstring(saved(page, "svg")[1])
        entropy, histogram = (root.find(f"{SVG}g[@class='{name}']") for name in ("entropy", "histogram"))
        across = [float(each.get("x")) for each in histogram.findall(f"{SVG}text[@text-anchor='middle']")][:-1]
        bars = [float(each.get("x")) for each in histogram.findall(f"{SVG}rect")]
        assert len(across) > 2 and across[0] <= min(bars) and across[-1] > max(bars)
        assert across[0] == 46 and across[-1] == 548 - 12  # the ends of the axis
        up = [float(each.get("y")) - 0.35 * 12 for each in entropy.findall(f"{SVG}text[@text-anchor='end']")]
        curves = [re.findall(r"[ML]\S+ (\S+?)(?=L|$)", each.get("d")) for each in entropy.findall(f"{SVG}path")]
        assert max(up) >= max(float(y) for curve in curves for y in curve) - 0.01


@pytest.mark.long
def test_a_saved_png_is_the_same_picture(page):
    visit(page, "image=2")
    name, content = saved(page, "png")
    picture = Image.open(io.BytesIO(content))
    assert name.endswith(".png") and picture.size == (2400, 1944)
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    graph = pixels[300:1260, 684:1800]
    assert (pixels[0, 0] == 255).all() and (abs(graph - 255).sum(-1) > 30).mean() > 0.02


def test_a_comparison_that_is_open_is_in_the_saved_picture(page):
    visit(page, "image=3&compare=dynamic.3.uniform.3")
    root = ElementTree.fromstring(saved(page, "svg")[1])
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    said = page.locator("#compare tbody td, #compare tfoot td, #moved li, #differs").all_inner_texts()
    assert len(said) == 20 + 4 + 6 + 1 and {text.strip() for text in said} <= set(texts)
    assert "uniform routing" in texts
    drawn = [float(each.get("width")) for each in root.findall(f"{SVG}rect") if each.get("height") == "10"][-20:]
    bars = page.locator("#compare tbody .bar").evaluate_all(
        "(bars) => bars.map((bar) => Number(bar.style.getPropertyValue('--share')))"
    )
    assert np.ptp(bars) > 0.1 and drawn == pytest.approx([max(1, 230 * share) for share in bars], abs=0.01)
    height = float(root.get("height"))
    low = max(float(each.get("y")) for each in root.iter(f"{SVG}text"))
    assert 972 < low < height
    assert Image.open(io.BytesIO(saved(page, "png")[1])).size == (2400, 2 * height)
    visit(page, "")


def test_a_page_without_a_network_shares_its_images_and_names_with_markup_stay_text(chromium, tmp_path):
    names = ("</text><script>", "&amp;\x00", *(f"class {j}" for j in range(2, 10)))
    trace = dataclasses.replace(with_pictures(make_trace()), class_names=names)
    (path,) = viz.draw(trace, tmp_path, format="html")
    with opened(chromium, path, end="#image=1&epoch=0&iteration=7&parent=2", reduced_motion="reduce") as page:
        assert page.locator("#iterations output").inner_text().startswith("7 of 10")
        assert page.locator("#epochs output").inner_text().startswith("0 of")
        assert page.locator("#images input").nth(1).is_checked()
        assert page.locator("#parents button[aria-pressed=true] .name").inner_text() == "class 2"
        root = ElementTree.fromstring(saved(page, "svg")[1])
        texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
        assert any(text.startswith("</te") for text in texts) and any(text.startswith("&am") for text in texts)
        page.evaluate("() => { location.hash = 'draw=AQAA' }")
        page.wait_for_function("() => document.querySelector('#note').textContent.includes(\"doesn't fit\")")


def test_the_shelf_has_groups_that_keys_reach_and_wrong_answers_say_what_they_were_taken_for(page):
    visit(page, "")
    assert page.locator("#images p").all_inner_texts() == [
        "One of each class",
        "Hardest for this network",
        "No digit at all",
    ]
    assert page.locator(".thumbs").nth(2).locator("span").all_inner_texts()[1:] == ["letter A", "noise"]
    hard = page.locator(".thumbs").nth(1).locator("label").first
    shown, named = hard.inner_text(), hard.locator("input").get_attribute("aria-label")
    true, taken = re.match(r"(\d) ✗ (\d)$", shown).groups()
    assert true != taken and named == f"{true}, taken for {taken}"
    page.locator("#images input").nth(3).focus()
    page.keyboard.press("ArrowRight")
    answered(page)
    assert state(page)["chosen"] == 4
    page.set_viewport_size({"width": 400, "height": 800})
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tops = (
        page.locator(".thumbs")
        .nth(1)
        .locator("label")
        .evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().top)")
    )
    assert max(tops) == min(tops)  # one row, which scrolls
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_comparison_and_links_fit_into_400_pixels_with_targets_of_24(chromium, path, scheme):
    with opened(chromium, path, end="#compare=dynamic.3.spherical.2", width=400, color_scheme=scheme) as page:
        answered(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        small = page.locator("#share button, #compare button, #compare select, #compare summary").evaluate_all(
            """(all) => all.map((each) => each.getBoundingClientRect()).filter(({ width, height, right }) =>
              width && (Math.min(width, height) < 24 || right > 400)).length"""
        )
        assert small == 0
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
