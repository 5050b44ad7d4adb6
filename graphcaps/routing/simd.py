"""Vector instructions that Numba has no words for: a row of D numbers as one vector of the processor.

A loop over D numbers inside a Numba kernel stays scalar, because LLVM can't rule out that two arrays overlap. These
intrinsics load a row, use it and store it. The width is the length of a tuple of integers, which is part of its type,
so that compiled kernels are cached per width.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

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
    return builder.load(pointer, align=4)


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
