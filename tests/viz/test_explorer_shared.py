"""Two routings side by side, links that hold what the page shows, and the view as a file, in Chromium.

The network isn't trained, and its capsules are long.
"""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from graphcaps import route
from graphcaps.data import to_float
from graphcaps.routing.names import as_routing

from .browser import answered, check_accessible, check_fits, draw, opened, settle
from .live import FEW, network, page_of

SVG = "{http://www.w3.org/2000/svg}"
SEEN = "document.querySelector('#seen canvas').toDataURL()"  # what the network sees


@pytest.fixture(scope="module")
def text():
    return page_of(network(), FEW)


@pytest.fixture(scope="module")
def page(chromium, text):
    """It stays open, so a test begins with setting what it needs."""
    with opened(chromium, text, reduced_motion="reduce") as page:
        yield page


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


def test_a_link_holds_a_drawing_and_all_that_is_chosen(chromium, text, page):
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
    with opened(chromium, text, end=end(link), reduced_motion="reduce") as other:
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


LONG_STEP = base64.urlsafe_b64encode(b"\x01" + b"\xff" * 40 + b"\x01\x00").decode().rstrip("=")
UNFIT = [
    "image=<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "image=99999999999999999999",
    "image=1&image=2",
    "draw=%%%",
    "draw=gICA",  # a number that doesn't end
    "draw=BQAA",  # a line of five points with one
    f"draw={LONG_STEP}",
    f"draw={'A' * 70000}",
    "turn=NaN",
    "iteration=11",
    "parent=constructor",
    "__proto__=1",
    "compare=dynamic.99.uniform.1",
    "child=3&unknown=1",
    "bend=17.5",
]


@pytest.mark.long
def test_fragments_that_do_not_fit_are_left_out_with_a_note(chromium, text, page):
    visit(page, "image=2")
    before = state(page)
    for fragment in UNFIT:
        page.evaluate("document.querySelector('#note').textContent = ''")
        visit(page, fragment)
        assert page.locator("#note").inner_text() == "The end of this link doesn't fit this page, so it is left out."
        assert state(page) == before, fragment
    visit(page, "")
    with opened(chromium, text, end=f"#draw={LONG_STEP}", reduced_motion="reduce") as other:  # at the start, too
        answered(other)
        assert "doesn't fit" in other.locator("#note").inner_text()
        assert state(other) == state(page)


@torch.no_grad()
def lengths_of(pixels: torch.Tensor, routing: str, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """(J,) and couplings (E,) of the network's own votes under another routing."""
    layer, seen = network().capsules, []
    u = network().children_of(to_float(pixels[None]))
    kappa = {"concentration": 1.0} if routing == "spherical" else {}  # the page's, where the network has none
    algorithm = as_routing(routing, iterations=iterations, **kappa)
    route(layer.graph(), layer.votes(u), algorithm, on_iteration=lambda *state: seen.append(state))
    _, _, c, v, _ = seen[-1]
    return v[:, 0].norm(dim=-1).numpy(), c[:, 0].numpy()


def test_compared_lengths_and_couplings_are_those_of_python(page):
    visit(page, "image=3&compare=dynamic.3.uniform.3")
    assert "trained with dynamic routing, 3 iterations" in page.locator("#trained-with").inner_text()
    pairs = [(("dynamic", 2), ("spherical", 7)), (("uniform", 3), ("attention", 3)), (("dynamic", 3), ("spherical", 4))]
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
            r"child (\d+) → (\d): (\S+), (\S+)", page.locator("#differences li").first.inner_text()
        ).groups()
        edge, apart = int(child) * 10 + int(parent), abs(couplings[0] - couplings[1])
        assert apart[edge] > apart.max() - 5e-3
        assert [float(value) for value in values] == pytest.approx([float(c[edge]) for c in couplings], abs=5e-3)
        assert ("κ" in page.locator("#trained-with").inner_text()) == (other[0] == "spherical")
    assert len(seen) == 6


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
    assert {*page.locator("#parents .value").all_inner_texts(), page.locator("h1").inner_text()} <= set(texts)
    assert page.locator("#entropy figcaption").inner_text() in texts
    assert len(root.findall(f"{SVG}image")) == 1  # the picture beside the graph
    links = [value for each in root.iter() for key, value in each.attrib.items() if key.endswith("href")]
    assert links and all(value.startswith("data:image/png;base64,") for value in links)


def test_the_page_with_a_comparison_fits_into_400_pixels_and_axe_finds_nothing(chromium, text):
    link = "#compare=dynamic.3.spherical.2"
    with opened(chromium, text, end=link, width=400, height=800, reduced_motion="reduce") as page:
        check_fits(page)
        check_accessible(page)
        tops = (
            page.locator(".thumbs >> nth=1")
            .locator("label")
            .evaluate_all("(labels) => labels.map((label) => label.getBoundingClientRect().top)")
        )
        assert len(set(tops)) == 1  # one row, which scrolls
