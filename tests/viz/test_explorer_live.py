"""The explorer's network in Chromium, offline: draw and read, route and pull, compare and share, as PyTorch does."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from graphcaps.images.data.user_images import read_image
from graphcaps.images.recording import to_bytes

from . import browser
from .browser import ROWS, answered, check_accessible, draw, opened, pixels_of, press, sealed, settle
from .live import FEW, answer, network, page_of, routed

SEVEN = [(0.3, 0.2), (0.7, 0.2), (0.45, 0.85)]
NEAR = 4  # how far 8-bit weights may leave a decoded pixel, on a scale to 255
SEEN = "document.querySelector('#seen canvas').toDataURL()"  # the network's input


@pytest.fixture(scope="module")
def text():
    return page_of(network(), FEW)


@pytest.fixture(scope="module")
def page(chromium, text):
    """The page with all parents shown. It stays open, so each test first brings it into the state that it needs."""
    with opened(chromium, text, reduced_motion="reduce") as page:
        yield page


def visit(page, fragment: str) -> None:
    """Open a sealed link that ends in this fragment."""
    browser.visit(page, browser.sealed(page, fragment))


def seen(page) -> np.ndarray:
    """The pixels (1, H, W) of the network's last input."""
    return grey(page.locator("#seen canvas"))[None]


def grey(canvas) -> np.ndarray:
    """The red (H, W) of a canvas."""
    return pixels_of(canvas)[..., 0]


def slide(page, name: str, value: float) -> None:
    """Move a slider, which may be in a closed drawer."""
    page.locator(f"#{name}").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(value)
    )
    answered(page)


def shown_lengths(page) -> list[float]:
    """The lengths of all parents, in their order, if all are shown."""
    rows = page.locator("#parents button").evaluate_all(ROWS)
    return [length for _, length in sorted(rows)]


def row_of(page, parent: int):
    return page.locator(f"#parents [data-parent='{parent}']")


def test_draw_and_read(page):
    """A drawing is answered as by PyTorch, in every round, wherever and however large it is drawn."""
    visit(page, "view=all&draw=")
    assert seen(page).max() == 0 and page.locator("#hint").inner_text() == "Draw a digit here"
    assert page.locator("h1").inner_text() == "Which digit? The sheet is empty"
    assert page.locator("#doubts").inner_text().startswith("There is no answer")
    draw(page, SEVEN)
    wanted = answer(network(), seen(page))
    assert shown_lengths(page) == pytest.approx(wanted.lengths[2], abs=0.0051)
    assert page.locator("#shown").inner_text() == "Your drawing" and page.locator("#hint").is_hidden()
    top, _, _, drawn = wanted.tops[0]
    assert page.locator("#parents .longest .name").inner_text() == str(top)
    assert page.locator("#verdict").inner_text().endswith(str(top))
    picture = f"#parents [data-parent='{top}'] canvas"
    page.wait_for_function("(picture) => document.querySelector(picture).width === 28", arg=picture)
    shown = pixels_of(page.locator(picture))[..., 3]  # its opacity
    assert np.abs(shown - drawn[0].astype(int)).max() <= NEAR
    slide(page, "iteration", 1)
    page.wait_for_timeout(600)  # the other rounds are decoded when the drawing rests
    assert np.abs(pixels_of(page.locator(picture))[..., 3] - shown).max() > 0
    slide(page, "iteration", 7)
    large = seen(page)[0]
    page.locator("#clean").click()
    draw(page, SEVEN, size=0.4, at=(0.3, 0.7))
    small = seen(page)[0]
    assert np.abs(small - large).mean() < 4
    rows, columns = (np.flatnonzero(small.max(axis=axis) > 20) for axis in (1, 0))
    assert 19 <= rows[-1] - rows[0] + 1 <= 21 and columns[-1] - columns[0] < 20  # as MNIST's digits
    middle = [(small.sum(axis=axis) * (np.arange(28) + 0.5)).sum() / small.sum() for axis in (1, 0)]
    assert middle == pytest.approx([14, 14], abs=1)  # where lines cross, their ink is counted twice
    assert page.locator("#entropy output").inner_text().startswith("7")  # the round stays
    assert shown_lengths(page) == pytest.approx(answer(network(), seen(page)).lengths[6], abs=0.0051)


def test_an_image_is_seen_as_it_is_and_changed_and_undo_takes_everything_back(page):
    visit(page, "image=3")
    image = FEW.pixels[3].numpy().astype(int)
    assert np.array_equal(seen(page), image) and page.locator("#shown").inner_text() == "Test image: 3"
    slide(page, "turn", 90)
    assert page.locator("#shown").inner_text() == "Test image: 3, changed"
    assert np.abs(seen(page) - np.rot90(image, -1, axes=(1, 2))).max() <= 2
    turned = seen(page)
    draw(page, SEVEN)
    page.locator("#clean").click()
    for _ in range(2):
        page.keyboard.press("Control+z")
        answered(page)
    assert np.array_equal(seen(page), turned) and page.locator("#images input").nth(3).is_checked()
    for name, value in (("turn", 0), ("right", 3), ("down", -2)):
        slide(page, name, value)
    assert np.array_equal(seen(page)[:, :-2, 3:], image[:, 2:, :-3]) and seen(page)[:, :, :3].max() == 0


def lengths_of(image: int, held: dict[int, int | None]) -> np.ndarray:
    """The parents' lengths (J,) if children are held."""
    return np.linalg.norm(routed(network(), FEW.pixels[image], held)[1][-1]["v"], axis=1)


def pull(page, place: int, row: int | None) -> None:
    """Drag a ribbon of the child at this place to a row of the parents or, with None, drop it over the graph."""
    canvas = page.locator(".stage > canvas").bounding_box()
    page.mouse.move(canvas["x"] + 96, canvas["y"] + (place + 0.5) * canvas["height"] / 16)
    page.mouse.down()
    if row is None:
        page.mouse.move(canvas["x"] + 0.6 * canvas["width"], canvas["y"] + 5, steps=4)
    else:
        box = row_of(page, row).bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    answered(page)


def test_route_and_pull(page):
    """A line is pulled to another parent or let go, by mouse and by keyboard, and all rounds run again."""
    visit(page, "image=2&view=all")
    free = shown_lengths(page)
    pull(page, 3, 7)
    link = page.wait_for_function("() => /pull=\\d+\\.7/.test(location.hash) && location.hash").json_value()
    child = int(re.search(r"pull=(\d+)\.7", link)[1])
    wanted = lengths_of(2, {child: 7})
    assert shown_lengths(page) == pytest.approx(wanted, abs=0.0051) and shown_lengths(page) != free
    change = f"7 {'rises' if wanted[7] > free[7] else 'falls'} from {free[7]:.2f} to {wanted[7]:.2f}"
    assert change in page.locator("#pulled").inner_text()
    pull(page, 9, None)
    link = page.wait_for_function("() => location.hash.includes('-') && location.hash").json_value()
    held = {int(i): None if j == "-" else int(j) for i, j in re.findall(r"(\d+)\.(-|\d+)", link.split("pull=")[1])}
    assert held[child] == 7 and None in held.values()
    assert shown_lengths(page) == pytest.approx(lengths_of(2, held), abs=0.0051)
    press(page, "#release")
    assert shown_lengths(page) == free
    page.locator(".stage > canvas").focus()
    page.keyboard.press("ArrowDown")
    settle(page)
    child = int(re.search(r"part #(\d+)", page.locator("#pulls label").inner_text())[1])
    page.locator("#pull").select_option("4")
    answered(page)
    assert shown_lengths(page) == pytest.approx(lengths_of(2, {child: 4}), abs=0.0051)
    press(page, "#undo")
    assert shown_lengths(page) == free


def test_two_digits_are_read_and_strokes_are_white_while_all_are_undecided(chromium):
    with opened(chromium, page_of(network(objects=2), FEW), reduced_motion="reduce") as page:
        browser.visit(page, "screen=yours")
        assert page.locator("h1").inner_text().startswith("Which digits? ")
        assert len(page.locator("#parents .longest").all()) == 2
        page.locator("#clean").click()
        draw(page, SEVEN)
        page.wait_for_timeout(600)
        slide(page, "iteration", 1)
        assert np.ptp(pixels_of(page.locator("#sheet canvas"))[..., :3], axis=2).max() < 12  # white: all are undecided


def test_a_number_of_the_capsule_changes_the_reconstruction_and_goes_back(page):
    visit(page, "image=3")
    (parent, _, capsule, _), *_ = answer(network(), FEW.pixels[3].numpy()).tops
    page.locator("[aria-controls=why]").click()
    assert page.locator("#capsule").inner_text() == f"Vary the {parent}, a capsule of 16 numbers"
    shown = [text.replace("\u2212", "-") for text in page.locator("#numbers output").all_inner_texts()]
    assert [float(text) for text in shown] == pytest.approx(capsule, abs=0.0051)
    before = grey(page.locator("#bend > canvas"))
    slide(page, "number-5", 0.2)
    moved = torch.zeros(1, 10, 16)
    moved[0, parent] = torch.tensor(capsule) + 0.2 * torch.eye(16)[4]
    with torch.no_grad():
        wanted = to_bytes(network().decoder(moved, torch.tensor([parent])))[0, 0]
    assert np.abs(grey(page.locator("#bend > canvas")) - wanted.astype(int)).max() <= NEAR
    press(page, "#back")
    assert (grey(page.locator("#bend > canvas")) == before).all() and page.locator("#number-5").input_value() == "0"
    page.locator("[aria-controls=why]").click()


def test_compared_lengths_and_couplings_are_those_of_python(page):
    for one, other in ((("dynamic", 2), ("spherical", 7)), (("uniform", 3), ("attention", 3))):
        visit(page, f"image=3&compare={one[0]}.{one[1]}.{other[0]}.{other[1]}")
        assert "trained with dynamic routing, 3 rounds" in page.locator("#trained-with").inner_text()
        bars = page.locator("#compare tbody .bar").evaluate_all(
            "(bars) => bars.map((bar) => Number(bar.style.getPropertyValue('--share')))"
        )
        shown = np.array(bars).reshape(10, 2).T
        for side, (routing, iterations) in enumerate((one, other)):
            last = routed(network(), FEW.pixels[3], {}, routing, iterations)[1][-1]
            lengths, c = np.linalg.norm(last["v"], axis=1), last["c"]
            assert shown[side] == pytest.approx(lengths, abs=5e-3)
            cells = page.locator("#compare tfoot td").all_inner_texts()
            assert float(cells[2 + side].split()[0]) == pytest.approx(float(-(c * np.log(c)).sum() / 16), abs=5e-3)
            assert cells[side].split()[0] == str(lengths.argmax())
    page.locator("[aria-controls=why]").click()


def state(page) -> dict:
    """The parts of the page that a link must keep."""
    settle(page)
    return page.evaluate(
        f"""() => ({{
          seen: {SEEN},
          lengths: ({ROWS})([...document.querySelectorAll("#parents button")]).sort(([one], [other]) => one - other),
          screen: document.body.dataset.screen,
          sliders: [...document.querySelectorAll("#adjust input, #iteration, #epoch")].map((each) => each.value),
          chosen: [...document.querySelectorAll("#images input")].findIndex((each) => each.checked),
          label: document.querySelector("#pulls label").textContent,
          parent: document.querySelector("#parents [aria-pressed=true]")?.dataset.parent,
          routings: [...document.querySelectorAll("#compare select")].map((each) => each.value),
        }})"""
    )


def test_a_link_holds_a_drawing_and_all_that_is_chosen(chromium, text, page):
    visit(page, "view=all&draw=")
    draw(page, [(0.31, 0.22), (0.72, 0.19), (0.43, 0.87)], [(0.3, 0.5), (1.2, 0.55)], [(0.8, 0.8)])
    slide(page, "turn", -30)
    slide(page, "iteration", 2)
    row_of(page, 4).click()
    page.locator(".stage > canvas").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[aria-controls=why]").click()
    page.locator("#compare select").nth(2).select_option("attention")
    page.locator("#compare select").nth(1).select_option("1")
    page.locator("#pin").click()
    page.locator("#name").fill("<b>bar")
    before = state(page)
    assert before["parent"] == "4" and before["label"] == "Send <b>bar to"
    page.locator("#pull").select_option("6")
    answered(page)
    before = state(page)
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text } }")
    page.locator("[aria-controls=share]").click()
    page.locator("#copy").click()
    page.wait_for_function("() => document.querySelector('#note').textContent.startsWith('The link is copied')")
    link = page.evaluate("window.copied")
    page.wait_for_function("(link) => location.href === link", arg=link)  # the address is updated too
    with opened(chromium, text, end=link[link.index("#") :], reduced_motion="reduce") as other:
        assert state(other) == before
    page.locator("[aria-controls=share]").click()


UNFIT = [
    "image=<img src=x onerror=alert(1)>",
    "image=1&image=2",
    "draw=1.2.3",  # a step without its y
    "draw=zzzz.1",  # far from the sheet
    f"draw={'1.' * 35000}1",
    "turn=NaN",
    "__proto__=1",
    "child=3&unknown=1",
    "pull=3.10",
    "pin=3~a name of over twelve letters",
]


@pytest.mark.parametrize(("dataset", "invert"), [("own", False), ("kmnist", "auto")])
def test_a_picture_is_framed_as_predict_frames_it(chromium, tmp_path, dataset, invert):
    """It keeps its proportions beside its border's colour, and transparent pixels are white."""
    pixels = np.full((20, 40, 4), (180, 180, 180, 255), np.uint8)
    pixels[4:16, 4:20], pixels[4:16, 24:36] = (0, 0, 0, 255), (0, 0, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    wanted = to_bytes(read_image(tmp_path / "a.png", (1, 28, 28), invert).pixels)
    with opened(chromium, page_of(network(), FEW, dataset)) as page:
        page.locator("#file").set_input_files(tmp_path / "a.png")
        answered(page)
        assert np.abs(seen(page).astype(int) - wanted).mean() < 4  # browsers resize otherwise than Pillow


def test_links_that_are_cut_short_foreign_or_unfit_say_so_and_show_nothing(page):
    visit(page, "image=2")
    before, whole = state(page), sealed(page, "image=1&turn=-20&pull=3.7.5.-")
    foreign = whole[:-1] + ("0" if whole[-1] != "0" else "1")
    cut = [whole[:length] for length in range(5, len(whole), 7)]
    for fragment in [*cut, foreign, "image=1", "screen=rou", *(sealed(page, text) for text in UNFIT)]:
        browser.visit(page, fragment)
        assert page.locator("#unread").inner_text().startswith("This link couldn't be read"), fragment
        assert state(page) == before, fragment
    browser.visit(page, whole)
    assert page.locator("#unread").is_hidden() and state(page) != before


def test_a_saved_picture_is_named_after_the_run_and_as_large_as_it_says(page):
    visit(page, "image=2&iteration=2&parent=6&view=all")
    page.locator("[aria-controls=share]").click()
    with page.expect_download() as download:
        page.locator("#save-png").click()
    assert download.value.suggested_filename == "compact-on-mnist-run-test-3-epochs.png"
    picture = np.asarray(Image.open(download.value.path()))
    assert picture.shape == (1240, 2400, 4)
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
    with opened(chromium, text.replace(allowed, "")) as other:
        visit(other, "image=2&view=all")
        assert shown_lengths(other) == shown_lengths(page) and other.locator("#trouble").is_hidden()


def test_a_finger_draws_with_the_answer_in_sight_and_axe_finds_nothing(chromium, text):
    touch = {"has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    with opened(chromium, text, width=400, height=800, **touch) as page:
        visit(page, "compare=dynamic.3.spherical.2")
        box = page.locator("#sheet canvas").bounding_box()
        page.touchscreen.tap(box["x"] + 50, box["y"] + 60)
        answered(page)
        assert (seen(page) > 128).any()
        assert page.locator("#sheet canvas").evaluate("(canvas) => getComputedStyle(canvas).touchAction") == "none"
        graph = page.locator(".stage").bounding_box()
        assert graph["y"] >= 0 and graph["y"] + graph["height"] < 800
        check_accessible(page)
