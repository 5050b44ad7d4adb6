"""SIMD vectors for Numba: a row of numbers is loaded, used in computations and stored as one value.

With plain Numba, a loop over the D numbers of a vote compiles to scalar code: LLVM can't rule out that arrays overlap
or that an index is negative. Here an index counts from the array's start, and bounds aren't checked.

    y = load(votes, at, width)           # a vector of len(width) numbers; the length of a tuple is part of its type
    s = fma(c, y, s)                     # s + c y
    store(sums, at, s)

All functions work with float32 and float64. The operators + - * / take two vectors, or a vector and a number.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import default_manager
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model
from numba.np.arrayobj import populate_array

INT, LONG = ir.IntType(32), ir.IntType(64)
_DATA = default_manager[types.Array(types.float32, 1, "C")].get_field_position("data")  # place in LLVM's array struct


class Vector(types.Type):
    """The Numba type of a vector: ``lanes`` numbers of ``dtype``."""

    def __init__(self, dtype, lanes):
        super().__init__(name=f"vector({dtype}, {lanes})")
        self.dtype, self.lanes = dtype, lanes


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, ir.VectorType(manager[vector.dtype].get_value_type(), vector.lanes))


def code(emit):
    """Return a code generator for Numba that calls ``emit(builder, *values)`` with the arguments' LLVM values."""

    def generate(context, builder, signature, args):
        value = emit(builder, *args)
        return context.get_dummy_value() if signature.return_type == types.void else value

    return generate


@intrinsic
def get(typing, x, i):
    """``get(x, i)``: x[i]. Integers are converted to int64."""
    integer = isinstance(x.dtype, types.Integer)

    def emit(builder, array, index):
        number = builder.load(emit_element(builder, array, index))
        return builder.sext(number, LONG) if integer else number

    return (types.int64 if integer else x.dtype)(x, i), code(emit)


@intrinsic
def zeros(typing, count, x):
    """``zeros(count, x)``: a new array of ``count`` zeros with x's dtype. ``np.zeros`` takes longer to compile."""
    made = types.Array(x.dtype, 1, "C")

    def generate(context, builder, signature, args):
        size = x.dtype.bitwidth // 8
        memory = context.nrt.meminfo_alloc_aligned(builder, builder.mul(args[0], LONG(size)), align=64)
        start = context.nrt.meminfo_data(builder, memory)
        cgutils.memset(builder, start, builder.mul(args[0], LONG(size)), 0)
        array = context.make_array(made)(context, builder)
        data = builder.bitcast(start, array.data.type)
        populate_array(array, data, shape=(args[0],), strides=(LONG(size),), itemsize=LONG(size), meminfo=memory)
        return array._getvalue()

    return made(types.int64, x), generate


@intrinsic
def load(typing, x, i, width):
    """``load(x, i, width)``: x[i:i + len(width)]."""
    lanes = len(width)
    return Vector(x.dtype, lanes)(x, i, width), code(lambda builder, x, i, _: emit_load(builder, x, i, lanes))


@intrinsic
def store(typing, x, i, value):
    """``store(x, i, value)``: x[i:i + lanes] = value for a vector, or x[i] = value for a number."""
    return types.void(x, i, value if isinstance(value, Vector) else x.dtype), code(emit_store)


@intrinsic
def stream(typing, x, i, vector):
    """``stream(x, i, vector)``: a ``store`` that bypasses the cache if vectors are whole cache lines (64 bytes).

    x must start at a cache line, as the arrays of `passes.empty` do.
    """
    whole_lines = vector.lanes * x.dtype.bitwidth // 8 % 64 == 0

    def emit(builder, array, index, value):
        line = emit_store(builder, array, index, value, align=64 if whole_lines else None)
        if whole_lines:
            line.set_metadata("nontemporal", builder.module.add_metadata([INT(1)]))

    return types.void(x, i, vector), code(emit)


@intrinsic
def select_first(typing, count, x, y):
    """``select_first(count, x, y)``: the first ``count`` lanes from x, and the others from y."""

    def emit(builder, count, first, rest):
        counts = emit_splat(builder, builder.trunc(count, INT), x.lanes)
        return builder.select(builder.icmp_signed("<", emit_constant(INT, range(x.lanes)), counts), first, rest)

    return x(types.int64, x, x), code(emit)


@intrinsic
def prefetch(typing, x, i):
    """``prefetch(x, i)``: load the cache line of x[i] into the nearest cache."""

    def emit(builder, array, index):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(emit_element(builder, array, index), byte)
        builder.call(function, [pointer, INT(0), INT(3), INT(1)])  # the flags mean: read; nearest cache; data

    return types.void(x, i), code(emit)


@intrinsic
def splat(typing, number, width):
    """``splat(number, width)``: the same number in each lane."""
    lanes = len(width)
    return Vector(number, lanes)(number, width), code(lambda builder, number, _: emit_splat(builder, number, lanes))


@intrinsic
def fma(typing, a, x, y):
    """``fma(a, x, y)``: a x + y, where a is a number or a vector."""

    def emit(builder, factor, *vectors):
        return emit_fma(builder, factor if isinstance(a, Vector) else emit_splat(builder, factor, x.lanes), *vectors)

    return x(a if isinstance(a, Vector) else x.dtype, x, x), code(emit)


@intrinsic
def maximum(typing, x, y):
    """``maximum(x, y)``: the larger number of each lane."""
    return x(x, x), code(emit_maximum)


def _define(symbol, emit):
    """Define an operator for two vectors, and for a vector and a number."""

    @infer_global(symbol)
    class Operator(AbstractTemplate):
        def generic(self, args, kws):
            vector = next((x for x in args if isinstance(x, Vector)), None)
            if vector is not None and all(x in (vector, vector.dtype) for x in args):
                return vector(*args)

    def lower(context, builder, signature, args):
        kinds, lanes = signature.args, signature.return_type.lanes
        pairs = zip(args, kinds, strict=True)
        vectors = (x if isinstance(kind, Vector) else emit_splat(builder, x, lanes) for x, kind in pairs)
        return emit(builder, *vectors)

    for kinds in (Vector, Vector), (types.Float, Vector), (Vector, types.Float):
        lower_builtin(symbol, *kinds)(lower)


_define(operator.add, ir.IRBuilder.fadd)
_define(operator.sub, ir.IRBuilder.fsub)
_define(operator.mul, ir.IRBuilder.fmul)
_define(operator.truediv, ir.IRBuilder.fdiv)


@intrinsic
def select_negative(typing, test, x, y):
    """``select_negative(test, x, y)``: the lanes of x where test < 0, else those of y."""

    def emit(builder, test, x, y):
        return builder.select(
            builder.fcmp_ordered("<", test, emit_constant(test.type.element, [0.0] * test.type.count)), x, y
        )

    return x(test, x, x), code(emit)


@intrinsic
def reduce_sum(typing, x):
    """``reduce_sum(x)``: the sum of the lanes."""
    return x.dtype(x), code(emit_sum)


@intrinsic
def reduce_max(typing, x):
    """``reduce_max(x)``: the largest lane."""

    def emit(builder, rest):
        while rest.type.count > 1:
            half = (rest.type.count + 1) // 2  # the halves of an odd count share the middle lane
            starts = 0, rest.type.count - half
            rest = emit_maximum(builder, *(emit_lanes(builder, rest, rest, range(at, at + half)) for at in starts))
        return builder.extract_element(rest, INT(0))

    return x.dtype(x), code(emit)


def emit_element(builder, array, index):
    return builder.gep(builder.extract_value(array, _DATA), [index])


def emit_load(builder, array, index, lanes):
    element = emit_element(builder, array, index)
    pointer = builder.bitcast(element, ir.VectorType(element.type.pointee, lanes).as_pointer())
    return builder.load(pointer, align=bytes_of(element.type.pointee))


def emit_store(builder, array, index, value, align=None):
    element = emit_element(builder, array, index)
    pointer = builder.bitcast(element, value.type.as_pointer())
    return builder.store(value, pointer, align=align or bytes_of(element.type.pointee))


def bytes_of(number):
    return 4 if isinstance(number, ir.FloatType) else 8


def emit_constant(kind, values):
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def emit_lanes(builder, x, y, lanes):
    """Return a vector of the given lanes of x and y. y's lanes are numbered after those of x."""
    return builder.shuffle_vector(x, y, emit_constant(INT, lanes))


def emit_splat(builder, number, lanes):
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    return emit_lanes(builder, builder.insert_element(undefined, number, INT(0)), undefined, [0] * lanes)


def emit_fma(builder, a, x, y):
    return builder.fadd(builder.fmul(a, x, flags=("contract",)), y, flags=("contract",))


def emit_maximum(builder, x, y):
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def emit_sum(builder, vector):
    number = vector.type.element
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f{8 * bytes_of(number)}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number, vector.type]), name)
    return builder.call(function, [ir.Constant(number, -0.0), vector], fastmath=("reassoc",))
