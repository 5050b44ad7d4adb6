"""The explorer of an untrained network with long capsules, on scikit-learn's digits, and PyTorch's answers."""

import functools
from typing import NamedTuple

import numpy as np
import torch

from graphcaps import CapsNet, route
from graphcaps.algorithms.by_name import as_routing
from graphcaps.explore.network import desk_of, network_data
from graphcaps.images import recording
from graphcaps.images.data import DATASETS, Images, ImageSplits, load_images, to_float
from graphcaps.viz import explorer_page


@functools.cache
def network(preset: str = "compact", image_shape: tuple[int, int, int] = (1, 28, 28), **options) -> CapsNet:
    torch.manual_seed(0)
    model = CapsNet.from_preset(preset, image_shape, 10, **options).eval()
    model.class_names = tuple("0123456789")
    with torch.no_grad():
        model.capsules.weight *= 12  # without it, all lengths would be shown as 0.00
        model.decoder.layers[-1].weight *= 12
    return model


@functools.cache
def digits() -> Images:
    """Forty test images of 28 x 28 pixels."""
    test = load_images("digits").test
    return Images(test.pixels[:40], test.labels[:40])


FIRST = [int((digits().labels == label).int().argmax()) for label in range(4)]
FEW = Images(digits().pixels[FIRST], digits().labels[FIRST])
"""One image of each of the first four classes, as traces take them."""


def page_of(model: CapsNet, images: Images | None = None, dataset: str = "mnist") -> str:
    """The explorer as ``graphcaps explore`` writes it; drawings are framed as this data set's; all lengths count."""
    few = images or digits()
    about = {"run": "test", "dataset": dataset, "model": "compact", "threshold": 0.0}
    splits = ImageSplits("digits", model.class_names, few, few, few)
    trace = recording.record(None, model, splits, 3, "cpu", about)
    return explorer_page(
        trace, 0, network_data(model, 3) | {"desk": desk_of(model, DATASETS.get(dataset)), "threshold": 0.0}
    )


class Answer(NamedTuple):
    """The answer to one image: ``lengths`` (R, J) and ``c`` (R, E) of each of ten iterations, and ``tops``: (parent,
    length, capsule, uint8 picture) of the longest parents after the iterations of training."""

    lengths: np.ndarray
    c: np.ndarray
    tops: list[tuple[int, float, list[float], np.ndarray]]


@torch.no_grad()
def answer(model: CapsNet, pixels: np.ndarray) -> Answer:
    """The network's answer to pixels (C, H, W) from 0 to 255."""
    images = to_float(torch.from_numpy(pixels.astype(np.uint8)))[None]
    states, output = recording.routing_of(model, images), model(images)
    tops = []
    for j in output.lengths[0].argsort(descending=True)[:3].tolist():
        drawn = recording.to_bytes(model.decoder(output.capsules, torch.tensor([j])))[0]
        tops.append((j, float(output.lengths[0, j]), output.capsules[0, j].tolist(), drawn))
    return Answer(states.lengths[0, :, 0], states.c[0, :, 0], tops)


@torch.no_grad()
def routed(
    model: CapsNet, pixels: torch.Tensor, held: dict[int, int | None], routing=None, iterations=None
) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    """An image's votes (I, J, D), and of each iteration b, c and agreement (I, J) and v (J, D), if children are held by
    a parent or, with None, vote for nobody."""
    layer, states = model.capsules, []
    u = model.children_of(to_float(pixels[None]))[layer.graph().edges(order="eid")[0], 0].double()  # (E, P)
    u_hat = torch.einsum("ep,epd->ed", u, layer.weight.double()).reshape(16, 10, -1)
    prior = torch.zeros(16, 10).double()
    for child, parent in held.items():
        if parent is None:
            u_hat[child] = 0
        else:
            prior[child, parent] = 100  # the prior logit by which the page holds a child
    kappa = {"concentration": 1.0} if routing == "spherical" else {}  # the page's, where the network has none
    algorithm = as_routing(routing or "dynamic", iterations=iterations or 3, **kappa)

    def observe(r, b, c, v, agreement):
        state = {"b": b, "c": c, "agreement": agreement}
        states.append({name: value.reshape(16, 10).numpy() for name, value in state.items()} | {"v": v[:, 0].numpy()})

    votes = u_hat.reshape(160, 1, -1)
    route(layer.graph(), votes, algorithm, prior=prior.flatten(), on_iteration=observe)
    return u_hat.numpy(), states
