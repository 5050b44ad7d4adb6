"""Several rows of numbers at once, as rows in memory or as equal parts of a SIMD vector's lanes."""

import math

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd import (
    INT,
    LONG,
    Vector,
    code,
    emit_constant,
    emit_fma,
    emit_lanes,
    emit_load,
    emit_maximum,
    emit_splat,
    emit_store,
    emit_sum,
)


@intrinsic
def add_rows(typing, sums, at, sums_stride, factors, x, i, x_stride, width):
    """``add_rows(sums, at, sums_stride, factors, x, i, x_stride, width)``: each row of sums += factor times row of x.

    There is one row of len(width) numbers per lane of factors. The first rows start at ``at`` in sums and at i in x,
    and each next row a stride later.
    """
    size, index = len(width), types.int64

    def emit(builder, sums, at, sums_stride, vector, x, i, x_stride, _):
        for row in range(factors.lanes):
            factor = emit_splat(builder, builder.extract_element(vector, INT(row)), size)
            terms = emit_load(builder, x, i, size), emit_load(builder, sums, at, size)
            emit_store(builder, sums, at, emit_fma(builder, factor, *terms))
            at, i = builder.add(at, sums_stride), builder.add(i, x_stride)

    return types.void(sums, index, index, factors, x, index, index, width), code(emit)


@intrinsic
def dots(typing, x, ix, x_stride, y, iy, y_stride, rows, width):
    """``dots(x, ix, x_stride, y, iy, y_stride, rows, width)``: the products <x, y> of len(rows) rows, as a vector.

    Rows have len(width) numbers. The first rows start at ix and iy, and each next row a stride later.
    """
    size, lanes = len(width), len(rows)

    def emit(builder, x, i, x_stride, y, j, y_stride, *widths):
        products = []
        for _ in range(lanes):
            products.append(builder.fmul(emit_load(builder, x, i, size), emit_load(builder, y, j, size)))
            i, j = builder.add(i, x_stride), builder.add(j, y_stride)
        return emit_sums(builder, products, ir.VectorType(products[0].type.element, lanes))

    index = types.int64
    return Vector(x.dtype, lanes)(x, index, index, y, index, index, rows, width), code(emit)


@intrinsic
def sum_of_groups(typing, x, groups):
    """``sum_of_groups(x, groups)``: the sums of len(groups) equal parts of x's lanes, as a vector."""
    count = len(groups)
    return Vector(x.dtype, count)(x, groups), code(lambda b, x, _: emit_fold(b, x, count, ir.IRBuilder.fadd, 0.0))


@intrinsic
def max_of_groups(typing, x, groups):
    """``max_of_groups(x, groups)``: the largest of each of len(groups) equal parts of x's lanes, as a vector."""
    count = len(groups)
    return Vector(x.dtype, count)(x, groups), code(lambda b, x, _: emit_fold(b, x, count, emit_maximum, -math.inf))


@intrinsic
def spread(typing, x, width):
    """``spread(x, width)``: each lane of x repeated, so that there are len(width) lanes."""
    lanes = len(width)
    source = [k * x.lanes // lanes for k in range(lanes)]
    return Vector(x.dtype, lanes)(x, width), code(lambda builder, x, _: emit_lanes(builder, x, x, source))


@intrinsic
def times_table(typing, x, tables, groups):
    """``times_table(x, tables, groups)``: each part of x's lanes, a row of D numbers, times its own table (D, D).

    ``tables`` (D, groups, D) has the first rows of all tables first.
    """
    count = len(groups)

    def emit(builder, x, tables, _):
        total = emit_constant(x.type.element, [0.0] * x.type.count)
        for row in range(x.type.count // count):
            of_row = emit_load(builder, tables, LONG(row * x.type.count), x.type.count)
            total = emit_fma(builder, emit_nth_of_groups(builder, x, count, row), of_row, total)
        return total

    return x(x, tables, groups), code(emit)


@intrinsic
def add_outer(typing, tables, x, y, groups):
    """``add_outer(tables, x, y, groups)``: tables[i, k, j] += x[k, i] y[k, j], with tables as in ``times_table``."""
    count = len(groups)

    def emit(builder, tables, x, y, _):
        for row in range(x.type.count // count):
            at = LONG(row * x.type.count)
            factor = emit_nth_of_groups(builder, x, count, row)
            emit_store(builder, tables, at, emit_fma(builder, factor, y, emit_load(builder, tables, at, x.type.count)))

    return types.void(tables, x, x, groups), code(emit)


def emit_sums(builder, parts, kind):
    """Return a vector with one lane per vector in ``parts``: the sum of its lanes."""
    lanes = kind.count
    while parts[0].type.count > lanes and parts[0].type.count % 2 == 0:
        half = parts[0].type.count // 2
        halves = range(half), range(half, 2 * half)
        parts = [builder.fadd(*(emit_lanes(builder, part, part, of) for of in halves)) for part in parts]
    group = parts[0].type.count
    if lanes & (lanes - 1) or group & (group - 1) or group > lanes:  # halving and joining need powers of two
        sums = ir.Constant(kind, ir.Undefined)
        for row, part in enumerate(parts):
            sums = builder.insert_element(sums, emit_sum(builder, part), INT(row))
        return sums
    while parts[0].type.count < lanes:
        joined = range(2 * parts[0].type.count)
        parts = [emit_lanes(builder, *pair, joined) for pair in zip(parts[::2], parts[1::2], strict=True)]
    while group > 1:
        group //= 2  # in each run of 2 * group lanes, add the halves
        of_halves = [[lane for lane in range(2 * lanes) if lane // group % 2 == half] for half in (0, 1)]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.fadd(*(emit_lanes(builder, *pair, half) for half in of_halves)) for pair in pairs]
    return parts[0]


def emit_fold(builder, x, groups, combine, neutral):
    """Combine the lanes of each of ``groups`` equal parts of a vector: one lane per part remains."""
    size = x.type.count // groups
    while size > 1:
        half, neutrals = (size + 1) // 2, emit_constant(x.type.element, [neutral] * x.type.count)
        beyond, halves = groups * size, (range(half), range(half, 2 * half))  # beyond: the number of a neutral lane
        parts = ([g * size + at if at < size else beyond for g in range(groups) for at in of] for of in halves)
        x = combine(builder, *(emit_lanes(builder, x, neutrals, part) for part in parts))
        size = half
    return x


def emit_nth_of_groups(builder, x, groups, n):
    """Return a vector whose lanes have the n-th lane of their part."""
    size = x.type.count // groups
    return emit_lanes(builder, x, x, [lane // size * size + n for lane in range(x.type.count)])
