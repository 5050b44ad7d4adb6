"""The documentation's site: built without a warning, whole without a network, and every link in it leads somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

for package in ("sphinx", "furo", "myst_parser"):
    pytest.importorskip(package, reason='needs pip install -e ".[docs]"')
pytest.importorskip("torch_geometric", reason='the reference of graphcaps.pyg needs pip install -e ".[pyg]"')

pytestmark = pytest.mark.long
DOCS = Path(__file__).parent.parent / "docs"
LOADED = {("script", "src"), ("img", "src"), ("source", "src"), ("iframe", "src")}  # and links that are no anchors


class Page(HTMLParser):
    """What a page leads to, what it loads, and the anchors in it."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif (tag, name) in LOADED or (tag, name) == ("link", "href"):
                self.loaded.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")


class Site(NamedTuple):
    folder: Path
    pages: dict[Path, Page]
    printed: str
    status: int


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    made = ["-q", "-W", "--keep-going", "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::FutureWarning", "-m", "sphinx", *made], capture_output=True, text=True
    )
    # The page to draw on is checked by tests of its own.
    pages = {file: Page(file.read_text()) for file in (folder / "html").rglob("*.html") if file.name != "draw.html"}
    return Site(folder / "html", pages, done.stdout + done.stderr, done.returncode)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_built_without_a_warning(site):
    assert site.status == 0, site.printed
    assert site.pages


def test_every_link_leads_to_a_file_and_an_anchor(site):
    broken = []
    for file, page in site.pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = {"", *site.pages[target].anchors} if target in site.pages else {""}
            if not parts.scheme and not (target.is_file() and unquote(parts.fragment) in anchors):
                broken.append((str(file.relative_to(site.folder)), link))
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {link for page in site.pages.values() for link in page.loaded}
    assert {link for link in loaded if re.match(r"([a-z]+:)?//", link)} == set()
    for style in site.folder.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style.name


def test_every_public_name_has_an_entry_and_its_source(site, reference):
    for package in reference.PACKAGES:
        names = reference.public_names(package)
        listed = site.folder / "reference" / f"{package.removeprefix('graphcaps.')}.html"
        for name, value in names.items():
            assert re.search(rf"<code[^>]*>(<span class=\"pre\">)?{name}<", listed.read_text()), f"{package}.{name}"
            if isinstance(value, ModuleType):
                continue
            home = reference.page_of(name, value)
            text = (site.folder / "reference" / f"{home.removeprefix('graphcaps.')}.html").read_text()
            entry = re.search(rf'id="{re.escape(f"{home}.{name}")}">(.*?)</dt>', text, re.DOTALL)
            assert entry, f"{home}.{name} has no entry"
            if getattr(value, "__name__", None) == name:  # neither a constant nor a second name
                assert "viewcode-link" in entry[1], f"{home}.{name} has no link to its source"
                assert inspect.getdoc(value), f"{home}.{name} has no docstring"


def test_the_page_to_draw_on_is_reached_from_the_first_page(site):
    assert "draw.html" in site.pages[site.folder / "index.html"].links
    assert (site.folder / "draw.html").read_bytes() == (DOCS / "explorer.html").read_bytes()


def test_docstrings_are_translated_as_the_examples_say(reference):
    results = doctest.testmod(reference)
    assert results.attempted and not results.failed
