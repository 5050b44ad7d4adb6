"""A page in a real browser without a network: the Chromium of the system, through playwright.

As a program it makes the README's picture: ``python tests/browser.py RUN`` writes viz/gallery/explorer.webp.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from graphcaps.viz.explorer.html import WORKER

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Root in a container has no sandbox, and a test machine no GPU; the rest keeps the browser itself from calling anyone.
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"


def why_not() -> str:
    """Why pages can't be opened here, or "" where they can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright, of the dev extra, isn't installed"
    return "" if CHROMIUM else "there is no Chromium here: apt install chromium"


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
    chromium, target: Path, width: int = 1280, height: int = 900, trouble: str = "", end: str = "", **looks
) -> Iterator:
    """playwright's ``Page`` of a file, offline. At the end there was no error, and no request but for the file, and for
    what the page itself has made.

    Args:
        trouble: errors that hold this are expected.
        end: what its link ends in, with "#".
        looks: of the context, as ``color_scheme="dark"``.
    """
    context = chromium.new_context(viewport={"width": width, "height": height}, **looks)
    context.set_offline(True)
    context.set_default_timeout(60_000)  # ms; a busy machine is slow
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(target.as_uri() + end)
    settle(page)
    yield page
    context.close()
    assert [text for text in said if not trouble or trouble not in text] == []
    assert {url.split("#")[0] for url in asked if not url.startswith("blob:")} == {target.as_uri()}


AS_BYTES = """const asBytes = (found) => JSON.parse(JSON.stringify(found), (name, value) =>
  name === "data" ? Uint8Array.from(atob(value), (letter) => letter.charCodeAt(0)) : value);"""


def page_that_computes(chromium):
    """A ``Page`` with the scripts of the explorer's thread: ``new Network(asBytes(network_data(...)))``."""
    page = chromium.new_page()
    for name in WORKER[:-1]:  # the last one talks to the page
        page.add_script_tag(content=(files("graphcaps.viz.explorer") / "page" / name).read_text(encoding="utf-8"))
    page.add_script_tag(content=AS_BYTES)
    return page


def settle(page) -> None:
    """Wait until what was asked for is drawn: a page draws at the next frame."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def main(run: str) -> None:
    from PIL import Image

    from graphcaps import viz
    from graphcaps.training.run_folder import Run

    target = Path(__file__).parents[1] / "viz" / "gallery" / "explorer.webp"
    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        (path,) = viz.draw(Run.open(run).trace(), folder, format="html", image=4)
        with opened(chromium, path, height=1200, device_scale_factor=1.25, color_scheme="light") as page:
            settle(page)
            Image.open(io.BytesIO(page.screenshot())).save(target, quality=82, method=6)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
