"""docs/explorer.html, the page that comes with the documentation: it has the current scripts, and its trained network
names two digits that are drawn over each other with the mouse."""

from pathlib import Path

import numpy as np
from traces import stored_in

from graphcaps.images.training.run_folder import Run
from graphcaps.viz import GraphPicture
from graphcaps.viz.explorer.html import with_data

from .browser import answered, draw, opened, pixels_of, press, settle

PAGE = Path(__file__).parents[2] / "docs" / "explorer.html"
# Lines of points (x, y) in percent of the sheet's sides, as a right hand goes
DIGITS = {
    2: [[(31, 29), (38, 19), (52, 18), (64, 27), (63, 43), (47, 62), (30, 80), (42, 79), (56, 80), (72, 82)]],
    7: [[(27, 22), (50, 19), (74, 19), (64, 42), (54, 62), (48, 86)]],
}


def test_the_page_has_the_scripts_and_parts_of_now():
    """After a change of viz/explorer/page, ``python tests/viz/docs_page.py`` puts it into the page."""
    text = PAGE.read_text(encoding="utf-8")
    data = text[text.index('id="trace">') :]
    now = with_data(stored_in(text))
    assert text.replace(data, "") == now[: now.index('id="trace">')]


def test_a_trained_network_names_two_digits_drawn_over_each_other_with_the_mouse(chromium):
    with opened(chromium, PAGE, end="#screen=yours") as page:
        page.locator("#clean").click()
        for lines in DIGITS.values():
            draw(page, *([(x / 100, y / 100) for x, y in line] for line in lines))
        assert page.locator("#shown").inner_text() == "Your drawing"
        read = page.locator("#verdict").inner_text()  # "read as 2 + 7", or "perhaps 2 + 7"
        assert {int(word) for word in read.split() if word.isdigit()} == set(DIGITS)
        assert page.locator("#parents .longest .name").all_inner_texts() == ["2", "7"]


def test_strokes_have_the_colours_of_the_picture_by_python(chromium):
    trace = Run.open("multimnist").trace()
    tint = GraphPicture(trace, image=10).tint
    with opened(chromium, PAGE, end="#screen=routing", reduced_motion="reduce") as page:
        for r in (0, 8, 13):
            page.locator("#iteration").fill(str(r + 1), force=True)
            page.wait_for_timeout(1000)  # ms, in which the decoder's pictures come
            shown = pixels_of(page.locator("#sheet canvas"))[..., :3] / 255
            middles = ((np.arange(36) + 0.5) * len(shown) / 36).astype(int)  # of 36 x 36 pixels
            wanted = tint(trace.c[-1, r, 10].astype(float), float(r))
            off = np.abs(shown[middles][:, middles] - wanted)
            assert off.mean() < 0.002 and off.max() < 0.08  # the page has weights of 8 and 16 bits


def test_after_a_pull_rows_keep_their_old_lengths_and_sentences_say_why_parents_fell_and_rose(chromium):
    """Part 13 of the 8 beside the 9 is pulled to the 9: both fall, and another parent rises."""
    with opened(chromium, PAGE, end="#screen=yours", reduced_motion="reduce") as page:
        page.locator(".stage > canvas").focus()
        page.keyboard.press("ArrowDown")
        settle(page)
        assert page.locator("#pulls label").inner_text() == "Send part #13 to"
        page.locator("#pull").select_option("9")
        answered(page)
        pulled = page.locator("#pulled").inner_text()
        assert "anew. 8 falls from 0.94 to 0.88, 9 falls from 0.96 to 0.92, 4 rises from 0.02 to 0.16," in pulled
        assert "4 rises because part #2 now gives it 22 % of its vote instead of 2 %." in pulled
        assert page.locator("#parents button:not(.others) .name").all_inner_texts() == ["8", "9"]
        assert page.locator("#parents .longest .name").all_inner_texts() == ["8", "9"]
        assert page.locator("#parents button:not(.others) .was").all_inner_texts() == ["was 0.94", "was 0.96"]
        press(page, "[aria-controls=why]")
        assert page.locator("#subject").inner_text().startswith("This is about part #13, and its parent 9.")
        assert page.locator("#why").inner_text().count("your pull sets c to 1") >= 1
