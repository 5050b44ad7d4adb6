"""The arguments of Numba's kernels as named tuples: a graph's edges, its votes, and the current block.

All arrays are flat; a shape such as (E, B) says in which order their numbers are. k is an edge's place in the edges
sorted by child. Fields in capitals are tuples of None: their length is part of their type, so the compiler knows it.
"""

from typing import NamedTuple

import numpy as np


class EdgeArrays(NamedTuple):
    """A graph's edges, sorted by child."""

    indptr: np.ndarray  # (I + 1,): the edges of child i are indptr[i]:indptr[i + 1]
    eid: np.ndarray  # (E,): the id of edge k in the graph
    dst: np.ndarray  # (E,): the parent of edge k
    matrix: np.ndarray  # (E,): the weight matrix of edge k


class VoteArrays(NamedTuple):
    """Votes: a tensor of votes ("given votes"), or children and matrices ("linear votes")."""

    u: np.ndarray  # votes (E, B, D) in the graph's order, or children (I, B, P); in a block, votes (edges, lanes, D)
    weight: np.ndarray  # (M, P, D), or empty for given votes
    P: tuple[None, ...]  # () for given votes
    D: tuple[None, ...]


class Sizes(NamedTuple):
    """How the votes are divided into blocks."""

    batch: int  # B, the number of images
    images: int  # the most images in a block
    edges: int  # the most edges in a block
    lanes: int  # how many numbers a tile has per edge: a block's images, rounded up to whole vectors
    SINGLE: tuple[None, ...]  # (None,) if there is one image, which has one lane; else ()


class Block(NamedTuple):
    """The edges of neighbouring children, for some of the images."""

    child_begin: int
    child_end: int
    edge_begin: int
    edge_end: int
    image_begin: int
    images: int
    batch: int  # B, the number of all images
    lanes: int


class Kept(NamedTuple):
    """The values that later iterations and the backward pass read: of all nodes, or of one node, without the dim N."""

    s: np.ndarray  # (N, R, K, D)
    w: np.ndarray  # (N, R, K, D)
    squares: np.ndarray  # (N, K): the sum of the votes' squared lengths
    ratio: np.ndarray  # (N, K): kappa / rho
    products: np.ndarray  # (2, rows, K): <u_hat, w>; iteration r reads those at r % 2
    c: np.ndarray  # (R, rows, K), or empty


class Slopes(NamedTuple):
    """The gradients of the backward pass, of all nodes or of one node, like ``Kept``."""

    ds: np.ndarray  # (N, R, K, D)
    db: np.ndarray  # (R, rows, K)
    dw: np.ndarray  # (N, K, D)
    dratio: np.ndarray  # (N, K)
