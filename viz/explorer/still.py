"""Stills of the ribbons, for readers without scripts: the rounds of the image that is shown first."""

import numpy as np

from graphcaps.viz.routing_trace import RoutingTrace

WIDTH, HEIGHT = 560, 300
FILLED = 0.76  # part of its room that a strip fills


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
    parts = np.array(shares)
    room, gaps = HEIGHT / len(parts), np.arange(3) * (1 - FILLED) * HEIGHT / 2
    tall = FILLED * parts * room
    left = room * np.arange(len(parts))[:, None] + tall.cumsum(axis=1) - tall / 2
    right = gaps + np.append(0, tall.sum(axis=0).cumsum()[:-1]) + tall.cumsum(axis=0) - tall / 2
    lines = [
        f'<path class="{kind}" stroke-width="{h:.1f}" d="M0 {a:.1f}C190 {a:.1f} 370 {b:.1f} {WIDTH} {b:.1f}"/>'
        for *ends, row in zip(left, right, tall, strict=True)
        for kind, a, b, h in zip(("first", "rest", "second"), *ends, row, strict=True)
    ]
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">{"".join(lines)}</svg>'
    return f'<noscript><figure class="still">{svg}<figcaption>{caption}</figcaption></figure></noscript>'
