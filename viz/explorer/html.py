"""The routing explorer: one HTML file with everything in it, which asks no one for anything.

The page in ``page/`` is filled with a trace's data, its scripts and its style, and where one is given with a network
that it computes with in a thread of its own. A content security policy allows these scripts and nothing else, by their
hashes: no request leaves the page, and no name in a trace can become a script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import string
from importlib.resources import files
from typing import Any

from graphcaps.trace import RoutingTrace
from graphcaps.viz.explorer.data import explorer_data

SCRIPTS = (
    "trace.js",
    "charts.js",
    "picture.js",
    "graph.js",
    "panels.js",
    "page.js",
    "terms.js",
    "tour.js",
    "state.js",
    "shapes.js",
    "view.js",
    "share.js",
)
STYLES = ("page.css", "explain.css", "share.css")
WORKER = ("lanes.js", "network.js", "saliency.js", "worker.js")
LIVE = (
    "desk.js",
    "answer.js",
    "doubts.js",
    "objects.js",
    "live.js",
    "votes.js",
    "formulas.js",
    "compare.js",
    "restore.js",
)
LIVE_STYLES = ("live.css", "compare.css")
LIVE_PARTS = ("desk", "answer", "bend", "explained", "compare")


def explorer_page(trace: RoutingTrace, image: int = 0, network: dict | None = None, without: str = "") -> str:
    """The explorer of a trace as the text of an HTML file.

    Args:
        trace: what routing did.
        image: which image is shown first, from 0.
        network: what ``graphcaps.explore.of_run.carried`` gives: the page then routes drawings.
        without: why there is none, a sentence that the page shows.

    Raises:
        InputError: the trace doesn't fit together, has no edges, or doesn't hold this image.
        GraphcapsError: numbers that are not finite.
    """
    data = explorer_data(trace, image) | {"network": network, "without": without}
    style, scripts, worker = [*STYLES], [*SCRIPTS, "file.js"], ""
    parts = dict.fromkeys(LIVE_PARTS, "")
    if network is not None:
        style, scripts, worker = [*STYLES, *LIVE_STYLES], [*SCRIPTS, *LIVE], "\n".join(map(_read, WORKER))
        parts = {name: _read(f"{name}.html") for name in LIVE_PARTS}
    look, script = ("\n".join(map(_read, names)) for names in (style, scripts))
    lanes = " 'wasm-unsafe-eval'" * (network is not None)  # WebAssembly, which lanes.js assembles; no eval
    policy = (
        f"default-src 'none'; script-src {_hash(script)}{lanes}; style-src {_hash(look)}; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    filled = {
        "policy": policy,
        "title": html.escape(" - ".join(["Routing explorer", data["title"], *data["source"]])),
        "style": look,
        "script": script,
        "worker": worker,
        "data": _compressed(data),
        **parts,
    }
    return string.Template(_read("page.html")).substitute(filled)


def _compressed(data: dict) -> str:
    """JSON, a line's end, and the bytes of all its arrays, gzipped, as base64. In the JSON an array's data are [start,
    end] of its bytes; bytes gzip better than their letters. No letter of it could end a script element, and the same
    data give the same page."""
    arrays: list[bytes] = []
    text = json.dumps(_apart(data, arrays), separators=(",", ":")) + "\n"
    return base64.b64encode(gzip.compress(text.encode() + b"".join(arrays), mtime=0)).decode()


def _apart(found: Any, arrays: list[bytes]) -> Any:
    """The same, with the bytes of each {"data": base64} added to ``arrays``, and their place in its stead."""
    if isinstance(found, list):
        return [_apart(each, arrays) for each in found]
    if not isinstance(found, dict):
        return found
    kept = {name: _apart(value, arrays) for name, value in found.items()}
    if isinstance(found.get("data"), str):
        start = sum(map(len, arrays))
        arrays.append(base64.b64decode(found["data"]))
        kept["data"] = [start, start + len(arrays[-1])]
    return kept


def _read(name: str) -> str:
    return (files("graphcaps.viz.explorer") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression that allows exactly this text in an inline element."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
