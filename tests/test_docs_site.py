"""The documentation's site: built without a warning, whole without a network, every public name with its source."""

import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

for package in ("sphinx", "furo", "myst_parser"):
    pytest.importorskip(package, reason='needs pip install -e ".[docs]"')
pytest.importorskip("torch_geometric", reason='the reference of graphcaps.pyg needs pip install -e ".[pyg]"')

pytestmark = pytest.mark.long
DOCS = Path(__file__).parent.parent / "docs"


def test_the_site_is_built_without_a_warning_and_whole_without_a_network(tmp_path):
    """Sphinx warns of links that lead nowhere, and with -W a warning is an error. Every public name has its source."""
    flags = ["-q", "-W", "--keep-going", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "sphinx", *flags, str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "html"

    loading = r"<(?:script|img|source|iframe|link)\b[^>]*\b(?:src|href)=\"((?:[a-z]+:)?//[^\"]*)"
    pages = [page for page in site.rglob("*.html") if page.name != "draw.html"]  # other tests check that page
    assert pages and {link for page in pages for link in re.findall(loading, page.read_text())} == set()
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style.name
    first = (site / "index.html").read_text()
    assert 'href="draw.html"' in first and '<iframe class="live" src="draw.html"' in first
    assert (site / "draw.html").read_bytes() == (DOCS / "explorer.html").read_bytes()

    reference = runpy.run_path(str(DOCS / "reference.py"))
    names = [pair for package in reference["PACKAGES"] for pair in reference["public_names"](package).items()]
    for name, value in names:
        if not isinstance(value, ModuleType):
            home = reference["page_of"](name, value)
            text = (site / "reference" / f"{home.removeprefix('graphcaps.')}.html").read_text()
            entry = re.search(rf'id="{re.escape(f"{home}.{name}")}">(.*?)</dt>', text, re.DOTALL)
            assert entry, f"{home}.{name} has no entry"
            if getattr(value, "__name__", None) == name:  # constants and second names have no link to a source
                assert "viewcode-link" in entry[1], f"{home}.{name} has no link to its source"
                assert inspect.getdoc(value), f"{home}.{name} has no docstring"
