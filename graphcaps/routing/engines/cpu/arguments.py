"""What Numba's kernels take, by name: a graph's edges, its votes, and which part of both is worked on.

Arrays are flat: (E, B) says in which order the numbers stand. k counts the edges sorted by child. Fields in capitals
are known when a kernel is compiled: tuples of None, whose length is part of their type. A name costs nothing when the
kernel runs, because Numba compiles it away, and a None nothing when it is called.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Edges(NamedTuple):
    """A graph's edges, sorted by child."""

    indptr: np.ndarray  # (I + 1,): the edges of child i are indptr[i]:indptr[i + 1]
    eid: np.ndarray  # (E,): edge k in the graph's order
    dst: np.ndarray  # (E,): its parent
    matrix: np.ndarray  # (E,): its weight matrix


class Votes(NamedTuple):
    """Given votes; or linear ones, as children and matrices."""

    u: np.ndarray  # (E, B, D) votes in the graph's order, or (I, B, P) children
    weight: np.ndarray  # empty, or (M, P, D)
    P: tuple[None, ...]  # () for given votes
    D: tuple[None, ...]


class Sizes(NamedTuple):
    """How votes are divided."""

    batch: int  # images, B
    images: int  # of a block, at most
    edges: int  # of a block, at most
    lanes: int  # of an edge in a tile: images, rounded up to whole vectors
    SINGLE: tuple[None, ...]  # (None,) if there is one image, and so one lane; else ()


class Block(NamedTuple):
    """The edges of neighbouring children, for some of the images."""

    child_begin: int
    child_end: int
    edge_begin: int
    edge_end: int
    image_begin: int
    images: int
    batch: int  # all images, B
    lanes: int


class BlockVotes(NamedTuple):
    """The votes that a block reads."""

    u_hat: np.ndarray  # (edges, lanes, D) made for this block, or (E, B, D) in the graph's order
    made: bool
    D: tuple[None, ...]
