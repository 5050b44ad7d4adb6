"""The routing explorer: one HTML file with everything in it, which asks no one for anything.

The page in ``page/`` is filled with a trace's data, its scripts and its style. A content security policy allows these
and nothing else, by their hashes: no request leaves the page, and no name in a trace can become a script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import string
from importlib.resources import files

from graphcaps.trace import RoutingTrace
from graphcaps.viz.explorer_data import explorer_data

SCRIPTS = ("trace.js", "charts.js", "picture.js", "graph.js", "panels.js", "page.js")


def explorer_page(trace: RoutingTrace, image: int = 0) -> str:
    """The explorer of a trace as the text of an HTML file.

    Args:
        trace: what routing did.
        image: which image is shown first, from 0.

    Raises:
        InputError: the trace doesn't fit together, has no edges, or doesn't hold this image.
        GraphcapsError: numbers that are not finite.
    """
    data = explorer_data(trace, image)
    style, script = _read("page.css"), "\n".join(map(_read, (*SCRIPTS, "file.js")))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    # In a script element only "<" could end it; JSON may spell it otherwise.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(" - ".join(["Routing explorer", data["title"], *data["source"]]))
    filled = {"policy": policy, "title": title, "style": style, "script": script, "data": text}
    return string.Template(_read("page.html")).substitute(filled)


def _read(name: str) -> str:
    return (files("graphcaps.viz") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression that allows exactly this text in an inline element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
