"""The explorer says why, in Chromium: votes in the plane, formulas and an article with this image's numbers.

The network isn't trained, and its capsules are long. Its numbers are those that half precision can hold, so that the
page routes with the same ones.
"""

import copy
import functools
import re

import numpy as np
import pytest
import torch

from graphcaps import CapsNet

from .browser import check_axe, opened, sealed, settle, visit
from .live import FEW, network, page_of, routed

ROUNDS = 4
LOOKS = {"reduced_motion": "reduce"}
NEAR = 6e-4  # three digits are shown; the page has u_hat in single precision


@functools.cache
@torch.no_grad()
def model_of() -> CapsNet:
    torch.manual_seed(2)
    model = copy.deepcopy(network())
    for parameter in model.parameters():
        parameter.copy_(parameter.half())
    return model


@pytest.fixture(scope="module")
def page(chromium):
    """The page of dynamic routing. It stays open, so each test first brings it into the state that it needs."""
    with opened(chromium, page_of(model_of(), FEW), height=1600, **LOOKS) as page:
        visit(page, sealed(page, "view=all"))
        page.locator("[aria-controls=why]").click()
        yield page


def numbers(text: str) -> list[float]:
    """The numbers in a text that have a decimal point; labels have none."""
    plain = text.replace("\u2212 ", "-").replace("\u2212", "-").replace("\u202f", "")
    return [float(number) for number in re.findall(r"-?\d+\.\d+", plain)]


def select(page, presses: int, parent: int) -> int:
    """Choose a parent, and a child by pressing a key so many times; return the child."""
    page.keyboard.press("Escape")
    page.locator(".stage > canvas").focus()
    for _ in range(presses):
        page.keyboard.press("ArrowDown")
    page.locator(f"#parents [data-parent='{parent}']").click()
    settle(page)
    return int(re.search(r"part #(\d+), ", page.locator("#subject").inner_text())[1])


def test_formulas_hold_the_numbers_of_the_routing(page):
    u_hat, seen = routed(model_of(), FEW.pixels[0], {}, iterations=ROUNDS)
    for presses, parent, r in ((5, 3, 0), (11, 8, 1)):
        child = select(page, presses, parent)
        page.locator("#iteration").fill(str(r + 1), force=True)
        settle(page)
        state, following = seen[r], seen[r + 1]
        b, c, agreement = (state[name][child, parent] for name in ("b", "c", "agreement"))
        vote, v = u_hat[child, parent], state["v"][parent]
        shown = numbers(page.locator("#edge .formula").inner_text())
        assert shown[-1] == pytest.approx(following["b"][child, parent], abs=NEAR)
        assert shown[:-1] == pytest.approx([b, b, agreement], abs=NEAR)
        cosine = re.search(r"vectors is (\S+)\. ", page.locator("#edge > figcaption").inner_text())[1]
        assert numbers(cosine) == pytest.approx([vote @ v / np.linalg.norm(vote) / np.linalg.norm(v)], abs=NEAR)
        rows = np.array([numbers(row)[-3:] for row in page.locator("#softmax tbody tr").all_inner_texts()])
        assert rows[:, 0] == pytest.approx(state["b"][child], abs=NEAR)
        assert rows[:, 1] == pytest.approx(np.exp(state["b"][child]), rel=6e-3, abs=NEAR)
        assert rows[:, 2] == pytest.approx(state["c"][child], abs=NEAR)
        s = state["c"][:, parent] @ u_hat[:, parent]
        lines = [numbers(line) for line in page.locator("#lines li").all_inner_texts()]
        assert lines[0][-1] == pytest.approx(c, abs=NEAR)
        assert lines[1][-1] == pytest.approx(np.linalg.norm(s), abs=NEAR)
        assert lines[2] == pytest.approx([s @ s, 1 + s @ s, np.linalg.norm(v)], abs=NEAR)
        assert lines[3][-1] == pytest.approx(following["b"][child, parent], abs=NEAR)
        bars = np.array(numbers(page.locator("#edge > canvas").get_attribute("aria-label"))).reshape(-1, 2).T
        assert bars == pytest.approx(np.stack([vote, v]), abs=5.1e-3)


def test_votes_lie_in_the_plane_where_numpy_puts_them(page):
    u_hat, seen = routed(model_of(), FEW.pixels[0], {}, iterations=ROUNDS)
    parent = 6
    votes, v = u_hat[:, parent], seen[2]["v"][parent]
    along = v / np.linalg.norm(v)
    left = votes - np.outer(votes @ along, along)
    across = np.linalg.eigh(np.cov(left.T))[1][:, -1]
    across *= np.sign(across[np.abs(across).argmax()])
    select(page, 4, parent)
    page.locator("#votes summary").click()
    for r in (0, 3):
        page.locator("#iteration").fill(str(r + 1), force=True)
        settle(page)
        rows = np.array([numbers(row) for row in page.locator("#votes tbody tr").all_inner_texts()])
        c, agreement = seen[r]["c"][:, parent], seen[r]["agreement"][:, parent]
        wanted = np.stack([votes @ along, votes @ across, c, agreement], axis=1)
        np.testing.assert_allclose(rows, wanted, atol=NEAR)
        mean = np.linalg.norm(c @ votes) / (c @ np.linalg.norm(votes, axis=1))
        degrees = numbers(page.locator("#votes figcaption").inner_text())
        assert degrees[0] == pytest.approx(np.degrees(np.arccos(mean)), abs=0.051)


def test_what_is_pointed_at_lights_up_in_every_figure(page):
    """The four lines, which stay in sight, and all figures follow the pointer; a term lights up what shows it."""
    _, seen = routed(model_of(), FEW.pixels[0], {}, iterations=ROUNDS)
    page.locator("#iteration").fill("3", force=True)
    page.keyboard.press("Escape")
    settle(page)
    child, parent = map(int, re.findall(r"\d+", page.locator("#edge h3").inner_text()))
    other = (parent + 3) % 10
    page.locator("#softmax tbody tr").nth(other).hover()
    settle(page)
    assert page.locator("#lines-head").inner_text() == f"Round 3 for part #{child} → {other}"
    assert page.locator("#edge h3").inner_text() == f"Part #{child} → {other}"
    coupling = numbers(page.locator("#softmax .formula").inner_text())[-1]
    assert coupling == pytest.approx(seen[2]["c"][child, other], abs=NEAR)
    assert page.locator("#votes h3").inner_text().endswith(f"votes for {other}")
    page.locator("dfn[data-term=vote]").focus()
    lit = page.locator(".lit").evaluate_all("(all) => all.map((each) => each.closest('[id]').id)")
    assert {"votes", "edge", "lines"} <= set(lit)
    page.keyboard.press("Escape")
    assert page.locator(".lit").count() == 0 and page.locator("#card").is_hidden()
    page.locator("#round").press("ArrowLeft")
    settle(page)
    assert page.locator("#entropy output").inner_text() == "2"
    check_axe(page)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.locator("#lines").bounding_box()["y"] == 0
    page.emulate_media(media="print")  # what is open isn't printed, and is drawn without an error
    settle(page)
    assert page.locator("#why").is_hidden() and page.locator(".stage").is_visible()
