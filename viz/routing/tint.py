"""The colours of the answers, painted onto the strokes of the image that they get.

The page computes the same. For the answers j, the classes that are named, and the children i::

    W_j     = sum over i of max(0, c_ij - chance_i)     what children give to j beyond chance, 1 / (edges of i)
    full    = max(W_j in the answer, a tenth of sum over i of (1 - chance_i))
    m_j(p)  = sqrt(W_j * largest W) / full * min(1, d_j(p) / 0.35)     d_j(p): pixel p of j, as decoded in this round
    alpha   = min(1, sum of m_j(p))
    pixel   = ink(p) * (1 - alpha + alpha * sum of m_j(p)^2 color_j / sum of m_j(p)^2)

So a stroke has the colour of the answer that the decoder draws there, as strongly as children have moved to it from
equal couplings. Undecided children leave the ink as it is. If even the answer's couplings are near chance, colours stay
pale. Without a decoder, strokes have no colours.
"""

from collections.abc import Callable

import numpy as np

from graphcaps.viz import style
from graphcaps.viz.routing.timeline import between
from graphcaps.viz.routing_trace import RoutingTrace

DRAWN = 0.35  # decoded pixels this light count as drawn
LITTLE = 0.1  # of all that children could give beyond chance: if answers get less than this, colours stay pale


def tinted(
    trace: RoutingTrace,
    image: int,
    answer: np.ndarray,
    decoded: np.ndarray | None,
    parents: np.ndarray,
    colors: list[tuple[float, float, float]],
) -> Callable[[np.ndarray, float], np.ndarray] | None:
    """A function from couplings (E,) and a position to the tinted image (H, W, 3) in [0, 1]; None without an image.

    The answer has couplings ``answer`` (E,) and names ``parents`` (P,), which have P colors. Without ``decoded``, the
    parents (T, J, C, H, W) uint8 at each position, the image keeps its own colours.
    """
    if trace.images is None:
        return None
    plain = np.atleast_3d(style.displayed(trace.images[image])) / 255  # (H, W, 1 or 3)
    if decoded is None:
        return lambda c, position: np.broadcast_to(plain, (*plain.shape[:2], 3))
    drawn = decoded[:, parents].max(axis=2) / 255  # (T, P, H, W)
    chance = 1 / trace.degrees[trace.src]
    palette = np.array(colors).reshape(-1, 3)

    def beyond_chance(c: np.ndarray) -> np.ndarray:
        return trace.per_parent(np.maximum(c - chance, 0))[parents]  # (P,)

    full = max(LITTLE * float((chance * (1 - chance)).sum()), float(beyond_chance(answer).max(initial=0)))

    def tint(c: np.ndarray, position: float) -> np.ndarray:
        pull = beyond_chance(c)
        strength = np.sqrt(pull * pull.max(initial=0)) / full  # the root makes a weaker answer visible
        maps = strength[:, None, None] * np.minimum(1, between(drawn, position) / DRAWN)
        alpha = np.clip(maps.sum(axis=0), 0, 1)[..., None]
        sharp = maps**2  # where two answers draw, a pixel shows mostly the stronger one's colour
        mean = np.tensordot(sharp, palette, axes=(0, 0)) / np.maximum(sharp.sum(axis=0), 1e-12)[..., None]
        return plain * (1 - alpha + alpha * mean)

    return tint
