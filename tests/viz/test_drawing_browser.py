"""The explorer's network in Chromium, offline: draw, turn, vary; what it sees is framed as the data set, what it says
is what PyTorch says."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from graphcaps.trace.recording import to_bytes

from .browser import answered, check_accessible, check_fits, draw, opened, settle
from .live import answer, digits, network, page_of

SEVEN = [(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)]
FIVE = digits().pixels[digits().labels == 5][0].numpy().astype(int)  # the sixth of one of each class
NEAR = 4  # of 255: how far 8-bit weights leave a decoded pixel


@pytest.fixture(scope="module")
def text():
    return page_of(network())


@pytest.fixture(scope="module")
def page(chromium, text):
    """It stays open, so a test begins with setting what it needs."""
    with opened(chromium, text, reduced_motion="reduce") as page:
        yield page


def seen(page) -> np.ndarray:
    """(1, H, W) pixels that the network was asked about last."""
    read = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
    canvas = page.locator("#seen canvas")
    rgba = np.array(canvas.evaluate(read)).reshape(canvas.evaluate("(canvas) => canvas.height"), -1, 4)
    assert (rgba[..., 3] == 255).all() and (rgba[..., :3] == rgba[..., :1]).all()
    return rgba[None, ..., 0]


def slide(page, name: str, value: float) -> None:
    page.locator(f"#{name}").fill(str(value))
    answered(page)


def pick(page, image: int) -> None:
    page.locator("#images label").nth(image).click()
    answered(page)


def shown_lengths(page) -> list[float]:
    return [float(text) for text in page.locator("#parents .value").all_inner_texts()]


def pixels_of(page, selector: str) -> str:
    return page.locator(selector).first.evaluate("(canvas) => canvas.toDataURL()")


def test_a_drawing_is_answered_with_the_networks_lengths_and_reconstructions(page):
    pick(page, 5)
    page.locator("#iteration").fill("3")
    before, reconstruction = shown_lengths(page), pixels_of(page, "#tops canvas")
    draw(page, SEVEN)
    wanted = answer(network(), seen(page))
    assert shown_lengths(page) == pytest.approx(wanted.lengths[2], abs=0.0051)
    assert shown_lengths(page) != before and pixels_of(page, "#tops canvas") != reconstruction
    shown = [text.split() for text in page.locator("#tops li").all_inner_texts()]
    assert [int(name) for name, _ in shown] == [parent for parent, *_ in wanted.tops]
    assert [float(length) for _, length in shown] == pytest.approx(
        [length for _, length, *_ in wanted.tops], abs=0.0051
    )
    assert page.locator("#shown").inner_text() == "Your drawing."
    assert page.locator("#images input:checked").count() == 0
    assert page.locator("#parents .longest .name").inner_text() == str(wanted.tops[0][0])
    for canvas, (*_, drawn) in zip(page.locator("#tops canvas").all(), wanted.tops, strict=True):
        assert np.abs(grey(canvas) - drawn[0].astype(int)).max() <= NEAR
    page.locator("#iteration").fill("7")
    page.locator("#parents button").nth(4).click()
    draw(page, [(0.2, 0.5), (0.8, 0.5)])  # what is chosen stays
    assert page.locator("#iterations output").inner_text().startswith("7 of 10")
    assert page.locator("#parents button[aria-pressed=true] .name").inner_text() == "4"
    assert shown_lengths(page) == pytest.approx(answer(network(), seen(page)).lengths[6], abs=0.0051)
    page.keyboard.press("Escape")


def grey(canvas) -> np.ndarray:
    """(H, W): the red of a canvas of 28 x 28 pixels."""
    read = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, 28, 28).data]"
    return np.array(canvas.evaluate(read)).reshape(28, 28, 4)[..., 0]


def test_a_drawing_is_framed_as_mnist_wherever_and_however_large_it_is_drawn(page):
    framed = []
    for size, at in ((1.0, (0.5, 0.5)), (0.4, (0.3, 0.7)), (0.5, (0.72, 0.3))):
        page.locator("#clean").click()
        draw(page, SEVEN, size=size, at=at)
        image = seen(page)[0]
        rows, columns = (np.flatnonzero(image.max(axis=axis) > 20) for axis in (1, 0))
        assert 19 <= rows[-1] - rows[0] + 1 <= 21 and columns[-1] - columns[0] < 20
        middle = [(image.sum(axis=axis) * (np.arange(28) + 0.5)).sum() / image.sum() for axis in (1, 0)]
        assert middle == pytest.approx([14, 14], abs=1)  # where lines meet, their mass is counted twice
        framed.append(image)
    for image in framed[1:]:
        assert np.abs(image - framed[0]).mean() < 4


def test_undo_takes_back_strokes_and_what_they_erased(page):
    def sheet():
        answered(page)
        return seen(page).tolist(), page.locator("#shown").inner_text(), page.locator("#turn").input_value()

    pick(page, 5)
    slide(page, "turn", 40)
    turned = sheet()
    draw(page, SEVEN)
    one = sheet()
    assert one[0] != turned[0] and turned[1:] == ("Test image: 5, changed", "40")
    page.locator("#clean").click()
    answered(page)
    page.locator("#undo").click()
    assert sheet() == one
    page.keyboard.press("Control+z")
    assert sheet() == turned and page.locator("#images input").nth(5).is_checked()


def test_an_empty_sheet_has_no_answer_and_the_page_says_why(page):
    pick(page, 5)
    page.locator("#iteration").fill("3")
    assert not page.locator("#doubts").is_visible()
    page.locator("#clean").click()
    answered(page)
    assert seen(page).max() == 0 and page.locator("#shown").inner_text() == "An empty sheet."
    said = page.locator("#doubts").inner_text()
    assert said.startswith("No answer: the image is blank: ") and said.endswith("an empty sheet; they name no class.")
    assert page.locator("#parents .longest").count() == 0
    assert page.locator("#status").inner_text().startswith("Iteration 3, epoch 3: no answer.")
    draw(page, SEVEN)
    assert page.locator("#parents .longest").count() == 1
    assert not page.locator("#doubts").is_visible()


def test_a_test_image_is_seen_as_it_is_and_turned_moved_and_thickened(page):
    pick(page, 5)
    assert np.array_equal(seen(page), FIVE)
    assert page.locator("#shown").inner_text() == "Test image: 5"
    settle(page)
    longest = page.locator("#tops li:first-child .name").inner_text()
    judged = "True label: 5." if longest == "5" else f"Wrong: {longest} is longest, the true label is 5."
    assert page.locator("#picture figcaption").inner_text().startswith(judged)
    slide(page, "turn", 180)
    assert page.locator("#shown").inner_text() == "Test image: 5, changed"
    assert np.abs(seen(page) - FIVE[:, ::-1, ::-1]).max() <= 2
    slide(page, "turn", 90)
    assert np.abs(seen(page) - np.rot90(FIVE, -1, axes=(1, 2))).max() <= 2
    slide(page, "turn", 0)
    slide(page, "right", 3)
    slide(page, "down", -2)
    assert np.array_equal(seen(page)[:, :-2, 3:], FIVE[:, 2:, :-3]) and seen(page)[:, :, :3].max() == 0
    pick(page, 4)
    pick(page, 5)
    assert np.array_equal(seen(page), FIVE)
    ink = {}
    for thick in (-1, 0, 1):
        slide(page, "thick", thick)
        ink[thick] = seen(page).sum()
        assert (np.sign(seen(page) - FIVE) * thick >= 0).all()
    assert ink[-1] < 0.9 * ink[0] and ink[1] > 1.1 * ink[0]


def test_two_digits_are_shown_each_in_its_own_colour(chromium):
    model = copy.deepcopy(network(objects=2))
    with torch.no_grad():
        model.decoder.layers[-1].weight *= 3  # or no pixel would be one digit's more than the other's
    with opened(chromium, page_of(model)) as page:
        answered(page)
        draw(page, SEVEN)
        (one, _, _, first), (other, _, _, second), _ = answer(model, seen(page)).tops
        assert page.locator("#read figcaption b").all_inner_texts() == [str(one), str(other)]
        read = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, 28, 28).data]"
        colours = np.array(
            page.locator("#read .dot").evaluate_all(
                "(all) => all.map((dot) => getComputedStyle(dot).backgroundColor.match(/\\d+/g).map(Number))"
            )
        )
        assert len(set(map(tuple, colours.tolist()))) == 2
        shown = np.array(page.locator("#read canvas").evaluate(read)).reshape(28, 28, 4)[..., :3]
        light, parts = seen(page)[0] / 255, np.stack([first[0], second[0]]).astype(float)
        drawn = parts.sum(0)
        strength = np.minimum(1, drawn / (0.25 * drawn.max()))[..., None]
        share = (parts**2 / np.maximum((parts**2).sum(0), 1e-9))[..., None]
        wanted = light[..., None] * ((1 - strength) * 255 + strength * (share * colours[:, None, None]).sum(0))
        assert np.abs(shown - wanted).max() < 2
        assert light.max() == 1
        for canvas, colour, (*_, picture) in zip(
            page.locator("#tops canvas").all(), colours, answer(model, seen(page)).tops, strict=False
        ):
            painted = np.array(canvas.evaluate(read)).reshape(28, 28, 4)[..., :3]
            assert np.abs(painted - colour * picture[0][..., None] / 255).max() <= NEAR
        page.locator("#clean").click()
        answered(page)
        assert page.locator("#read").is_hidden()


def test_a_number_of_the_capsule_changes_the_reconstruction_and_goes_back(page):
    pick(page, 4)  # choosing another image sets the sliders back
    pick(page, 5)
    (parent, _, capsule, _), *_ = answer(network(), FIVE).tops
    assert page.locator("#capsule").inner_text() == f"Vary the {parent}: its capsule is 16 numbers"
    shown = [text.replace("\u2212", "-") for text in page.locator("#numbers output").all_inner_texts()]
    assert [float(text) for text in shown] == pytest.approx(capsule, abs=0.0051)
    before = pixels_of(page, "#bend > canvas")
    slide(page, "number-5", 0.2)
    moved = torch.zeros(1, 10, 16)
    moved[0, parent] = torch.tensor(capsule) + 0.2 * torch.eye(16)[4]
    with torch.no_grad():
        wanted = to_bytes(network().decoder(moved, torch.tensor([parent])))[0, 0]
    assert np.abs(grey(page.locator("#bend > canvas")) - wanted.astype(int)).max() <= NEAR
    page.locator("#back").click()
    settle(page)
    assert pixels_of(page, "#bend > canvas") == before and page.locator("#number-5").input_value() == "0"


def test_a_page_cut_short_says_so(chromium, text):
    for share in (0.5, 0.99):
        with opened(chromium, text[: int(share * len(text))], trouble="cut short") as page:
            page.locator("#broken").wait_for()
            assert page.locator("#broken").inner_text().startswith("This page is damaged or cut short")
            assert not page.locator("h1").is_visible()


def test_a_finger_draws_with_the_answer_in_sight_and_axe_finds_nothing(chromium, text):
    touch = {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    with opened(chromium, text, width=400, height=800, **touch) as page:
        box = page.locator("#desk > canvas").bounding_box()
        page.touchscreen.tap(box["x"] + 50, box["y"] + 60)
        answered(page)
        assert page.locator("#shown").inner_text() == "Your drawing." and (seen(page) > 128).any()
        assert page.locator("#desk > canvas").evaluate("(canvas) => getComputedStyle(canvas).touchAction") == "none"
        assert page.locator("#tops li:first-child").bounding_box()["y"] < 800 and page.evaluate("scrollY") == 0
        graph = page.locator(".stage").bounding_box()
        assert graph["y"] + graph["height"] < 800, "the graph is on the first screen too"
        check_fits(page)
        check_accessible(page)


def test_the_epoch_slider_routes_a_drawing_with_the_weights_of_then(chromium):
    torch.manual_seed(5)
    before = {0: copy.deepcopy(network()), 1: copy.deepcopy(network())}
    with torch.no_grad():
        for model in before.values():
            model.capsules.weight.copy_(model.capsules.weight[torch.randperm(len(model.capsules.weight))])
    networks = [*before.values(), network()]

    def check(page, k: int) -> None:
        wanted = answer(networks[k], seen(page))
        page.wait_for_function(
            "(done) => document.querySelector('#status').textContent.includes(done)", arg=f"epoch {[0, 1, 3][k]}"
        )
        answered(page)
        assert shown_lengths(page) == pytest.approx(wanted.lengths[2], abs=0.0051)
        top = "untrained" if k == 0 else f"longest parent {wanted.lengths[2].argmax()}"
        assert top in page.locator("#status").inner_text()

    def to(page, k: int) -> None:
        page.locator("#epoch").fill(str(k))
        settle(page)  # it asks at the next frame
        answered(page)

    with opened(chromium, page_of(network(), before=before), reduced_motion="reduce") as page:
        assert page.locator("#epoch").get_attribute("max") == "3"
        page.locator("#iteration").fill("3")
        draw(page, SEVEN)
        assert page.locator("#epoch").get_attribute("max") == "2"
        check(page, 2)
        assert page.locator("#epochs output").inner_text() == "3 of 3 3 of 4 fit"
        best = page.locator("#verdict").inner_text()
        for k in (0, 1):
            to(page, k)
            check(page, k)
            assert page.locator("#verdict").inner_text() == f"{best}, in epoch 3"
        draw(page, [(0.2, 0.5), (0.8, 0.5)])  # at epoch 1
        check(page, 1)
        page.wait_for_function("() => /draw=.*&epoch=1/.test(location.hash) || /epoch=1.*draw=/.test(location.hash)")
        page.reload()
        answered(page)
        check(page, 1)
        pick(page, 5)  # an image of the trace, which has epoch 2 too
        assert page.locator("#epoch").get_attribute("max") == "3" and page.locator("#epoch").input_value() == "1"
