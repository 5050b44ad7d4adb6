"""The colours of the parents, painted onto the strokes of the image that they get."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from graphcaps.viz import style
from graphcaps.viz.routing.timeline import between
from graphcaps.viz.routing_trace import RoutingTrace

FULL = 0.35  # a pixel has the full colour if its parents' maps sum to this
LITTLE = 0.1  # where children choose less than this in the answer, colours stay pale


def tinted(
    trace: RoutingTrace, image: int, answer: np.ndarray, decoded: np.ndarray | None
) -> Callable[[np.ndarray, float], np.ndarray] | None:
    """A function from couplings (E,) and a position to the tinted image (H, W, 3) in [0, 1]; None without an image.

    A parent's map (H, W) is its decoded image, as strong as children have chosen it. Without a decoder it is where its
    children look: their saliency or their receptive fields. A child counts as much as its coupling is above an equal
    share, so equal couplings leave the image as it is.

    Args:
        answer: (E,) couplings of the answer.
        decoded: (T, J, C, H, W) uint8 parents at each position, or None.
    """
    if trace.images is None or (decoded is None and trace.saliency is None and trace.fields is None):
        return None
    plain = np.atleast_3d(style.displayed(trace.images[image])) / 255  # (H, W, 1 or 3)
    looks = _looks(trace, image, *plain.shape[:2]) if decoded is None else np.ones((trace.num_children, 1, 1))
    equal = 1 / np.bincount(trace.src, minlength=trace.num_children)[trace.src]
    colors = np.array([style.on_dark(style.color(j)) for j in range(trace.num_parents)])

    def chosen(c: np.ndarray) -> np.ndarray:
        """(J, H, W), or (J, 1, 1) with a decoder: how much children at each pixel choose each parent."""
        pull = np.zeros((trace.num_parents, trace.num_children))
        np.add.at(pull, (trace.dst, trace.src), np.maximum(c - equal, 0))
        return np.tensordot(pull, looks, axes=1)

    most = max(LITTLE, float(chosen(answer).max()))

    def tint(c: np.ndarray, position: float) -> np.ndarray:
        maps = chosen(c)
        if decoded is not None:  # the root makes a weaker parent visible beside the strongest
            maps = np.sqrt(maps * maps.max()) / most * between(decoded.max(axis=2) / 255, position)
        alpha = np.clip(maps.sum(axis=0) / FULL, 0, 1)[..., None] ** 0.7  # the power makes weak choices visible
        sharp = maps**2  # if the children of two parents look at a pixel, it shows mostly the stronger one's colour
        mean = np.tensordot(sharp, colors, axes=(0, 0)) / np.maximum(sharp.sum(axis=0), 1e-12)[..., None]
        return plain * (1 - alpha + alpha * mean)

    return tint


def _looks(trace: RoutingTrace, image: int, height: int, width: int) -> np.ndarray:
    """(I, H, W): how much each child looks at each pixel."""
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
