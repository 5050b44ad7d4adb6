"""Parts held against true parts: do a network's capsules have anything to do with the strokes of a digit?

The strokes are those that de Jong has taken from MNIST's images by thinning them; no hand drew them. Of the test images
with two strokes or more, the pixels on a stroke are given labels, and the measure is the adjusted mutual information
of a pixel's label and its stroke, image by image: 0 by chance, 1 where one determines the other. Labels are

    type            the longest of the child capsules at the position whose field's centre is nearest
    coupling        the parent that this child's largest coupling is with, in the first routed layer; of ``ConvCaps``
                    its type, whatever its position
    stem, k-means   clusters of the stem's features at the nearest position, as many as types of child
    position        clusters of an image's pixels by row and column alone, as many
    plane           clusters of all images' pixels by row and column, as many: the same regions in every image
    strokes         for each position the stroke that most of its pixels have: what labels of positions could reach

Strokes are compact, so that labels which only say where a pixel is have information, too. Each labelling is therefore
held against ``position`` with as many clusters as it has in the image.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor, nn

from experiments import run, table
from experiments.run import Place
from experiments.tasks import images
from graphcaps import CapsNet
from graphcaps.data import load_images, to_float
from graphcaps.errors import expect
from graphcaps.graph import links
from graphcaps.nn import receptive_fields
from graphcaps.nn.routed import RoutedLayer, route_layer
from graphcaps.training.run_folder import load

NETWORKS, SEEDS = ("parts", "deep"), 3
TRAINING = {"dataset": "mnist", "epochs": 3, "train_images": 12000}
PER_CLASS = 100
"""Images of each digit, the first that have two strokes; the digits 0 and 1 have fewer."""
FILE = Path("mnist-strokes") / "strokes-test.npz"
BATCH = 50


class Ink(NamedTuple):
    """The M pixels on the strokes of N images."""

    images: Tensor  # (N, 1, H, W) in [0, 1]
    digit: np.ndarray  # (N,)
    image: np.ndarray  # (M,) whose pixel it is, ascending
    pixel: np.ndarray  # (M, 2) its row and column
    stroke: np.ndarray  # (M,)


def load_ink(root: Path, per_class: int) -> Ink:
    """The first test images of MNIST that have two strokes or more.

    Raises:
        InputError: no file of strokes, or one of other images.
    """
    test, path = load_images("mnist", root).test, root / FILE
    then = f"de Jong's strokes as arrays: column_row (points, 2), stroke (points,), start ({len(test) + 1},) of images"
    expect(path.is_file(), "strokes", f"{FILE} in {root}", "none", then)
    with np.load(path, allow_pickle=False) as found:
        row_column, stroke, start = found["column_row"][:, ::-1].astype(int), found["stroke"], found["start"]
    image = np.repeat(np.arange(len(start) - 1), np.diff(start))
    inked = len(start) == len(test) + 1 and test.pixels.numpy()[image, 0, row_column[:, 0], row_column[:, 1]].all()
    expect(inked, str(path), "points on the ink of MNIST's test images, in their order", "others")
    several = np.array([len(np.unique(stroke[a:b])) > 1 for a, b in zip(start, start[1:], strict=False)])
    digit = test.labels.numpy()
    chosen = np.concatenate([np.flatnonzero(several & (digit == each))[:per_class] for each in range(10)])
    points = np.concatenate([np.arange(start[n], start[n + 1]) for n in chosen])
    of = np.repeat(np.arange(len(chosen)), np.diff(start)[chosen])
    return Ink(to_float(test.pixels[chosen]), digit[chosen], of, row_column[points], stroke[points])


def scores(image: np.ndarray, stroke: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(N,): adjusted mutual information of stroke and label, of each image's pixels."""
    cuts = np.flatnonzero(np.diff(image)) + 1
    pairs = zip(np.split(stroke, cuts), np.split(label, cuts), strict=True)
    return np.array([adjusted_mutual_info_score(*each) for each in pairs])


def by_position(ink: Ink, clusters: np.ndarray) -> np.ndarray:
    """(M,): k-means of each image's pixels by row and column; ``clusters`` (N,) says how many."""
    found = []
    for n, k in enumerate(clusters.tolist()):
        pixels = ink.pixel[ink.image == n]
        most = len(np.unique(pixels, axis=0))
        found.append(KMeans(min(k, most), n_init=4, random_state=0).fit_predict(pixels))
    return np.concatenate(found)


def used(image: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(N,): how many labels an image has."""
    return np.bincount(np.unique(np.stack([image, label]), axis=1)[0])


def chosen(layer: RoutedLayer, u: Tensor) -> Tensor:
    """(I, B): the type of the parent that each child's largest coupling is with."""
    last: dict[str, Tensor] = {}
    route_layer(layer, u, on_iteration=lambda r, b, c, v, agreement: last.update(c=c))
    c, ends = last["c"], links(layer.graph())
    most = c.new_zeros(u.shape[:2]).scatter_reduce(0, ends.src.unsqueeze(1).expand_as(c), c, "amax")  # (I, B)
    edge, image = (c == most[ends.src]).nonzero(as_tuple=True)
    types = ends.dst // (ends.num_parents // getattr(layer, "parent_types", ends.num_parents))
    found = torch.zeros(u.shape[:2], dtype=torch.int64)
    found[ends.src[edge], image] = types[edge]
    return found


def nearest(layers: Iterable[nn.Module], ink: Ink) -> np.ndarray:
    """(M,): the position of the last convolution whose field's centre is nearest to a pixel, the first of several."""
    convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    fields = receptive_fields(convs, 1, (ink.images.shape[2], ink.images.shape[3])).numpy()
    twice = 2 * fields[:, :2] + fields[:, 2:]  # of each centre: whole numbers, since half of the pixels are between two
    return np.square(2 * ink.pixel[:, None] + 1 - twice).sum(axis=2).argmin(axis=1)


@torch.no_grad()
def labellings(model: CapsNet, ink: Ink) -> dict[str, np.ndarray]:
    """The labels (M,) that a network in eval mode gives the pixels."""
    at, below = nearest([*model.stem, model.primary.conv], ink), nearest(model.stem, ink)
    layer = model.between[0] if len(model.between) else model.capsules
    features, types, parents = [], [], []
    for batch in ink.images.split(BATCH):
        maps = model.stem(batch)
        u = model.primary(maps)
        lengths = torch.linalg.vector_norm(u, dim=-1).unflatten(0, (model.primary.num_types, -1))
        longest = lengths.argmax(dim=0)  # (positions, B)
        child = longest * len(longest) + torch.arange(len(longest)).unsqueeze(1)
        features.append(maps.flatten(2))  # (B, C, positions)
        types.append(longest)
        parents.append(chosen(layer, u).gather(0, child))
    vectors = torch.cat(features)[ink.image, :, below].numpy()  # (M, C)
    return {
        "type": torch.cat(types, dim=1)[at, ink.image].numpy(),
        "coupling": torch.cat(parents, dim=1)[at, ink.image].numpy(),
        "stem, k-means": KMeans(model.primary.num_types, n_init=1, random_state=0).fit_predict(vectors),
    }


def controls(model: CapsNet, ink: Ink) -> dict[str, np.ndarray]:
    """Labels (M,) that no network gives: ``position``, ``plane`` and ``strokes``."""
    cell = np.stack([ink.image, nearest([*model.stem, model.primary.conv], ink)])
    _, cell = np.unique(cell, axis=1, return_inverse=True)
    counts = np.zeros((cell.max() + 1, ink.stroke.max() + 1))
    np.add.at(counts, (cell.ravel(), ink.stroke), 1)
    types = model.primary.num_types
    return {
        "position": by_position(ink, np.full(len(ink.digit), types)),
        "plane": KMeans(types, n_init=4, random_state=0).fit_predict(ink.pixel),
        "strokes": counts.argmax(axis=1)[cell.ravel()],
    }


def fit(place: Place, model: str, seed: int, per_class: int) -> dict:
    """Train a network, and measure its labels, those of the same network before, and the controls'."""
    trial = {"settings": TRAINING | {"model": model}, "seed": seed, "on": []}
    ink = load_ink(place.data, per_class)
    result = run.trial(images.fit, trial, place)["result"]
    trained = load(place.cache / "runs" / run.key(images.fit, trial))
    torch.manual_seed(seed)
    untrained = CapsNet.from_preset(model).eval()
    found = {"trained": labellings(trained, ink), "untrained": labellings(untrained, ink)}
    found["no network"] = controls(trained, ink)
    rows = []
    for state, labels in found.items():
        for name, label in labels.items():
            clusters = used(ink.image, label)
            own = scores(ink.image, ink.stroke, label)
            alone = scores(ink.image, ink.stroke, by_position(ink, clusters))
            gaps = [float((own - alone)[ink.digit == n].mean()) for n in range(10)]
            row = {"labels": name, "state": state, "clusters": float(clusters.mean()), "digits": gaps}
            rows.append(row | {"own": float(own.mean()), "alone": float(alone.mean())})
    about = {key: result[key] for key in ("test_accuracy", "device", "threads", "precision")}
    return {"images": np.bincount(ink.digit, minlength=10).tolist(), "trained": about, "rows": rows}


def results(place: Place) -> dict:
    """Train what isn't trained yet, and what ``table.strokes`` shows."""
    load_ink(place.data, PER_CLASS)  # what is missing is noticed before any training
    trials = [{"model": model, "seed": seed, "per_class": PER_CLASS} for model in NETWORKS for seed in range(SEEDS)]
    fits = run.run(fit, trials, place, "strokes", parallel=False)
    rows = []
    for k, network in enumerate(NETWORKS):
        for same in zip(*(each["rows"] for each in fits[k * SEEDS : (k + 1) * SEEDS]), strict=True):
            row = {"network": network, "labels": same[0]["labels"], "state": same[0]["state"]}
            row |= {"clusters": fmean(each["clusters"] for each in same)}
            row |= {key: table.spread([each[key] for each in same]) for key in ("own", "alone")}
            rows.append(
                row | {"digits": [fmean(gaps) for gaps in zip(*(each["digits"] for each in same), strict=True)]}
            )
    trained = [trial | each["trained"] for trial, each in zip(trials, fits, strict=True)]
    about = {"command": "python -m experiments strokes", "training": TRAINING, "trained": trained}
    return {**about, "images": fits[0]["images"], "labellings": rows}
