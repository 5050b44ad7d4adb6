"""Positions for the nodes of a graph that comes without positions."""

import networkx
import numpy as np

_SMALL = 150  # up to this many nodes, Kamada & Kawai's layout is used; it is better than springs but slow for more
_GAP = 1.6  # distance between components, in units of the positions


def laid_out(num_nodes: int, links: np.ndarray) -> np.ndarray:
    """Positions (N, 2) of N >= 1 nodes with links (M, 2), the same for the same graph. Directions have no effect."""
    graph = networkx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(links.tolist())
    parts, positions = [sorted(part) for part in networkx.connected_components(graph)], []
    for part in parts:
        component = graph.subgraph(part)
        if len(part) <= _SMALL:
            at = networkx.kamada_kawai_layout(component)
        else:
            iterations = 200 if len(part) < 500 else 50
            at = networkx.spring_layout(component, k=2.5 / np.sqrt(len(part)), iterations=iterations, seed=0)
        scaled = np.sqrt(len(part)) * np.array([at[n] for n in part])
        lying = np.argsort(-np.ptp(scaled, axis=0), kind="stable")  # the longer side is horizontal
        positions.append((scaled - scaled.min(axis=0))[:, lying])
    return _in_rows(parts, positions)


def _in_rows(parts: list[list[int]], positions: list[np.ndarray]) -> np.ndarray:
    """Place components in rows, in a frame about twice as wide as tall."""
    sizes = [at.max(axis=0) + _GAP for at in positions]
    widest = max(max(size[0] for size in sizes), np.sqrt(2 * sum(size.prod() for size in sizes)))
    whole = np.empty((sum(map(len, parts)), 2))
    left = bottom = tall = 0.0
    for part, at, size in zip(parts, positions, sizes, strict=True):
        if left and left + size[0] > widest:
            left, bottom, tall = 0.0, bottom - tall, 0.0
        whole[part] = at + (left, bottom - size[1])
        left, tall = left + size[0], max(tall, size[1])
    return whole
