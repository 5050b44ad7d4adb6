"""A page in a real browser without a network: the Chromium of the system, through playwright.

As a program it makes pictures of pages in viz/gallery: ``python tests/viz/browser.py docs/explorer.html``, and the same
with karate.html, the page of examples/karate_club.py.
"""

import base64
import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np

from graphcaps.viz.explorer.bundle import bundled

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Root in a container has no sandbox, and a test machine no GPU; the rest keeps the browser itself from calling anyone.
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"


@contextlib.contextmanager
def browser() -> Iterator:
    """playwright's ``Browser``."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS.split(), "--disable-sync"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def opened(
    chromium, target: Path | str, width: int = 1280, height: int = 900, trouble: str = "", end: str = "", **looks
) -> Iterator:
    """playwright's ``Page`` of a file, offline, as soon as it is drawn. At the end there was no error, and no request
    but for the file, and for what the page itself has made.

    Args:
        target: the page's file, or its text, which is put into a file of its own.
        trouble: errors that hold this are expected.
        end: what its link ends in, with "#".
        looks: of the context, as ``color_scheme="dark"``.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(target, str):
            text, target = target, Path(stack.enter_context(tempfile.TemporaryDirectory()), "explorer.html")
            target.write_text(text, encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": height}, **looks)
        context.set_offline(True)
        context.set_default_timeout(60_000)  # ms; a busy machine is slow
        page, messages, requested = context.new_page(), [], []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        page.goto(target.as_uri() + end)
        answered(page)
        yield page
        context.close()
        # Chromium warns of canvases that tests read, which the page doesn't
        expected = ["willReadFrequently", *([trouble] if trouble else [])]
        assert [text for text in messages if not any(part in text for part in expected)] == []
        assert {url.split("#")[0].split("?")[0] for url in requested if not url.startswith("blob:")} == {
            target.as_uri()
        }


AS_BYTES = """const asBytes = (found) => JSON.parse(JSON.stringify(found), (name, value) =>
  name === "data" ? Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0)) : value);"""


def page_that_computes(chromium, **modules: str):
    """A ``Page`` with one name of each of these modules of the explorer, such as ``network="Network"``."""
    page, folder = chromium.new_page(), files("graphcaps.viz.explorer") / "page"
    imports = "".join(f'import {{ {name} }} from "./{module}.js";\n' for module, name in modules.items())
    entry = f"{imports}Object.assign(globalThis, {{ {', '.join(modules.values())} }});"
    read = lambda name: entry if name == "test" else (folder / f"{name}.js").read_text(encoding="utf-8")  # noqa: E731
    page.add_script_tag(content=f"{bundled('test', read)}\n{AS_BYTES}")
    return page


def settle(page) -> None:
    """Wait until the page has drawn, which it does at the next frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def answered(page) -> None:
    """Wait until the page's network, if it has one, has answered and the page has drawn."""
    page.wait_for_selector("#broken:not([hidden]), main[aria-busy=false], body:not(:has(#clean))", state="attached")
    settle(page)


SEALED = """(text) => {
  let hash = Number(document.documentElement.dataset.seal);
  for (const letter of text) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  return `${text}&seal=${hash.toString(36)}`;
}"""


def sealed(page, fragment: str) -> str:
    """The fragment of a link with the seal that the page gives it."""
    return page.evaluate(SEALED, fragment)


def visit(page, fragment: str) -> None:
    """Open a fragment as it is, as if it were typed into the address."""
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


def pixels_of(canvas) -> np.ndarray:
    """The red, green, blue and opacity (H, W, 4) of a canvas, read without slowing the canvas down."""
    from PIL import Image

    png = base64.b64decode(canvas.evaluate("(canvas) => canvas.toDataURL()").split(",")[1])
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int)


def draw(page, *lines, size: float = 1.0, at: tuple[float, float] = (0.5, 0.5)) -> None:
    """Draw lines of points in [0, 1] of the sheet's sides by mouse, made ``size`` times as large around a place."""
    box = page.locator("#sheet canvas").bounding_box()
    for line in lines:
        for n, (x, y) in enumerate(line):
            place = (at[0] + size * (x - 0.5)) * box["width"], (at[1] + size * (y - 0.5)) * box["height"]
            page.mouse.move(box["x"] + place[0], box["y"] + place[1], steps=2 if n else 1)
            if n == 0:
                page.mouse.down()
        page.mouse.up()
    answered(page)


def press(page, selector: str) -> None:
    """Click on an element, and wait until the page has answered."""
    page.locator(selector).click()
    answered(page)


def text(page, selector: str) -> str:
    return page.locator(selector).inner_text()


# The number and the shown length of each row of parents
ROWS = "(rows) => rows.map((row) => [+row.dataset.parent, +row.querySelector('.value').textContent])"


def read(shown: str) -> float:
    """A number that is shown."""
    return float(shown.replace("\u2212", "-").replace("\u202f", ""))


# Elements beyond the window's left or right side. Rows of images scroll, so they may be.
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((element) => {
  const { left, right, width } = element.getBoundingClientRect();
  if (element.closest(".thumbs label")) return false;
  return width > 1 && (left < -1 || right > innerWidth + 1);
}).map((element) => element.tagName + element.id)"""
SMALL = """() => [...document.querySelectorAll("button, input, select, summary, .thumbs label")].filter((element) => {
  const { width, height } = element.getBoundingClientRect();
  return width > 0 && !element.matches(".thumbs input, .unseen") && Math.min(width, height) < 23.9;
}).map((element) => element.outerHTML.slice(0, 60))"""


def check_fits(page) -> None:
    """Nothing is beyond the window's sides, and nothing that a finger touches is below 24 pixels."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    outside, small = page.evaluate(OUTSIDE), page.evaluate(SMALL)
    assert outside == small == [], (outside, small)


def check_axe(page) -> None:
    """axe-core finds nothing to change."""
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    rules = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
    violations = page.evaluate("(rules) => axe.run(rules)", rules)["violations"]
    assert violations == [], [(each["id"], [node["target"] for node in each["nodes"]]) for each in violations]


def check_accessible(page) -> None:
    """With each drawer open, the page fits and axe finds nothing to change."""
    for door in page.locator("#doors [aria-controls]").all():
        door.click()
        settle(page)
        check_fits(page)
        check_axe(page)
    page.locator("[aria-expanded=true]").click()


def main(shown: str) -> None:
    from PIL import Image

    page = Path(shown)
    target = Path(__file__).parents[2] / "viz" / "gallery" / f"{page.stem}.webp"
    looks = {"height": 720, "device_scale_factor": 1.25, "color_scheme": "light"}
    if page.stem == "explorer":
        looks["end"] = "#screen=routing"
    with browser() as chromium, opened(chromium, page.resolve(), **looks) as opened_page:
        opened_page.wait_for_timeout(5000)  # ms, in which the decoder's pictures come, and the last round
        Image.open(io.BytesIO(opened_page.screenshot())).save(target, quality=82, method=6)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
