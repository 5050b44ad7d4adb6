"""The arguments of Numba's kernels as named tuples: a graph's edges, its votes, and the current block.

All arrays are flat; a shape such as (E, B) gives the order of their numbers. k counts the edges sorted by child. Names
in capitals are known when a kernel is compiled: they are tuples of None, and their length is part of their type.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class EdgeArrays(NamedTuple):
    """A graph's edges, sorted by child."""

    indptr: np.ndarray  # (I + 1,): the edges of child i are indptr[i]:indptr[i + 1]
    eid: np.ndarray  # (E,): the id of edge k in the graph
    dst: np.ndarray  # (E,): the parent of edge k
    matrix: np.ndarray  # (E,): the weight matrix of edge k


class VoteArrays(NamedTuple):
    """Given votes, or linear votes as children and matrices."""

    u: np.ndarray  # (E, B, D) votes in the graph's order, or (I, B, P) children; in a block, (edges, lanes, D) votes
    weight: np.ndarray  # empty, or (M, P, D)
    P: tuple[None, ...]  # () for given votes
    D: tuple[None, ...]


class Sizes(NamedTuple):
    """How the votes are divided into blocks."""

    batch: int  # B, the number of images
    images: int  # the most images in a block
    edges: int  # the most edges in a block
    lanes: int  # numbers of an edge in a tile: a block's images, rounded up to whole vectors
    SINGLE: tuple[None, ...]  # (None,) for one image, which has one lane; else ()


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
    """The values that the backward pass and later iterations read: of all nodes, or of one if N is left out."""

    s: np.ndarray  # (N, R, K, D)
    w: np.ndarray  # (N, R, K, D)
    squares: np.ndarray  # (N, K)
    ratio: np.ndarray  # (N, K)
    products: np.ndarray  # (2, rows, K): at r % 2, those for iteration r
    c: np.ndarray  # (R, rows, K), or empty


class Slopes(NamedTuple):
    """The gradients of the backward pass, as in ``Kept``."""

    ds: np.ndarray  # (N, R, K, D)
    db: np.ndarray  # (R, rows, K)
    dw: np.ndarray  # (N, K, D)
    dratio: np.ndarray  # (N, K)
