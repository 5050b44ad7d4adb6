"""The colours of the answers, painted onto the strokes of the image that they get.

The page computes the same. For the answers j, the classes that are named, and the children i::

    W_j     = sum over i of max(0, c_ij - chance_i)     what children give to j beyond chance, 1 / (edges of i)
    full    = max(W_j in the answer, a tenth of sum over i of (1 - chance_i))
    m_j(p)  = sqrt(W_j * largest W) / full * min(1, d_j(p) / 0.35)     d_j(p): pixel p of j, as decoded in this round
    alpha   = min(1, sum of m_j(p))
    pixel   = ink(p) * (1 - alpha + alpha * sum of m_j(p)^2 color_j / sum of m_j(p)^2)

So a stroke has the colour of the answer that the decoder draws there, as strongly as children have moved to it from
equal couplings. Undecided children leave the ink as it is. If even the answer's couplings are near chance, colours stay
pale. Without a decoder, m_j(p) = (sum over i of max(0, c_ij - chance_i) * l_i(p)) / full, and ``full`` has the largest
of these sums in the answer, where l_i(p) is the share of child i in what all children see at pixel p.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

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

    Args:
        answer: (E,) couplings of the answer.
        decoded: (T, J, C, H, W) uint8 parents at each position, or None: where children look, by their saliency or
            their receptive fields, is used instead.
        parents: (P,) the answers, and their P ``colors``.
    """
    if trace.images is None or (decoded is None and trace.saliency is None and trace.fields is None):
        return None
    plain = np.atleast_3d(style.displayed(trace.images[image])) / 255  # (H, W, 1 or 3)
    looks = _looks(trace, image, *plain.shape[:2]) if decoded is None else np.ones((trace.num_children, 1, 1))
    chance = 1 / np.bincount(trace.src, minlength=trace.num_children)[trace.src]
    row = np.full(trace.num_parents, len(parents))
    row[parents] = np.arange(len(parents))
    palette = np.array([*colors, (1, 1, 1)])

    def beyond_chance(c: np.ndarray) -> np.ndarray:
        """(P, H, W), or (P, 1, 1) with a decoder."""
        pull = np.zeros((len(parents) + 1, trace.num_children))
        np.add.at(pull, (row[trace.dst], trace.src), np.maximum(c - chance, 0))
        return np.tensordot(pull[:-1], looks, axes=1)

    all_beyond = float((chance * (1 - chance)).sum() * looks.mean())  # the sum over children of 1 - chance_i
    full = max(LITTLE * all_beyond, float(beyond_chance(answer).max(initial=0)))

    def drawn(position: float) -> np.ndarray:
        assert decoded is not None
        return np.minimum(1, between(decoded[:, parents].max(axis=2) / 255, position) / DRAWN)

    def tint(c: np.ndarray, position: float) -> np.ndarray:
        maps = beyond_chance(c)
        if decoded is not None:  # the root makes a weaker answer visible beside the strongest
            maps = np.sqrt(maps * maps.max(initial=0)) * drawn(position)
        maps = maps / full
        alpha = np.clip(maps.sum(axis=0), 0, 1)[..., None]
        sharp = maps**2  # where two answers draw, a pixel shows mostly the stronger one's colour
        mean = np.tensordot(sharp, palette[:-1], axes=(0, 0)) / np.maximum(sharp.sum(axis=0), 1e-12)[..., None]
        return plain * (1 - alpha + alpha * mean)

    return tint


def _looks(trace: RoutingTrace, image: int, height: int, width: int) -> np.ndarray:
    """(I, H, W): each child's share in what all children see at each pixel."""
    if trace.saliency is None:
        top, left, tall, wide = np.asarray(trace.fields).T[..., None, None]  # each (I, 1, 1)
        y, x = np.arange(height)[:, None], np.arange(width)
        inside = (top <= y) & (y < top + tall) & (left <= x) & (x < left + wide)
        return inside / np.maximum(1, inside.sum(axis=0))
    looks = np.stack([smooth(child) for child in trace.saliency[image]]) ** 2
    return looks / (looks.sum(axis=0) + 1e-3)


def smooth(saliency: np.ndarray) -> np.ndarray:
    """Blur noisy gradients (H, W) to a spot that is visible on a small picture. The maximum is 1."""
    speckles = Image.fromarray((255 * saliency.astype(np.float64)).round().astype(np.uint8))
    spot = np.asarray(speckles.filter(ImageFilter.GaussianBlur(1.5)), np.float64)
    return spot / max(spot.max(), 1.0)
