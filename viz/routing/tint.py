"""The colours of the parents, painted onto the image where the children look that choose them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from graphcaps.viz import style
from graphcaps.viz.routing_trace import RoutingTrace

FULL = 0.35  # at this mean coupling above an equal share, a pixel has the full colour
SHARPNESS = 4  # the weight of a receptive field is a cosine to this power; it is 0 at the border
FADE = 0.1  # share of the largest total weight that is added to each pixel's, so that pixels few children see are faint


def tinted(trace: RoutingTrace, image: int) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from couplings (E,) to the tinted image (H, W, 3) in [0, 1]; None without an image or places.

    A pixel's colour is the mean over children, weighted by how much each looks there: by its saliency, or by its
    receptive field. A child's colour is the mean of its parents' colours. A parent's weight is how far its coupling is
    above that child's equal share, so equal couplings leave the image as it is.
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
        alpha = np.clip(maps.sum(axis=0) / FULL, 0, 1)[..., None] ** 0.7  # the power makes weak choices visible
        sharp = maps**2  # if the children of two parents look at a pixel, it shows mostly the stronger one's colour
        mean = np.tensordot(sharp, colors, axes=(0, 0)) / np.maximum(sharp.sum(axis=0), 1e-12)[..., None]
        return plain * (1 - alpha + alpha * mean)

    return tint


def smooth(saliency: np.ndarray) -> np.ndarray:
    """Blur noisy gradients (H, W) to a spot that is visible on a small picture. The maximum is 1."""
    speckles = Image.fromarray((255 * saliency.astype(np.float64)).round().astype(np.uint8))
    spot = np.asarray(speckles.filter(ImageFilter.GaussianBlur(1.5)), np.float64)
    return spot / max(spot.max(), 1.0)


def places_of(trace: RoutingTrace) -> tuple[np.ndarray, np.ndarray]:
    """The different fields of a trace's children, (F, 4) as in the trace, and each child's index into them, (I,)."""
    places, place_of = np.unique(np.asarray(trace.fields), axis=0, return_inverse=True)
    return places, place_of.ravel()


def windows(fields: np.ndarray, height: int, width: int) -> np.ndarray:
    """(F, H, W) weights of each field at the pixels of an image. They sum to at most 1 over fields.

    A field's weight falls to 0 at its border. A pixel that hardly any child sees has small weights.
    """
    sides = []
    for axis, size in ((0, height), (1, width)):
        points = np.arange(size) + 0.5
        start, side = fields[:, axis, None], fields[:, axis + 2, None]
        angle = np.pi * (points - start - side / 2) / (side + 1)
        sides.append(np.where((points > start) & (points < start + side), np.cos(angle), 0) ** SHARPNESS)
    kernel = sides[0][:, :, None] * sides[1][:, None, :]
    seen = kernel.sum(axis=0)
    return kernel / (seen + FADE * seen.max())
