"""The routing explorer's data: a trace as JSON, with everything that the page shows, in little space.

Keys at the top::

    title      network and data set: "compact on mnist"
    source     the run in words: ["run readme", "10 epochs"]
    start      index of the image shown first
    parents    J times {"name", "color"}
    children   I, the number of children          edges   E, the number of edges
    epochs     K epochs of training done           iterations  R
    trained    number of iterations in training
    level      entropy of undecided children: the mean over children of ln(number of edges)
    choices    number of parents that a child chooses from, or null if children differ
    unlinked   number of children without edges
    degrees    the different numbers of edges that children have, ascending
    order      the I children from top to bottom. They are sorted by the mean place of the parents they go to, over all
               images, after the trained iterations of the last epoch
    threshold  length above which a class is named
    fields     null, or {"places": F times [top, left, height, width] in pixels, "of": the place of each child}
    images     N times:

      label      index of the true parent, or null
      pixels     null, or {"shape": [C, H, W], "data"}: uint8
      src, dst   ends of the M edges shown for this image. If there are at most 120 children, these are all edges; else
                 all edges of the children that couple most strongly with each parent at the end, or of more than 120
                 parents with each that a picture names
      order      children of those edges, in that order
      c, b, agreement   numbers of those edges, quantised (K, R, M)
      entropy    entropy of every child in nats, quantised (K, R, I); 0 for children without edges
      mean_entropy      K times R: the mean over all children with edges, not quantised
      lengths    K times R times J, to 4 digits
      chosen     null, or for a softmax K times R times J: how many of all children choose the parent

A softmax without votes has no agreement, and at the top also the keys::

    words      {"child", "parent", "image", "step"}: the record's words, and that for an iteration, round or epoch. If
               the record has one iteration, the K epochs become iterations of a single epoch
    steps      R numbers: of the rounds or epochs             child_names    I names of the children, or none
    dead       K times R times J: whether the parent is dead

Arrays have the format of ``packed``. A quantised array is {"low", "step", "data"}, with one byte q per number
and one low and step for each of the K times R states. The number is ``low + step * q``, off by at most half a step. A
step is the span of the state / 255, so a coupling is off by less than 0.002. From an epoch's second iteration on, the
byte is the difference to the previous iteration's q, modulo 256, since small differences compress well.
"""

import dataclasses
from typing import Any

import numpy as np

from graphcaps.viz import style
from graphcaps.viz.routing.entropy import entropies
from graphcaps.viz.routing.selection import children_in_order, shown_parents
from graphcaps.viz.routing.timeline import check_drawable, count, not_finite
from graphcaps.viz.routing_trace import RoutingTrace

MOST_CHILDREN = 120  # children shown of a larger graph; with more, lines would run into one another


def explorer_data(trace: RoutingTrace, image: int = 0) -> dict:
    """The trace as a dict in the format of this module's docstring; ``image`` is shown first.

    Raises:
        InputError: the trace doesn't fit together, has no edges, or doesn't have this image.
        GraphcapsError: numbers that are not finite.
    """
    check_drawable(trace, image)
    trace, softmax = (trace, {}) if trace.agreement is not None else _of_softmax(trace)
    for name in ("c", "b", "lengths", *(() if softmax else ("agreement",))):
        broken = ~np.isfinite(getattr(trace, name)).all(axis=-1)  # (K, R, N)
        if broken.any():
            k, r, n = np.argwhere(broken)[0]
            raise not_finite(name, n, f"epoch {trace.epochs[k]}, iteration {r + 1}")
    linked = trace.degrees[trace.degrees > 0]
    degrees, fields = np.unique(linked).tolist(), None
    if trace.fields is not None and trace.images is not None:
        places, of = np.unique(trace.fields, axis=0, return_inverse=True)
        fields = {"places": places.tolist(), "of": of.ravel().tolist()}
    order = children_in_order(trace, trace.c[-1, trace.answer_at].astype(np.float64).mean(axis=0))
    title = " on ".join(str(trace.about[key]) for key in ("model", "dataset") if key in trace.about)
    run = [f"run {trace.about['run']}"] if "run" in trace.about else []
    return {
        "title": title or str(trace.about.get("layer", "routing")),
        "source": run + ([count(int(trace.epochs[-1]), "epoch")] if trace.epochs[-1] > 0 else []),
        "start": int(image),
        "parents": [{"name": name, "color": style.hex_color(j)} for j, name in enumerate(trace.parent_names)],
        "children": trace.num_children,
        "edges": trace.num_edges,
        "epochs": trace.epochs.tolist(),
        "iterations": trace.num_iterations,
        "trained": trace.answer_at + 1,
        "level": float(np.log(linked).mean()),
        "choices": degrees[0] if len(degrees) == 1 else None,
        "unlinked": np.flatnonzero(trace.degrees == 0).tolist(),
        "degrees": degrees,
        "order": order.tolist(),
        "threshold": trace.threshold,
        "fields": fields,
        "images": [_image(trace, n, order) for n in range(trace.num_images)],
        **softmax,
    }


def _of_softmax(trace: RoutingTrace) -> tuple[RoutingTrace, dict]:
    """The trace, whose epochs become its iterations if it has one iteration, and what the page of a softmax needs."""
    words = {kind: str(trace.about.get(kind, kind)) for kind in ("child", "parent", "image")}
    dead = np.repeat(trace.dead()[:, None], trace.num_iterations, axis=1)  # (K, R, J)
    step, steps = "round", list(range(1, trace.num_iterations + 1))
    if trace.num_iterations == 1:
        step, steps, dead = "epoch", trace.epochs.tolist(), dead.swapaxes(0, 1)
        turned: dict[str, Any] = {name: getattr(trace, name).swapaxes(0, 1) for name in ("b", "c", "lengths")}
        trace = dataclasses.replace(trace, epochs=trace.epochs[-1:], trained_iterations=len(steps), **turned)
    names = [style.cut(name) for name in trace.child_names]
    return trace, {"words": words | {"step": step}, "steps": steps, "dead": dead.tolist(), "child_names": names}


def _image(trace: RoutingTrace, n: int, order: np.ndarray) -> dict:
    c = trace.c[:, :, n].astype(np.float64)  # (K, R, E)
    shown = _shown_edges(trace, c[-1, -1], trace.lengths[-1, trace.answer_at, n])
    entropy, of_linked = np.zeros((*c.shape[:2], trace.num_children)), entropies(trace, c)[0]
    entropy[..., trace.degrees > 0] = of_linked
    chooses = c > 0.5 + 0.5 / trace.degrees[trace.src]  # halfway from chance to 1
    chosen = None if trace.agreement is not None else trace.per_parent(chooses).astype(int).tolist()
    return {
        "label": None if trace.labels is None else int(trace.labels[n]),
        "pixels": None if trace.images is None else packed(trace.images[n]),
        "src": trace.src[shown].tolist(),
        "dst": trace.dst[shown].tolist(),
        "order": order[np.isin(order, trace.src[shown])].tolist(),
        "c": _quantised(c[..., shown]),
        "b": _quantised(trace.b[:, :, n, shown]),
        "agreement": None if trace.agreement is None else _quantised(trace.agreement[:, :, n, shown]),
        "entropy": _quantised(entropy),
        "mean_entropy": of_linked.mean(axis=-1).tolist(),
        "lengths": trace.lengths[:, :, n].astype(np.float64).round(4).tolist(),
        "chosen": chosen,
    }


def _shown_edges(trace: RoutingTrace, last: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Indices of the edges shown: all, or those of the children that couple most with each parent in ``last`` (E,)."""
    children = np.unique(trace.src)
    if len(children) > MOST_CHILDREN:
        parents = range(trace.num_parents) if trace.num_parents <= MOST_CHILDREN else shown_parents(trace, lengths)
        share = max(1, MOST_CHILDREN // trace.num_parents)
        strongest = np.argsort(-last, kind="stable")
        by_parent = (trace.src[strongest[trace.dst[strongest] == j]] for j in parents)
        children = np.unique(np.concatenate([src[:share] for src in by_parent]))
    return np.flatnonzero(np.isin(trace.src, children))


def _quantised(values: np.ndarray) -> dict:
    """(K, R, X) as bytes, each the difference to the previous iteration, with a low and a step for each state."""
    values = values.astype(np.float64)
    low = values.min(axis=-1)
    step = (values.max(axis=-1) - low) / 255
    q = ((values - low[..., None]) / np.where(step > 0, step, 1)[..., None]).round().astype(np.uint8)
    rises = np.diff(q, axis=1, prepend=np.uint8(0))  # (K, R, X), modulo 256
    return {"low": low.tolist(), "step": step.tolist(), "data": packed(rises)["data"]}


def packed(values: np.ndarray) -> dict:
    """Encode an array as {"type", "shape", "data"}, where data are the bytes of little-endian numbers.

    >>> packed(np.array([1, 258], np.uint16))
    {'type': 'uint16', 'shape': [2], 'data': b'\\x01\\x00\\x02\\x01'}
    """
    numbers = values.astype(values.dtype.newbyteorder("<"))
    return {"type": values.dtype.name, "shape": list(values.shape), "data": numbers.tobytes()}
