"""Where the nodes of a small graph stand, so that a molecule looks like one: bonds of one length, regular rings.

Stress: the sum over pairs of w (distance - wanted distance)^2, lowest where distances are as wanted. Bonded nodes want
1, nodes of a ring the chord of the regular polygon, others d sqrt(3) / 2, where d is the number of bonds between them:
what a chain with angles of 120 degrees has. It starts from classical scaling of these distances (Torgerson 1952).
"""

from __future__ import annotations

from itertools import combinations

import networkx
import numpy as np
from scipy.optimize import minimize

_LARGEST_RING = 8
_FAR = 0.05  # weight of nodes at a distance of two bonds, outside rings; it falls with the distance
_TRIES = 8  # a ring may end up twisted: of several starts, the one with the least stress
_GAP = 1.6  # between components, in bonds


def places(num_nodes: int, bonds: np.ndarray) -> np.ndarray:
    """Positions (N, 2) in bond lengths, the same for the same graph; each component lies level.

    Args:
        num_nodes: N >= 1.
        bonds: (M, 2) nodes, each bond once, no loops.
    """
    graph = networkx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(bonds.tolist())
    parts = [sorted(part) for part in networkx.connected_components(graph)]
    found = []
    for part in parts:
        numbered = networkx.relabel_nodes(graph.subgraph(part), {node: n for n, node in enumerate(part)})
        found.append(_level(_component(numbered), np.array(numbered.edges, int).reshape(-1, 2)))
    return shelved(parts, found)


def _component(graph: networkx.Graph) -> np.ndarray:
    count = len(graph)
    if count == 1:
        return np.zeros((1, 2))
    bonds_between = networkx.floyd_warshall_numpy(graph, range(count))
    wanted = np.where(bonds_between == 1, 1.0, bonds_between * np.sqrt(3) / 2)
    near = bonds_between <= 2
    for ring in _rings(graph):
        for a, b in combinations(range(len(ring)), 2):
            pair = ([ring[a], ring[b]], [ring[b], ring[a]])
            wanted[pair] = np.sin(np.pi * (b - a) / len(ring)) / np.sin(np.pi / len(ring))
            near[pair] = True
    first, second = np.triu_indices(count, 1)
    wanted, near = wanted[first, second], near[first, second]
    weight = (2 / bonds_between[first, second]) ** 2
    tries = []
    for seed in range(max(1, min(_TRIES, 1000 // count))):
        at = _scaled(bonds_between, seed).ravel()
        for weights in (weight, np.where(near, 1.0, _FAR * weight)):  # untangled first, then in shape
            stress = _Stress(first, second, wanted, weights)
            reached = minimize(stress, at, jac=True, method="L-BFGS-B", options={"maxiter": 500})
            at = reached.x
        tries.append((reached.fun, seed, at.reshape(-1, 2)))
    return min(tries)[2]


def _rings(graph: networkx.Graph) -> list[list[int]]:
    """Rings of a graph as sparse as molecules are: cycles without a shortcut, of at most 8 nodes."""
    sparse = graph.number_of_edges() <= 1.5 * len(graph)
    return list(networkx.chordless_cycles(graph, _LARGEST_RING)) if sparse else []


def _scaled(distance: np.ndarray, seed: int) -> np.ndarray:
    """(N, N) distances as (N, 2) positions; shaken, so that no two nodes stand in one place."""
    middle = np.eye(len(distance)) - 1 / len(distance)
    values, vectors = np.linalg.eigh(-middle @ distance**2 @ middle / 2)
    start = np.zeros((len(distance), 2))
    start[:, : len(values[-2:])] = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))
    return start + np.random.default_rng(seed).normal(0, 0.1 + 0.2 * seed, start.shape)


class _Stress:
    """The stress of positions and its gradient, for scipy."""

    def __init__(self, first: np.ndarray, second: np.ndarray, wanted: np.ndarray, weight: np.ndarray):
        self.first, self.second, self.wanted, self.weight = first, second, wanted, weight

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = flat.reshape(-1, 2)
        between = at[self.first] - at[self.second]  # (pairs, 2)
        distance = np.maximum(np.linalg.norm(between, axis=1), 1e-9)
        off = distance - self.wanted
        gradient = (2 * self.weight * off / distance)[:, None] * between
        ends = (self.first, 1), (self.second, -1)
        slope = [sum(sign * np.bincount(end, part, len(at)) for end, sign in ends) for part in gradient.T]
        return float(self.weight @ off**2), np.column_stack(slope).ravel()


def _level(at: np.ndarray, bonds: np.ndarray) -> np.ndarray:
    """Turned so that the longest extent is about level and bonds stand at multiples of 60 degrees, as far as they can.

    The lower left corner is moved to 0.
    """
    at = at - at.mean(axis=0)
    axis = np.linalg.svd(at, full_matrices=False)[2][0]
    axis = axis * (1 if axis[np.abs(axis).argmax()] > 0 else -1)
    plane = (at @ (1, 1j)) * np.conj(axis @ (1, 1j))
    along = plane[bonds[:, 1]] - plane[bonds[:, 0]]
    plane = plane * np.exp(-1j * np.angle(np.sum(along**6)) / 6)
    at = np.column_stack((plane.real, plane.imag))
    return at - at.min(axis=0)


def shelved(parts: list[list[int]], found: list[np.ndarray]) -> np.ndarray:
    """Components in rows, in a frame about twice as wide as tall."""
    sizes = [at.max(axis=0) + _GAP for at in found]
    widest = max(max(size[0] for size in sizes), np.sqrt(2 * sum(size.prod() for size in sizes)))
    whole = np.empty((sum(map(len, parts)), 2))
    left = bottom = tall = 0.0
    for part, at, size in zip(parts, found, sizes, strict=True):
        if left and left + size[0] > widest:
            left, bottom, tall = 0.0, bottom - tall, 0.0
        whole[part] = at + (left, bottom - size[1])
        left, tall = left + size[0], max(tall, size[1])
    return whole
