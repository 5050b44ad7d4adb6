"""Traces of seeded random numbers for tests of pictures, and the contents of pictures, computed the slow way."""

import base64
import dataclasses
import gzip
import json
import math
import re

import matplotlib
import numpy as np
import torch

from graphcaps import complete_graph, dynamic_routing
from graphcaps.trace import RoutingTrace, watch


def random_trace(children: int, parents: int) -> RoutingTrace:
    """Ten iterations on random votes; the DGL tutorial has 20 children and 10 parents."""
    votes = torch.randn(children * parents, 16, generator=torch.Generator().manual_seed(0))
    with watch(edges=None) as seen:
        dynamic_routing(complete_graph(children, parents), votes, iterations=10)
    return dataclasses.replace(seen["route"], about={"dataset": "random votes", "seed": 0})


def make_trace(
    children=16, parents=10, *, iterations=10, images=2, epochs=(0, 2, 6), seed=0, edges=None, speed=0.1, **fields
):
    """A trace whose children settle: logits grow over iterations and epochs, couplings are their softmax."""
    draw = np.random.default_rng(seed)
    src, dst = np.divmod(np.arange(children * parents), parents) if edges is None else np.asarray(edges)
    grown = np.arange(iterations)[:, None, None] * (1 + np.asarray(epochs))[:, None, None, None]
    b = speed * grown * draw.normal(size=(images, len(src)))  # (K, R, N, E)
    weight = np.exp(b)
    total = np.zeros((*b.shape[:3], children))
    np.add.at(total, (..., src), weight)
    lengths = draw.uniform(0.05, 0.95, size=(len(epochs), iterations, images, parents))
    return RoutingTrace(
        src=src.astype(np.int32),
        dst=dst.astype(np.int32),
        num_children=children,
        num_parents=parents,
        epochs=np.asarray(epochs, np.int32),
        b=b.astype(np.float16),
        c=(weight / total[..., src]).astype(np.float16),
        agreement=(0.1 - b / 2).astype(np.float16),
        lengths=lengths.astype(np.float32),
        **{"trained_iterations": 3, **fields},
    )


def with_pictures(trace, size=12):
    draw = np.random.default_rng(1)
    shape = (trace.num_images, 1, size, size)
    return dataclasses.replace(
        trace,
        images=draw.integers(0, 256, shape, np.uint8),
        labels=np.arange(trace.num_images) % trace.num_parents,
        class_names=tuple(f"class {j}" for j in range(trace.num_parents)),
        about={"dataset": "digits", "model": "compact"},
    )


def stored_in(page: str) -> dict:
    """The data in the text of an explorer's page, arrays as bytes."""
    packed = re.search(r'<script type="text/plain" id="trace">([A-Za-z0-9+/=]*)</script>', page)[1]
    text, _, arrays = gzip.decompress(base64.b64decode(packed)).partition(b"\n")

    def filled(each: dict) -> dict:
        place = each.get("data")
        return each | ({"data": arrays[slice(*place)]} if place else {})

    return json.loads(text, object_hook=filled)


def as_base64(data: dict) -> dict:
    """The data of a page with its arrays as base64, which Playwright can pass to a browser."""
    return json.loads(json.dumps(data, default=lambda content: base64.b64encode(content).decode()))


def entropy_by_hand(trace, c):
    """The mean over children of -sum c ln c, one edge at a time; c is (E,)."""
    entropies = np.zeros(trace.num_children)
    for child, coupling in zip(trace.src, c.astype(np.float64), strict=True):
        entropies[child] -= coupling * math.log(coupling) if coupling > 0 else 0
    return entropies[np.unique(trace.src)].mean()


def words(figure):
    """All text in a figure."""
    return " | ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def drawn_texts(figure):
    """Every text that is drawn, its size, and the pixels that it covers."""
    figure.canvas.draw()
    beyond = set()
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = sorted(axis.get_view_interval())
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        beyond |= {tick.label1 for tick in ticks if not low <= tick.get_loc() <= high}
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text not in beyond]
    return [(text.get_text(), text.get_size(), text.get_window_extent()) for text in texts if text.get_text()]
