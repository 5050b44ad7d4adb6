"""The colours of the parents, painted onto the image where the children look that choose them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from graphcaps.viz import style
from graphcaps.viz.routing.places import places_of, windows
from graphcaps.viz.routing_trace import RoutingTrace

FULL = 0.35  # at this mean coupling above an equal share, a pixel has the full colour


def tinted(trace: RoutingTrace, image: int) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from couplings (E,) to the tinted image (H, W, 3) in [0, 1]; None without an image or places.

    A pixel's colour is the mean over children, weighted by how much each looks there: its saliency, or its receptive
    field. A child's colour is that of its parents, each by its coupling above the equal share 1/J. So an image with
    equal couplings keeps its own colours.
    """
    if trace.images is None or (trace.saliency is None and trace.fields is None):
        return None
    plain = style.rgb(trace.images[image])
    if trace.saliency is not None:
        looks = np.stack([smooth(child) for child in trace.saliency[image]]) ** 2
        looks /= looks.sum(axis=0) + 1e-3
    else:
        places, place_of = places_of(trace)
        looks = windows(places, *plain.shape[:2])[place_of]
        looks /= np.bincount(place_of)[place_of][:, None, None]
    equal = 1 / np.bincount(trace.src, minlength=trace.num_children)[trace.src]
    colors = np.array([style.on_dark(style.color(j)) for j in range(trace.num_parents)])

    def tint(c: np.ndarray) -> np.ndarray:
        pull = np.zeros((trace.num_parents, trace.num_children))
        np.add.at(pull, (trace.dst, trace.src), np.maximum(c - equal, 0))
        maps = np.tensordot(pull, looks, axes=1)  # (J, H, W)
        alpha = np.clip(maps.sum(axis=0) / FULL, 0, 1)[..., None] ** 0.7  # so that weak choices are visible
        sharp = maps**2  # so that strokes of two children show the stronger one's colour
        mean = np.tensordot(sharp, colors, axes=(0, 0)) / np.maximum(sharp.sum(axis=0), 1e-12)[..., None]
        return plain * (1 - alpha + alpha * mean)

    return tint


def smooth(saliency: np.ndarray) -> np.ndarray:
    """Blur noisy gradients (H, W) to a spot that is visible on a small picture. The maximum is 1."""
    speckles = Image.fromarray((255 * saliency.astype(np.float64)).round().astype(np.uint8))
    spot = np.asarray(speckles.filter(ImageFilter.GaussianBlur(1.5)), np.float64)
    return spot / max(spot.max(), 1.0)
