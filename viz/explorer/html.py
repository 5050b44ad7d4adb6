"""The routing explorer: one HTML file with everything in it, which asks no one for anything; and its live form.

The page in ``page/`` is filled with a trace's data, its scripts and its style. A content security policy allows these
and nothing else, by their hashes: no request leaves the page, and no name in a trace can become a script. The live
page, which ``graphcaps explore`` serves, may ask its own server; a trace comes with every answer.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import string
from importlib.resources import files

from graphcaps.trace.image_trace import RoutingTrace
from graphcaps.viz.explorer.data import explorer_data

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
    return _page(data, data, style=["page.css"], scripts=[*SCRIPTS, "file.js"])[0]


def live_page(start: dict) -> tuple[str, str]:
    """The explorer that shows what its server answers, and its content security policy, for the header.

    Args:
        start: what ``graphcaps.app.answers.Explorer.start`` returns.
    """
    scripts = [*SCRIPTS, "desk.js", "live.js"]
    trace = start["answer"]["trace"]
    text, policy = _page(
        start, trace, style=["page.css", "live.css"], scripts=scripts, ask="'self'", live=_read("live.html")
    )
    return text, f"{policy}; frame-ancestors 'none'"


def _page(
    data: dict, trace: dict, style: list[str], scripts: list[str], ask: str = "'none'", live: str = ""
) -> tuple[str, str]:
    """The filled page and its policy."""
    look, script = ("\n".join(map(_read, names)) for names in (style, scripts))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(look)}; connect-src {ask}; "
        "base-uri 'none'; form-action 'none'"
    )
    # In a script element only "<" could end it; JSON may spell it otherwise.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(" - ".join(["Routing explorer", trace["title"], *trace["source"]]))
    filled = {"policy": policy, "title": title, "style": look, "script": script, "data": text, "live": live}
    return string.Template(_read("page.html")).substitute(filled), policy


def _read(name: str) -> str:
    return (files("graphcaps.viz.explorer") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression that allows exactly this text in an inline element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
