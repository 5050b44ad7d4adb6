"""SIMD vectors for Numba: a row of numbers is loaded, used in computations and stored as one value.

With plain Numba, a loop over the D numbers of a vote compiles to scalar code: LLVM can't rule out that arrays overlap
or that an index is negative. Here an index counts from the array's start, and bounds aren't checked.

    y = load(votes, at, width)           # a vector of len(width) numbers; the length of a tuple is part of its type
    s = fma(c, y, s)                     # s + c y
    store(sums, at, s)

All functions work with float32 and float64. The operators + - * / take two vectors, or a vector and a number.
"""

import math
import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import default_manager
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model
from numba.np.arrayobj import populate_array

_INT, _LONG = ir.IntType(32), ir.IntType(64)
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


def _code(emit):
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
        number = builder.load(_element(builder, array, index))
        return builder.sext(number, _LONG) if integer else number

    return (types.int64 if integer else x.dtype)(x, i), _code(emit)


@intrinsic
def zeros(typing, count, x):
    """``zeros(count, x)``: a new array of ``count`` zeros with x's dtype. ``np.zeros`` takes longer to compile."""
    made = types.Array(x.dtype, 1, "C")

    def generate(context, builder, signature, args):
        size = x.dtype.bitwidth // 8
        memory = context.nrt.meminfo_alloc_aligned(builder, builder.mul(args[0], _LONG(size)), align=64)
        start = context.nrt.meminfo_data(builder, memory)
        cgutils.memset(builder, start, builder.mul(args[0], _LONG(size)), 0)
        array = context.make_array(made)(context, builder)
        data = builder.bitcast(start, array.data.type)
        populate_array(array, data, shape=(args[0],), strides=(_LONG(size),), itemsize=_LONG(size), meminfo=memory)
        return array._getvalue()

    return made(types.int64, x), generate


@intrinsic
def load(typing, x, i, width):
    """``load(x, i, width)``: x[i:i + len(width)]."""
    lanes = len(width)
    return Vector(x.dtype, lanes)(x, i, width), _code(lambda builder, x, i, _: _load(builder, x, i, lanes))


@intrinsic
def store(typing, x, i, value):
    """``store(x, i, value)``: x[i:i + lanes] = value for a vector, or x[i] = value for a number."""
    return types.void(x, i, value if isinstance(value, Vector) else x.dtype), _code(_store)


@intrinsic
def stream(typing, x, i, vector):
    """``stream(x, i, vector)``: a ``store`` that bypasses the cache if vectors are whole cache lines (64 bytes).

    x must start at a cache line, as the arrays of `passes.empty` do.
    """
    whole_lines = vector.lanes * x.dtype.bitwidth // 8 % 64 == 0

    def emit(builder, array, index, value):
        line = _store(builder, array, index, value, align=64 if whole_lines else None)
        if whole_lines:
            line.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))

    return types.void(x, i, vector), _code(emit)


@intrinsic
def add_rows(typing, sums, at, sums_stride, factors, x, i, x_stride, width):
    """``add_rows(sums, at, sums_stride, factors, x, i, x_stride, width)``: each row of sums += factor times row of x.

    There is one row of len(width) numbers per lane of factors. The first rows start at ``at`` in sums and at i in x,
    and each next row a stride later.
    """
    size, index = len(width), types.int64

    def emit(builder, sums, at, sums_stride, vector, x, i, x_stride, _):
        for row in range(factors.lanes):
            factor = _splat(builder, builder.extract_element(vector, _INT(row)), size)
            terms = _load(builder, x, i, size), _load(builder, sums, at, size)
            _store(builder, sums, at, _fma(builder, factor, *terms))
            at, i = builder.add(at, sums_stride), builder.add(i, x_stride)

    return types.void(sums, index, index, factors, x, index, index, width), _code(emit)


@intrinsic
def select_first(typing, count, x, y):
    """``select_first(count, x, y)``: the first ``count`` lanes from x, and the others from y."""

    def emit(builder, count, first, rest):
        counts = _splat(builder, builder.trunc(count, _INT), x.lanes)
        return builder.select(builder.icmp_signed("<", _constant(_INT, range(x.lanes)), counts), first, rest)

    return x(types.int64, x, x), _code(emit)


@intrinsic
def prefetch(typing, x, i):
    """``prefetch(x, i)``: load the cache line of x[i] into the nearest cache."""

    def emit(builder, array, index):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(_element(builder, array, index), byte)
        builder.call(function, [pointer, _INT(0), _INT(3), _INT(1)])  # the flags mean: read; nearest cache; data

    return types.void(x, i), _code(emit)


@intrinsic
def splat(typing, number, width):
    """``splat(number, width)``: the same number in each lane."""
    lanes = len(width)
    return Vector(number, lanes)(number, width), _code(lambda builder, number, _: _splat(builder, number, lanes))


@intrinsic
def fma(typing, a, x, y):
    """``fma(a, x, y)``: a x + y, where a is a number or a vector."""

    def emit(builder, factor, *vectors):
        return _fma(builder, factor if isinstance(a, Vector) else _splat(builder, factor, x.lanes), *vectors)

    return x(a if isinstance(a, Vector) else x.dtype, x, x), _code(emit)


@intrinsic
def maximum(typing, x, y):
    """``maximum(x, y)``: the larger number of each lane."""
    return x(x, x), _code(_maximum)


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
        vectors = (
            x if isinstance(kind, Vector) else _splat(builder, x, lanes) for x, kind in zip(args, kinds, strict=True)
        )
        return emit(builder, *vectors)

    for kinds in (Vector, Vector), (types.Float, Vector), (Vector, types.Float):
        lower_builtin(symbol, *kinds)(lower)


_define(operator.add, ir.IRBuilder.fadd)
_define(operator.sub, ir.IRBuilder.fsub)
_define(operator.mul, ir.IRBuilder.fmul)
_define(operator.truediv, ir.IRBuilder.fdiv)


# For each LLVM type: bits of the fraction, ln 2 in two parts, terms of the series, ln of the smallest normal number.
EXP_CONSTANTS = {
    "float": (23, 0.693145751953125, 1.42860682030941723212e-6, 8, -87.33654),
    "double": (52, 0.6931471803691238, 1.9082149292705877e-10, 14, -708.3964185322641),
}


@intrinsic
def exp(typing, x):
    """``exp(x)``: exp of each lane for x <= 0, within 2 units in the last place. NaN gives NaN; x > 0 is undefined.

    exp(x) = 2^n exp(r) with n = round(x / ln 2). exp(r), |r| <= ln 2 / 2, is a Taylor series whose first omitted term
    is less than a tenth of a unit. Results below the smallest normal number are 0.
    """

    def emit(builder, x):
        digits, high, low, terms, smallest = EXP_CONSTANTS[str(x.type.element)]
        lanes, bits = x.type.count, _INT if digits == 23 else _LONG

        def every(value, kind=x.type.element):
            return _constant(kind, [value] * lanes)

        tiny = builder.fcmp_ordered("<", x, every(smallest))
        x = builder.select(tiny, every(0.0), x)
        shifter = every(1.5 * 2.0**digits)  # adding it rounds to an integer, which the last bits then hold
        shifted = _fma(builder, x, every(1.4426950408889634), shifter)
        n = builder.fsub(shifted, shifter)
        r = _fma(builder, n, every(-high), x)
        r = _fma(builder, n, every(-low), r)
        series = every(1 / math.factorial(terms - 1))
        for k in reversed(range(terms - 1)):
            series = _fma(builder, series, r, every(1 / math.factorial(k)))
        exponent = builder.shl(builder.bitcast(shifted, ir.VectorType(bits, lanes)), every(digits, bits))
        scaled = builder.add(builder.bitcast(series, ir.VectorType(bits, lanes)), exponent)
        whole = builder.select(builder.fcmp_unordered("uno", x, x), x, builder.bitcast(scaled, x.type))
        return builder.select(tiny, every(0.0), whole)

    return x(x), _code(emit)


@intrinsic
def log1p(typing, x):
    """``log1p(x)``: log(1 + x) of each lane for x >= 0, within 3 units in the last place. NaN gives NaN.

    1 + x = 2^n y with y in [sqrt(1 / 2), sqrt(2)). log(y) = 2 artanh(s), s = (y - 1) / (y + 1), is a series whose first
    omitted term is less than a tenth of a unit. What 1 + x rounds away is added at the end.
    """

    def emit(builder, x):
        digits, high, low, *_ = EXP_CONSTANTS[str(x.type.element)]
        lanes, (bits, exponent) = x.type.count, (_INT, 127) if digits == 23 else (_LONG, 1023)
        whole, terms = ir.VectorType(bits, lanes), 5 if digits == 23 else 11

        def every(value, kind=x.type.element):
            return _constant(kind, [value] * lanes)

        y = builder.fadd(x, every(1.0))
        rounded = builder.fdiv(builder.fsub(x, builder.fsub(y, every(1.0))), y)
        root = (exponent - 1 << digits) + int((math.sqrt(2) - 1) * 2**digits)  # the bits of sqrt(1 / 2)
        n = builder.ashr(builder.sub(builder.bitcast(y, whole), every(root, bits)), every(digits, bits))
        of_y = builder.sub(builder.bitcast(y, whole), builder.shl(n, every(digits, bits)))
        scaled = builder.fsub(builder.bitcast(of_y, x.type), every(1.0))
        s = builder.fdiv(scaled, builder.fadd(scaled, every(2.0)))
        square = builder.fmul(s, s)
        series = every(1 / (2 * terms - 1))
        for k in reversed(range(terms - 1)):
            series = _fma(builder, series, square, every(1 / (2 * k + 1)))
        number = builder.sitofp(n, x.type)
        total = builder.fadd(_fma(builder, number, every(low), rounded), builder.fmul(builder.fadd(s, s), series))
        total = _fma(builder, number, every(high), total)
        finite = builder.fcmp_ordered("<", y, every(math.inf))
        return builder.select(finite, total, y)

    return x(x), _code(emit)


@intrinsic
def sum_of_groups(typing, x, groups):
    """``sum_of_groups(x, groups)``: the sums of len(groups) equal parts of x's lanes, as a vector."""
    count = len(groups)
    return Vector(x.dtype, count)(x, groups), _code(lambda b, x, _: _fold(b, x, count, ir.IRBuilder.fadd, 0.0))


@intrinsic
def max_of_groups(typing, x, groups):
    """``max_of_groups(x, groups)``: the largest of each of len(groups) equal parts of x's lanes, as a vector."""
    count = len(groups)
    return Vector(x.dtype, count)(x, groups), _code(lambda b, x, _: _fold(b, x, count, _maximum, -math.inf))


@intrinsic
def spread(typing, x, width):
    """``spread(x, width)``: each lane of x repeated, so that there are len(width) lanes."""
    lanes = len(width)
    times = lanes // x.lanes
    return Vector(x.dtype, lanes)(x, width), _code(lambda b, x, _: _lanes(b, x, x, [k // times for k in range(lanes)]))


@intrinsic
def times_table(typing, x, tables, groups):
    """``times_table(x, tables, groups)``: each part of x's lanes, a row of D numbers, times its own table (D, D).

    ``tables`` (D, groups, D) has the first rows of all tables first.
    """
    count = len(groups)

    def emit(builder, x, tables, _):
        total = _constant(x.type.element, [0.0] * x.type.count)
        for row in range(x.type.count // count):
            of_row = _load(builder, tables, _LONG(row * x.type.count), x.type.count)
            total = _fma(builder, _nth_of_groups(builder, x, count, row), of_row, total)
        return total

    return x(x, tables, groups), _code(emit)


@intrinsic
def add_outer(typing, tables, x, y, groups):
    """``add_outer(tables, x, y, groups)``: tables[i, k, j] += x[k, i] y[k, j], with tables as in ``times_table``."""
    count = len(groups)

    def emit(builder, tables, x, y, _):
        for row in range(x.type.count // count):
            at = _LONG(row * x.type.count)
            factor = _nth_of_groups(builder, x, count, row)
            _store(builder, tables, at, _fma(builder, factor, y, _load(builder, tables, at, x.type.count)))

    return types.void(tables, x, x, groups), _code(emit)


@intrinsic
def select_negative(typing, test, x, y):
    """``select_negative(test, x, y)``: the lanes of x where test < 0, else those of y."""

    def emit(builder, test, x, y):
        return builder.select(
            builder.fcmp_ordered("<", test, _constant(test.type.element, [0.0] * test.type.count)), x, y
        )

    return x(test, x, x), _code(emit)


@intrinsic
def dots(typing, x, ix, x_stride, y, iy, y_stride, rows, width):
    """``dots(x, ix, x_stride, y, iy, y_stride, rows, width)``: the products <x, y> of len(rows) rows, as a vector.

    Rows have len(width) numbers. The first rows start at ix and iy, and each next row a stride later.
    """
    size, lanes = len(width), len(rows)

    def emit(builder, x, i, x_stride, y, j, y_stride, *widths):
        products = []
        for _ in range(lanes):
            products.append(builder.fmul(_load(builder, x, i, size), _load(builder, y, j, size)))
            i, j = builder.add(i, x_stride), builder.add(j, y_stride)
        return _sums(builder, products, ir.VectorType(products[0].type.element, lanes))

    index = types.int64
    return Vector(x.dtype, lanes)(x, index, index, y, index, index, rows, width), _code(emit)


@intrinsic
def reduce_sum(typing, x):
    """``reduce_sum(x)``: the sum of the lanes."""
    return x.dtype(x), _code(_sum)


@intrinsic
def reduce_max(typing, x):
    """``reduce_max(x)``: the largest lane."""

    def emit(builder, rest):
        while rest.type.count > 1:
            half = (rest.type.count + 1) // 2  # the halves of an odd count share the middle lane
            starts = 0, rest.type.count - half
            rest = _maximum(builder, *(_lanes(builder, rest, rest, range(at, at + half)) for at in starts))
        return builder.extract_element(rest, _INT(0))

    return x.dtype(x), _code(emit)


def _element(builder, array, index):
    return builder.gep(builder.extract_value(array, _DATA), [index])


def _load(builder, array, index, lanes):
    element = _element(builder, array, index)
    pointer = builder.bitcast(element, ir.VectorType(element.type.pointee, lanes).as_pointer())
    return builder.load(pointer, align=_bytes(element.type.pointee))


def _store(builder, array, index, value, align=None):
    element = _element(builder, array, index)
    pointer = builder.bitcast(element, value.type.as_pointer())
    return builder.store(value, pointer, align=align or _bytes(element.type.pointee))


def _bytes(number):
    return 4 if isinstance(number, ir.FloatType) else 8


def _constant(kind, values):
    return ir.Constant(ir.VectorType(kind, len(values)), list(values))


def _lanes(builder, x, y, lanes):
    """Return a vector of the given lanes of x and y. y's lanes are numbered after those of x."""
    return builder.shuffle_vector(x, y, _constant(_INT, lanes))


def _sums(builder, parts, kind):
    """Return a vector with one lane per vector in ``parts``: the sum of its lanes."""
    lanes = kind.count
    while parts[0].type.count > lanes and parts[0].type.count % 2 == 0:
        half = parts[0].type.count // 2
        halves = range(half), range(half, 2 * half)
        parts = [builder.fadd(*(_lanes(builder, part, part, of) for of in halves)) for part in parts]
    group = parts[0].type.count
    if lanes & (lanes - 1) or group & (group - 1) or group > lanes:  # halving and joining need powers of two
        sums = ir.Constant(kind, ir.Undefined)
        for row, part in enumerate(parts):
            sums = builder.insert_element(sums, _sum(builder, part), _INT(row))
        return sums
    while parts[0].type.count < lanes:
        joined = range(2 * parts[0].type.count)
        parts = [_lanes(builder, *pair, joined) for pair in zip(parts[::2], parts[1::2], strict=True)]
    while group > 1:
        group //= 2  # in each run of 2 * group lanes, add the halves
        of_halves = [[lane for lane in range(2 * lanes) if lane // group % 2 == half] for half in (0, 1)]
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.fadd(*(_lanes(builder, *pair, half) for half in of_halves)) for pair in pairs]
    return parts[0]


def _fold(builder, x, groups, combine, neutral):
    """Combine the lanes of each of ``groups`` equal parts of a vector: one lane per part remains."""
    size = x.type.count // groups
    while size > 1:
        half, kind = (size + 1) // 2, x.type.element
        beyond = groups * size  # the number of a neutral lane
        parts = [
            [g * size + at if at < size else beyond for g in range(groups) for at in of]
            for of in (range(half), range(half, 2 * half))
        ]
        x = combine(builder, *(_lanes(builder, x, _constant(kind, [neutral] * x.type.count), part) for part in parts))
        size = half
    return x


def _nth_of_groups(builder, x, groups, n):
    """Return a vector whose lanes have the n-th lane of their part."""
    size = x.type.count // groups
    return _lanes(builder, x, x, [lane // size * size + n for lane in range(x.type.count)])


def _splat(builder, number, lanes):
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    return _lanes(builder, builder.insert_element(undefined, number, _INT(0)), undefined, [0] * lanes)


def _fma(builder, a, x, y):
    return builder.fadd(builder.fmul(a, x, flags=("contract",)), y, flags=("contract",))


def _maximum(builder, x, y):
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _sum(builder, vector):
    number = vector.type.element
    name = f"llvm.vector.reduce.fadd.v{vector.type.count}f{8 * _bytes(number)}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number, vector.type]), name)
    return builder.call(function, [ir.Constant(number, -0.0), vector], fastmath=("reassoc",))
