"""Classical methods that find the classes of unknown nodes by propagation along edges.

Each takes a graph's adjacency matrix A (N, N), labels (N,) with -1 where they are unknown, and its options, and returns
scores (N, C) of classes. ``METHODS`` has the options to choose from, which are those that the papers tried.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import eigsh
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.data.related import Related
from experiments.networks import measured
from graphcaps import dgl

ROUNDS, STEPS, PATHS, WEIGHT, LEAST = 100, 30, 5, 10.0, 1e-12
CORRECTIONS = [*product((0.5, 0.9), (0.0, 1.0))]
"""The options of ``corrected`` to choose from: alpha and scale."""


def zhou(a: sparse.csr_array, truth: np.ndarray, alpha: float) -> np.ndarray:
    """Label propagation by a symmetrically normalised matrix (Zhou et al. 2004, NIPS).

    ``truth`` (N, C) has a one for each known class.
    """
    scale, h = sparse.diags_array(degrees(a) ** -0.5), truth
    for _ in range(ROUNDS):
        h = alpha * (scale @ (a @ (scale @ h))) + (1 - alpha) * truth
    return h


def harmonic(a: sparse.csr_array, truth: np.ndarray) -> np.ndarray:
    """Label propagation by means over neighbours, with known classes in place (Zhu et al. 2003, ICML)."""
    h, known = truth, truth.any(1, keepdims=True)
    for _ in range(ROUNDS):
        h = np.where(known, truth, (a @ h) / degrees(a)[:, None])
    return h


def sharpened(a: sparse.csr_array, truth: np.ndarray, strength: float, prior: float) -> np.ndarray:
    """Label propagation whose sums over neighbours are sharpened.

    In a round, a node takes the softmax of strength times the sum over its neighbours, less what a node with neighbours
    drawn at random would get, and perhaps the logarithms of the frequencies of the known classes.
    """
    known = truth.any(1, keepdims=True)
    often = prior * np.log(truth.sum(0) / known.sum().clip(1) + LEAST)
    h = np.where(known, truth, softmax(often))
    for _ in range(STEPS):
        total = a @ h - a.nnz / len(h) * h.mean(0)
        h = np.where(known, truth, softmax(often + strength * total, axis=1))
    return h


def compatible(a: sparse.csr_array, truth: np.ndarray, alpha: float, prior: bool, normal: bool) -> np.ndarray:
    """Compatible label propagation (Zhong et al. 2022, arXiv 2205.09389), with classes' frequencies as base prediction.

    An edge's weight for class c is the belief of its target in c times what its source's belief says of c by the
    counted table of classes. ``prior``: frequencies are propagated too; ``normal``: degrees normalise the weights.
    """
    known, often = truth.any(1, keepdims=True), truth.mean(0) / truth.mean(0).sum().clip(LEAST)
    base, target, source = np.where(known, truth, often), *a.nonzero()
    weight = (base @ stochastic((a @ truth).T @ base + 1e-7))[source] * base[target]
    if normal:
        weight *= (degrees(a)[source] * degrees(a)[target])[:, None] ** -0.5
    matrices = [sparse.csr_array((column, (target, source)), a.shape) for column in weight.T]
    start = h = base if prior else truth
    for _ in range(20):
        h = np.stack([matrix @ column for matrix, column in zip(matrices, h.T, strict=True)], axis=1)
        h = alpha * h / h.sum(1, keepdims=True).clip(LEAST) + (1 - alpha) * start
    return h


def linearized(a: sparse.csr_array, truth: np.ndarray, strength: float) -> np.ndarray:
    """Linearized belief propagation with distant compatibility estimation (Kumar et al. 2020, arXiv 2003.02829)."""
    size, known = truth.shape[1], truth.any(1, keepdims=True)
    table = distant(a, truth) - 1 / size
    largest = float(eigsh(a.astype(float), 1, return_eigenvectors=False, tol=0.01)[0])
    start = h = np.where(known, truth - 1 / size, 0)
    step = strength / (largest * np.abs(np.linalg.eigvals(table)).max()).clip(LEAST)
    for _ in range(20):
        h = start + step * (a @ h @ table)
    return h - (h.min(1, keepdims=True) if size > 2 else h.min())  # two classes' scores also rank nodes


def distant(a: sparse.csr_array, truth: np.ndarray) -> np.ndarray:
    """The doubly stochastic, symmetric table (C, C) whose powers are nearest to how often paths join known classes.

    The paths don't turn back. A path of up to ``PATHS`` edges has a weight of ``WEIGHT`` to the power of its length.
    """
    degree, size = np.asarray(a.sum(1)).reshape(-1, 1), truth.shape[1]
    reached = [truth, a @ truth, a @ (a @ truth) - degree * truth]
    while len(reached) <= PATHS:
        reached.append(a @ reached[-1] - (degree - 1) * reached[-2])
    counts = [truth.T @ x for x in reached[1:]]
    seen = [torch.from_numpy(x / x.sum(1, keepdims=True).clip(LEAST)) for x in counts]
    places = torch.tril_indices(size - 1, size - 1)

    def whole(free: Tensor) -> Tensor:
        lower = free.new_zeros(size - 1, size - 1).index_put(tuple(places), free)
        inner = lower + lower.tril(-1).T
        edge = 1 - inner.sum(1, keepdim=True)
        return torch.cat([torch.cat([inner, edge], 1), torch.cat([edge.T, (1 - edge.sum()).view(1, 1)], 1)])

    def energy(free: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(free, requires_grad=True)
        table, total = whole(leaf), torch.zeros((), dtype=leaf.dtype)
        power = table
        for length, frequencies in enumerate(seen):
            total, power = total + WEIGHT**length * (power - frequencies).square().sum(), power @ table
        return total.item(), torch.autograd.grad(total, leaf)[0].numpy()

    starts = [np.full((size, size), 1 / size), stochastic(counts[0] + counts[0].T + 1e-6)]
    found = [minimize(energy, start[tuple(places)], jac=True, method="L-BFGS-B") for start in starts]
    return whole(torch.from_numpy(min(found, key=lambda result: result.fun).x)).numpy()


def stochastic(table: np.ndarray) -> np.ndarray:
    """A table whose rows and columns sum to 1."""
    for _ in range(ROUNDS):
        table = table / table.sum(0, keepdims=True)
        table = table / table.sum(1, keepdims=True)
    return table


def degrees(a: sparse.csr_array) -> np.ndarray:
    return np.asarray(a.sum(1)).ravel().clip(1)


METHODS: dict[str, tuple[Callable[..., np.ndarray], list[tuple]]] = {
    "label propagation, sharpened": (sharpened, [*product((0.25, 0.5, 1.0, 2.0), (0.0, 1.0))]),
    "label propagation, Zhou": (zhou, [(0.5,), (0.9,), (0.99,)]),
    "label propagation, harmonic": (harmonic, [()]),
    "compatible label propagation": (compatible, [*product((0.3, 0.6, 0.9, 1.0), (True, False), (False, True))]),
    "linearized belief propagation": (linearized, [(0.1,), (0.5,), (0.9,)]),
}


def scores(data: Related, labels: Tensor, method: str, *options) -> Tensor:
    """Scores (N, C, L) by a method, from each column of labels (N, L) by itself.

    Where it has no answer, they are the frequencies of the known classes.
    """
    a, columns = data.graph.adj_external(scipy_fmt="csr").astype(float), []
    for truth in one_hot(labels, data.num_classes).double().numpy().swapaxes(0, 1):
        h = METHODS[method][0](a, truth, *options)
        columns.append(torch.from_numpy(h / h.sum(1, keepdims=True).clip(LEAST) + 1e-9 * truth.mean(0)))
    return torch.stack(columns, dim=2)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels (N, L) as (N, L, C), zero where they are unknown."""
    return F.one_hot(labels.clamp_min(0), classes).float() * (labels >= 0).unsqueeze(2)


def settings(*names: str) -> list[dict]:
    """The settings of these methods to choose from, for ``fit``."""
    return [{"method": name, "options": [*options]} for name in names for options in METHODS[name][1]]


@torch.no_grad()
def best_corrected(model: nn.Module, data: Related, graph: dgl.DGLGraph) -> dict:
    """``judged`` results of Correct and Smooth of a trained network. The validation score chooses the options."""
    p = model(graph, data.features, graph.nodes()).softmax(1).transpose(1, 2)
    inputs = p, trained(data), torch.stack(data.graph.edges())
    results = [judged(corrected(*inputs, *options).transpose(1, 2), data) for options in CORRECTIONS]
    return max(results, key=lambda result: result["val_accuracy"])


SPREAD, CORRECTED = "label propagation", "Correct and Smooth"
SPREADS = settings(*(name for name in METHODS if name.startswith(SPREAD)))


def fit(data: Related, method: str, options: Sequence) -> dict:
    """Find the classes of validation and test nodes from those of the training nodes."""
    return judged(scores(data, trained(data), method, *options), data)


def trained(data: Related) -> Tensor:
    """The labels (N, L) of the training nodes, -1 elsewhere."""
    labels, nodes = data.labels.new_full((data.graph.num_nodes(), data.labels.shape[1]), -1), data.items[data.train]
    return labels.index_copy(0, nodes, data.labels[data.train])


def judged(classes: Tensor, data: Related) -> dict:
    """How well scores (N, C, L) of nodes' classes agree with the labels of validation and test nodes."""
    val, test = (measured(classes[data.items[part]], data.labels[part]) for part in (data.val, data.test))
    return {"val_accuracy": val, "val_loss": 0.0, "test": test}


def corrected(p: Tensor, labels: Tensor, edges: Tensor, alpha: float, scale: float) -> Tensor:
    """Scores (N, L, C) by Correct and Smooth (Huang et al. 2021, ICLR) of a classifier's probabilities p (N, L, C).

    Errors at known nodes, of labels (N, L), are spread and subtracted. Then the results are spread, with known classes
    in place.
    """
    from torch_geometric.nn import CorrectAndSmooth

    known = labels[:, 0] >= 0
    truth = F.one_hot(labels[known], p.shape[2]).float().flatten(1)
    steps = CorrectAndSmooth(STEPS, alpha, STEPS, alpha, autoscale=False, scale=scale)
    return steps(p.flatten(1), truth, known, edges).view_as(p)
