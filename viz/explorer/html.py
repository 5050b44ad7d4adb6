"""The routing explorer: one HTML file that contains everything and makes no request.

The page in ``page/`` is filled with a trace's data, its script and its style. If a network is given, it is added and
runs in a thread of its own. A content security policy allows exactly these scripts, by their hashes: no request leaves
the page, and no name in a trace can become a script.
"""

import base64
import gzip
import hashlib
import html
import json
import re
import string
from importlib.resources import files

import numpy as np

from graphcaps.viz.explorer.bundle import bundled
from graphcaps.viz.explorer.data import explorer_data
from graphcaps.viz.routing.ribbons import flow
from graphcaps.viz.routing_trace import RoutingTrace

# Names in page/: parts that not every page has, and styles in loading order
PARTS = ["explained", "capsule", "figures", "limits", "child", "epochs"]
STYLES = "page drawers"
COUNTS = {1: "one", 2: "two", 3: "three"}
STILL_WIDTH, STILL_HEIGHT = 560, 300


def explorer_page(trace: RoutingTrace, image: int | None = 0, network: dict | None = None, without: str = "") -> str:
    """The explorer of a trace as the text of an HTML file.

    Args:
        image: index of the image shown first; None: that on which two parents contend most.
        network: data of ``graphcaps.explore.network``, with which the page routes drawings; None: it can't route them.
        without: a sentence that the page shows if there is no network: the reason.

    Raises:
        InputError: the trace doesn't fit together, has no edges, or doesn't have this image.
        GraphcapsError: numbers that are not finite.
    """
    image = trace.contended if image is None else image
    data = explorer_data(trace, image)
    if network is not None:
        data["stills"] = shares_of(trace, image, network["objects"])
        if len(data["epochs"]) == 1:  # the page computes them
            data["images"] = [shown | {"b": None, "agreement": None} for shown in data["images"]]
    return with_data(data | {"network": network, "without": without})


def with_data(data: dict) -> str:
    """The page of the dict that ``explorer_page`` makes."""
    images, doors = _read("images.html"), _read("doors.html")
    if data["network"] is None:
        slots = {"desk_images": images, "head_doors": doors}
        return _filled("page.html", ["child", "epochs"], data, STYLES, "recorded", slots)
    texts = _texts(data) | {"images": images, "step_doors": doors, "sheet": _read("sheet.html")}
    slots = {name: string.Template(_read(f"{name}.html")).substitute(texts) for name in ("top", "article")}
    slots |= {"kind": "article", "noscript": ""}
    if not _named(data):  # these screens are about an answer
        screens = r'(?s)<section class="[^"]*" data-screen="(round|agreement|routing|silence|without)">.*?</section>\n'
        slots["article"] = re.sub(screens, "", slots["article"])
    return _filled("page.html", PARTS, data, f"{STYLES} article", "explorer", slots, script("worker"))


def graph_page(data: dict) -> str:
    """The page of the data that ``graphcaps.explore.graph_page`` describes, as HTML text."""
    slots = {"head_doors": _read("doors.html")}
    return _filled("nodes.html", ["explained", "figures"], data, f"{STYLES} nodes", "graph_page", slots)


def script(entry: str) -> str:
    """The script of a module of ``page/`` and of all that it imports."""
    return bundled(entry, lambda name: _read(f"{name}.js"))


def _named(data: dict, image: int | None = None) -> bool:
    """Whether the network names as many classes as an image shows objects, up to two, on an image or the one shown."""
    lengths = data["images"][data["start"] if image is None else image]["lengths"][-1][data["trained"] - 1]
    return sum(length > data["threshold"] for length in lengths) >= min(2, data["network"]["objects"])


def _texts(data: dict) -> dict:
    """The article's texts by name, with this network's numbers, the numbers, and three stills."""
    objects, rounds, words = data["network"]["objects"], data["trained"], json.loads(_read("words.json"))
    digits = all(parent["name"] in set("0123456789") for parent in data["parents"])
    thing, things = ("digit", "digits") if digits else ("class", "classes")
    count = COUNTS.get(objects, str(objects))
    numbers = {"rounds": rounds, "children": data["children"], "parents": len(data["parents"]), "round": "{round}"}
    numbers |= {"thing": thing, "things": things, "count": count, "Count": count.capitalize()}
    height, width = data["network"]["shape"][1:]
    high, wide = data["fields"]["places"][0][2:] if data["fields"] else (height, width)
    whole = high * wide >= height * width
    field = "the whole image" if whole else f"{high} × {wide} of the {height} × {width} pixels"
    numbers |= {"chance": f"1/{data['choices'] or 'n'}", "field": field, "threshold": f"{data['threshold']:.2f}"}
    numbers["too_few"] = f"no {thing} is" if objects == 1 else f"fewer than two {things} are"
    trained = any(_named(data, image) for image in range(len(data["images"])))
    numbers["advice"] = "" if trained else " Train on."
    texts = words["article"] | (words["article_one"] if objects == 1 else {})
    texts |= {} if _named(data) else words["article_none"]
    stills = [_still(shares, texts["still"].format(round=r, rounds=rounds)) for r, shares in data["stills"].items()]
    texts = {name: text.format(**numbers) for name, text in texts.items()}
    return numbers | texts | {f"still_{n}": still for n, still in enumerate(stills, 1)}


def shares_of(trace: RoutingTrace, image: int, objects: int) -> dict[int, list]:
    """The shares (I, 3) of the answer's first parent, the others and its second parent by round, from 1: three rounds.

    Children are in the order of the page: by their shares in the last of these rounds.
    """
    last, shares = trace.answer_at, np.zeros((trace.num_iterations, trace.num_children, trace.num_parents))
    shares[:, trace.src, trace.dst] = trace.c[-1, :, image]
    named = np.sort(np.argsort(-trace.lengths[-1, last, image])[: min(2, objects)])
    first, second = shares[..., named[0]], shares[..., named[1]] if objects > 1 else np.zeros(shares.shape[:2])
    parted = np.stack([first, 1 - first - second, second], axis=-1)[:, np.argsort(second[last] - first[last])]
    return {r + 1: parted[r].round(3).tolist() for r in (0, 2 * last // 3, last)}


def _still(shares: list, caption: str) -> str:
    """Shares (I, 3) as ribbons in SVG, which browsers show if they run no scripts."""
    start, end = (STILL_HEIGHT * places for places in flow(np.array(shares) / len(shares), np.arange(3)))  # (I, 3, 2)
    lines = [
        f'<path class="{kind}" stroke-width="{b - a:.1f}" d="M0 {(a + b) / 2:.1f}C190 {(a + b) / 2:.1f} '
        f'370 {(c + d) / 2:.1f} {STILL_WIDTH} {(c + d) / 2:.1f}"/>'
        for strip, bars in zip(start, end, strict=True)
        for kind, (a, b), (c, d) in zip(("first", "rest", "second"), strip, bars, strict=True)
    ]
    svg = f'<svg viewBox="0 0 {STILL_WIDTH} {STILL_HEIGHT}" role="img" aria-label="{caption}">{"".join(lines)}</svg>'
    return f'<noscript><figure class="still">{svg}<figcaption>{caption}</figcaption></figure></noscript>'


def _filled(
    body: str, parts: list[str], data: dict, styles: str, entry: str, slots: dict[str, str], worker: str = ""
) -> str:
    """Fill the frame with a body, parts, the data, a script and slots, and with a policy for the styles and scripts."""
    words, sections = json.loads(_read("words.json")), ["common", "screens"]
    sections += ["graph"] if body == "nodes.html" else ["image", "softmax"]
    style, main = "\n".join(_read(f"{name}.css") for name in styles.split()), script(entry)
    assembly = " 'wasm-unsafe-eval'" if worker else ""  # page/network.js assembles WebAssembly; eval stays forbidden
    policy = (
        f"default-src 'none'; script-src {_hash(main)}{assembly}; style-src {_hash(style)}; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    filled = {
        "policy": policy,
        "title": html.escape(" - ".join(["Routing explorer", data["title"], *data["source"]])),
        "style": style,
        "script": main,
        "data": _compressed(data),
        "worker": worker,
        "words": json.dumps({name: words[name] for name in sections}, separators=(",", ":")).replace("<", "\\u003c"),
        **{name: _read(f"{name}.html") if name in parts else "" for name in PARTS},
        **dict.fromkeys(["kind", "top", "article", "head_doors", "desk_images"], ""),
        "noscript": _read("noscript.html"),
        **slots,
    }
    frame = _read("frame.html").replace("$body", _read(body))
    return string.Template(frame).substitute(filled)


def _compressed(data: dict) -> str:
    """Base64 of a gzip of one line of JSON, a newline, and the bytes of all arrays in a row.

    An array's "data" in the JSON is [start, end] of its bytes. Nothing in the text can end a script element. The same
    data give the same text.
    """
    arrays = bytearray()

    def place(content: bytes) -> list[int]:
        arrays.extend(content)
        return [len(arrays) - len(content), len(arrays)]

    text = json.dumps(data, separators=(",", ":"), default=place) + "\n"
    return base64.b64encode(gzip.compress(text.encode() + arrays, mtime=0)).decode()


def _read(name: str) -> str:
    return (files("graphcaps.viz.explorer") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression of a policy that allows an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
