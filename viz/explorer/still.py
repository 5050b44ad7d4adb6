"""Stills of the ribbons, for readers without scripts: three rounds of the image that is shown first."""

import numpy as np

from graphcaps.viz.routing.ribbons import flow
from graphcaps.viz.routing_trace import RoutingTrace

WIDTH, HEIGHT = 560, 300


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


def drawn(shares: list, caption: str) -> str:
    """Shares (I, 3) as ribbons in SVG, which browsers show if they run no scripts."""
    start, end = (HEIGHT * places for places in flow(np.array(shares) / len(shares), np.arange(3)))  # (I, 3, 2)
    lines = [
        f'<path class="{kind}" stroke-width="{b - a:.1f}" d="M0 {(a + b) / 2:.1f}C190 {(a + b) / 2:.1f} '
        f'370 {(c + d) / 2:.1f} {WIDTH} {(c + d) / 2:.1f}"/>'
        for strip, bars in zip(start, end, strict=True)
        for kind, (a, b), (c, d) in zip(("first", "rest", "second"), strip, bars, strict=True)
    ]
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">{"".join(lines)}</svg>'
    return f'<noscript><figure class="still">{svg}<figcaption>{caption}</figcaption></figure></noscript>'
