"""Ten digits are drawn with the mouse on docs/explorer.html, the page that comes with the documentation, and it names
them: its network is trained, and no test image has a part in this."""

from __future__ import annotations

from pathlib import Path

import pytest

from .browser import browser, opened, settle, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

PAGE = Path(__file__).parents[1] / "docs" / "explorer.html"
# Lines of points (x, y) in percent of the sheet's sides, as a right hand goes
DIGITS = {
    0: [[(46, 18), (34, 30), (30, 50), (35, 72), (48, 82), (62, 76), (70, 55), (67, 32), (56, 18), (44, 18)]],
    1: [[(54, 18), (51, 42), (46, 84)]],
    2: [[(31, 29), (38, 19), (52, 18), (64, 27), (63, 43), (47, 62), (30, 80), (42, 79), (56, 80), (72, 82)]],
    3: [[(31, 24), (45, 17), (60, 23), (62, 38), (48, 48), (62, 54), (67, 68), (56, 82), (40, 82), (29, 75)]],
    4: [[(34, 20), (30, 38), (30, 50), (42, 53), (58, 50), (68, 47)], [(68, 20), (66, 45), (62, 84)]],
    5: [[(68, 20), (50, 20), (38, 22), (36, 45), (50, 43), (63, 50), (66, 63), (58, 79), (45, 83), (32, 76)]],
    6: [[(60, 15), (46, 30), (37, 50), (35, 68), (44, 82), (56, 81), (65, 70), (62, 56), (50, 50), (38, 60)]],
    7: [[(30, 24), (50, 22), (68, 22), (60, 42), (50, 62), (44, 84)]],
    8: [
        [(62, 26), (50, 18), (38, 26), (40, 38), (52, 50), (63, 62), (61, 78), (50, 85), (38, 78), (38, 64), (50, 50)]
        + [(61, 38), (62, 26)]
    ],
    9: [[(64, 29), (53, 19), (40, 22), (35, 34), (41, 47), (53, 48), (64, 34), (64, 45), (62, 60), (58, 84)]],
}


@pytest.mark.long
def test_a_trained_network_names_nine_of_ten_digits_or_all_drawn_with_the_mouse():
    named = {}
    with browser() as chromium, opened(chromium, PAGE, trouble="willReadFrequently") as page:
        box = page.locator("#desk > canvas").bounding_box()
        for digit, lines in DIGITS.items():
            page.locator("#clean").click()
            for line in lines:
                for n, (x, y) in enumerate(line):
                    page.mouse.move(box["x"] + x / 100 * box["width"], box["y"] + y / 100 * box["height"])
                    if n == 0:
                        page.mouse.down()
                page.mouse.up()
            page.locator("main[aria-busy=false]").wait_for()
            settle(page)
            assert page.locator("#shown").inner_text() == "Your drawing."
            named[digit] = page.locator("#parents .longest .name").inner_text()
            assert page.locator("#tops li:first-child .name").inner_text() == named[digit]
    wrong = {digit: name for digit, name in named.items() if name != str(digit)}
    assert len(named) == 10 and len(wrong) <= 1, wrong
