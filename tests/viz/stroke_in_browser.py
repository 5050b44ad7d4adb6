"""How soon the explorer's page shows the answer to a stroke, in Chromium.

``python tests/viz/stroke_in_browser.py PAGE`` draws on a page that ``graphcaps explore`` wrote. It prints the
milliseconds from a pointer's move until the network's answer stands in the page, and until the frame that shows it with
all else redrawn, by the clock, and the CPU time of the page meanwhile, which other programs disturb less.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import browser, settle

MOVES = 20
# Resolved at the frame after the next change of the answer, with the milliseconds from the pointer's move to both
ANSWERED = """() => { window.answered = new Promise((done) => {
  let started;
  const sheet = document.querySelector("#sheet canvas");
  sheet.addEventListener("pointermove", () => (started = performance.now()), { once: true });
  new MutationObserver((_, observer) => {
    observer.disconnect();
    const routed = performance.now() - started;
    requestAnimationFrame(() => setTimeout(() => done([routed, performance.now() - started])));
  }).observe(document.querySelector("#numbers"), { subtree: true, childList: true });
}); }"""


def computed(session) -> float:
    """Seconds that pages have computed, by the session of a browser."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return sum(each["cpuTime"] for each in processes if each["type"] == "renderer")


def main(path: str) -> None:
    routed, clock, work = [], [], []
    with browser() as chromium:
        page, session = chromium.new_page(), chromium.new_browser_cdp_session()
        page.goto(Path(path).resolve().as_uri())
        page.locator("main[aria-busy=false]").wait_for()
        box = page.locator("#sheet canvas").bounding_box()
        page.mouse.move(box["x"] + 60, box["y"] + 60)
        page.mouse.down()
        page.locator("main[aria-busy=false]").wait_for()
        for n in range(MOVES):
            settle(page)
            page.evaluate(ANSWERED)
            before = computed(session)
            page.mouse.move(box["x"] + 60 + 6 * (n + 1), box["y"] + 60 + 40 * (n % 3))
            for times, took in zip((routed, clock), page.evaluate("answered"), strict=True):
                times.append(took)
            work.append(1000 * (computed(session) - before))
            page.locator("main[aria-busy=false]").wait_for()
    for name, times in (("from stroke to answer", routed), ("to its frame", clock), ("of computing", work)):
        print(f"{statistics.median(times):.0f} ms {name} (median of {MOVES}), {min(times):.0f} ms (fastest)")


if __name__ == "__main__":
    main(*sys.argv[1:])
