"""Settings of the documentation's site. `make docs` builds it in site/; every warning is an error.

The Markdown pages in docs/ are plain enough to be read on a code host too. `reference.py`, beside this file, makes the
reference from the code.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))  # for reference.py

from graphcaps import __version__

project = "graphcaps"
author = "graphcaps developers"
copyright = author
version = release = __version__

# The menu: captions and pages, in reading order. A page that isn't listed causes a warning, so an error.
MENU = {
    "Tutorial": ["demo", "train", "see", "draw", "own-pictures", "own-graph"],
    "How to": [
        "install",
        "machines",
        "layers",
        "by-hand",
        "watch",
        "graph-page",
        "analysis",
        "compare",
        "exercises",
        "export",
        "reference/CONTRIBUTING",
    ],
    "Reference": [
        "commands",
        "networks",
        "routings",
        "datasets",
        "explorer",
        "notation",
        "promises",
        "reference/graphcaps",
        "reference/nn",
        "reference/pyg",
        "reference/routing",
        "reference/graph",
        "reference/trace",
        "reference/viz",
        "reference/CHANGELOG",
    ],
    "Explanations": [
        "faq",
        "results",
        "matters",
        "relations",
        "interests",
        "limits",
        "libraries",
        "benchmarks",
        "architecture",
        "reference/fused",
        "testing",
        "reference/experiments-README",
        "reference/experiments-LOG",
    ],
}

DRAW = "draw.html"  # the site's name for docs/explorer.html, because explorer.md becomes explorer.html
LIVE = f'<iframe class="live" src="{DRAW}" title="Draw two digits and see them routed"></iframe>'

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "reference"]
exclude_patterns = ["results"]
highlight_language = "text"  # for formulas; blocks of code name their language
smartquotes_action = "D"  # convert dashes only: quotation marks may be code

myst_heading_anchors = 4  # give headings the same anchors as on code hosts
myst_enable_extensions = ["attrs_inline"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False  # inherited docstrings of torch are reStructuredText and don't describe our layers
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
napoleon_custom_sections = ["Shapes", "Differs"]
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "graphcaps"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def adapt_page(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the menu to the first page, redirect links that leave docs/ to the site, and keep numbers on one line."""
    text = re.sub(r"(?<=[\d.]) \+- (?=\d)", "\u00a0±\u00a0", source[0])
    text = re.sub(r"\(([-+][\d.]+) to ([-+][\d.]+)\)", "(\\1\u00a0to\u00a0\\2)", text)
    if page == "index":  # the live page stands in place of the moving picture
        text = re.sub(r"!\[.*\]\(\.\./viz/gallery/routing\.gif\)", LIVE, text)
        for caption, pages in MENU.items():
            text += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])
    text = re.sub(r"\]\(explorer\.html(#[\w=]*)?\)", rf"]({DRAW}\1){{.external}}", text)
    for there, here in (("README", "index"), ("graphcaps/kernels/cpu/README", "reference/fused")):
        text = text.replace(f"](../{there}.md", f"]({here}.md")
    text = re.sub(r"\]\(\.\./experiments/(README|LOG)\.md", r"](reference/experiments-\1.md", text)
    text = re.sub(r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md", r"](reference/\1.md", text)
    source[0] = text


def copy_explorer(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        shutil.copyfile(Path(app.srcdir) / "explorer.html", Path(app.outdir) / DRAW)


def setup(app: Sphinx) -> None:
    app.connect("build-finished", copy_explorer)
    app.connect("source-read", adapt_page)
