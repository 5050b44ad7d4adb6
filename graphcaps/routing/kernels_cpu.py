"""Dynamic routing in R passes over the votes, child by child, for Numba.

A pass goes over a range of children. All that one iteration needs of a child, its agreement with the parents of the
iteration before, the softmax over its out-edges and its share of the next sums, is done while its votes are in cache:
one read of the votes per iteration. With linear votes (P > 0) the votes of one child and 16 images are made in a
buffer, which stays in the cache unless the child has thousands of parents.

Arrays are flat and child-major: k counts the edges sorted by child, indptr[i]:indptr[i + 1] are those of child i,
eid[k] is the edge in the graph's order (where its votes stand) and dst[k] its parent. Scalars of an edge (b, c, db)
are (E, B) in the order of k. `height` and `width` are tuples of P and D integers (the comment on
vector instructions says why). The first call for new P, D and number type compiles for some seconds; the result is
kept on disk.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

TILE = 16  # images of one child that are worked on together: their votes for 10 parents are 10 KB
_FAST = {"contract", "reassoc", "nsz"}  # NaN and infinity keep their meaning


def _compiled(function):
    try:
        return njit(function, nogil=True, fastmath=_FAST, cache=True)
    except RuntimeError:  # no folder that can be written to: compile anew in each process
        return njit(function, nogil=True, fastmath=_FAST)


# Vector instructions that Numba has no words for: a row of D numbers as one vector of the processor. A loop over D
# numbers inside a kernel stays scalar, because LLVM can't rule out that two arrays overlap; these intrinsics load a
# row, use it and store it. The width is the length of a tuple of integers, which is part of its type, so that compiled
# kernels are cached per width. They stand in this file because Numba's cache looks only at the file of the kernels.

_INT = ir.IntType(32)


@intrinsic
def add_row(typing, y, iy, w, x, ix, width):
    """``add_row(y, iy, w, x, ix, width)``: y[iy:iy + D] += w x[ix:ix + D]."""

    def generate(context, builder, signature, args):
        target = _row(context, builder, y, args[0], args[1], len(width))
        source = _load(builder, _row(context, builder, x, args[3], args[4], len(width)))
        total = _multiply_add(builder, _spread(builder, args[2], len(width)), source, _load(builder, target))
        builder.store(total, target, align=y.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(y, iy, y.dtype, x, ix, width), generate


@intrinsic
def dot_rows(typing, x, ix, y, iy, width):
    """``dot_rows(x, ix, y, iy, width)``: <x[ix:ix + D], y[iy:iy + D]>."""

    def generate(context, builder, signature, args):
        left = _load(builder, _row(context, builder, x, args[0], args[1], len(width)))
        right = _load(builder, _row(context, builder, y, args[2], args[3], len(width)))
        return _sum(builder, builder.fmul(left, right))

    return x.dtype(x, ix, y, iy, width), generate


@intrinsic
def vote_row(typing, y, iy, u, iu, w, iw, height, width):
    """``vote_row(y, iy, u, iu, w, iw, height, width)``: y[iy:iy + D] = u[iu:iu + P] W, W (P, D) at w[iw]."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(context.get_data_type(y.dtype), len(width))
        total = ir.Constant(vector, None)
        child = context.make_array(u)(context, builder, args[2]).data
        for p in range(len(height)):
            number = _load(builder, builder.gep(child, [builder.add(args[3], ir.Constant(args[3].type, p))]))
            start = builder.add(args[5], ir.Constant(args[5].type, p * len(width)))
            row = _load(builder, _row(context, builder, w, args[4], start, len(width)))
            total = _multiply_add(builder, _spread(builder, number, len(width)), row, total)
        target = _row(context, builder, y, args[0], args[1], len(width))
        builder.store(total, target, align=y.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(y, iy, u, iu, w, iw, height, width), generate


def _row(context, builder, array_type, array, index, width):
    data = context.make_array(array_type)(context, builder, array).data
    vector = ir.VectorType(context.get_data_type(array_type.dtype), width)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _load(builder, pointer):
    number = getattr(pointer.type.pointee, "element", pointer.type.pointee)
    return builder.load(pointer, align=8 if isinstance(number, ir.DoubleType) else 4)


def _spread(builder, number, width):
    vector = ir.VectorType(number.type, width)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, number, _INT(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT, width), [0] * width))


def _multiply_add(builder, a, b, c):
    return builder.fadd(c, builder.fmul(a, b, flags=("contract",)), flags=("contract",))


def _sum(builder, vector):
    number = vector.type.element
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f{32 if isinstance(number, ir.FloatType) else 64}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number, vector.type]), name)
    return builder.call(function, [ir.Constant(number, -0.0), vector], fastmath=("reassoc",))


@_compiled
def _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width):
    """Make the linear votes of child i for ``images`` images from ``first`` on, in ``rows``."""
    size = len(height) * len(width)
    for k in range(k0, k1):
        for x in range(images):
            to, child = ((k - k0) * TILE + x) * len(width), (i * batch + first + x) * len(height)
            vote_row(rows, to, u, child, weight, wid[k] * size, height, width)


@_compiled
def _most_edges(lo, hi, indptr):
    most = 0
    for i in range(lo, hi):
        most = max(most, indptr[i + 1] - indptr[i])
    return most


@_compiled
def iterate(lo, hi, graph, u, weight, batch, height, width, b, v, c, s, first_iteration, uniform):
    """One iteration for children lo:hi: b += <u_hat, v> (not in the first), c = softmax(b), s += c u_hat."""
    indptr, eid, dst, wid = graph
    linear, size = len(height) > 0, len(width)
    rows = np.empty(_most_edges(lo, hi, indptr) * TILE * size, u.dtype) if linear else u
    top, total = np.empty(TILE, u.dtype), np.empty(TILE, u.dtype)
    one = u.dtype.type(1)
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            k0, k1 = indptr[i], indptr[i + 1]
            if k0 == k1:
                continue
            if linear:
                _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width)
            if not first_iteration:
                for k in range(k0, k1):
                    row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                    parent, at = (dst[k] * batch + first) * size, k * batch + first
                    for x in range(images):
                        b[at + x] += dot_rows(rows, row + x * size, v, parent + x * size, width)
            if uniform:
                share = one / u.dtype.type(k1 - k0)
                for k in range(k0, k1):
                    for x in range(images):
                        c[k * batch + first + x] = share
                for x in range(images):
                    total[x] = one
            else:
                for x in range(images):
                    top[x] = b[k0 * batch + first + x]
                    total[x] = 0
                for k in range(k0 + 1, k1):
                    at = k * batch + first
                    for x in range(images):
                        top[x] = max(top[x], b[at + x])
                for k in range(k0, k1):
                    at = k * batch + first
                    for x in range(images):
                        c[at + x] = math.exp(b[at + x] - top[x])
                        total[x] += c[at + x]
                for x in range(images):
                    total[x] = one / total[x]
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    share = c[at + x] * total[x]
                    c[at + x] = share
                    add_row(s, parent + x * size, share, rows, row + x * size, width)


@_compiled
def step_back(lo, hi, graph, u, weight, batch, height, width, c, ds, db_above, db, dv, more):
    """Gradient through one iteration: dc = <u_hat, ds>, db = db_above + softmax' dc; dv += db u_hat if ``more``."""
    indptr, eid, dst, wid = graph
    linear, size = len(height) > 0, len(width)
    rows = np.empty(_most_edges(lo, hi, indptr) * TILE * size, u.dtype) if linear else u
    mean = np.empty(TILE, u.dtype)
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            k0, k1 = indptr[i], indptr[i + 1]
            if k0 == k1:
                continue
            if linear:
                _votes(rows, i, k0, k1, first, images, batch, u, weight, wid, height, width)
            for x in range(images):
                mean[x] = 0
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    dc = dot_rows(rows, row + x * size, ds, parent + x * size, width)
                    db[at + x] = dc
                    mean[x] += c[at + x] * dc
            for k in range(k0, k1):
                row = (k - k0) * TILE * size if linear else (eid[k] * batch + first) * size
                parent, at = (dst[k] * batch + first) * size, k * batch + first
                for x in range(images):
                    db[at + x] = db_above[at + x] + c[at + x] * (db[at + x] - mean[x])
                    if more:
                        add_row(dv, parent + x * size, db[at + x], rows, row + x * size, width)


@_compiled
def gradient(lo, hi, graph, u, weight, batch, height, width, c, ds, db, v, du, dweight):
    """du_hat = sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1); with linear votes, on to u and weight.

    c, db are (R, E, B); ds, v are (R, J, B, D); du and dweight come zeroed.
    """
    indptr, eid, dst, wid = graph
    linear, size, rise = len(height) > 0, len(width), len(height)
    iterations, edges, parents = c.shape[0], c.shape[1], ds.shape[1]
    c, db, ds, v = c.reshape(-1), db.reshape(-1), ds.reshape(-1), v.reshape(-1)
    rows = np.empty(TILE * size, u.dtype) if linear else du
    for first in range(0, batch, TILE):
        images = min(TILE, batch - first)
        for i in range(lo, hi):
            for k in range(indptr[i], indptr[i + 1]):
                row = 0 if linear else (eid[k] * batch + first) * size
                if linear:
                    rows[:] = 0
                for r in range(iterations):
                    at, parent = r * edges + k * batch + first, r * parents + (dst[k] * batch + first) * size
                    for x in range(images):
                        add_row(rows, row + x * size, c[at + x], ds, parent + x * size, width)
                        if r > 0:
                            add_row(rows, row + x * size, db[at + x], v, parent - parents + x * size, width)
                if linear:
                    for x in range(images):
                        child = (i * batch + first + x) * rise
                        for p in range(rise):
                            at_weight = (wid[k] * rise + p) * size
                            du[child + p] += dot_rows(rows, x * size, weight, at_weight, width)
                            add_row(dweight, at_weight, u[child + p], rows, x * size, width)
