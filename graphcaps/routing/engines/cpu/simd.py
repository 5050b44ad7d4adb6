"""The processor's vectors as values of Numba's: a row of numbers is loaded, computed with and stored as one.

A loop over the D numbers of a vote compiles to scalar code, because LLVM can't rule out that two arrays overlap, and
because an index that may be negative turns a run of numbers into scattered ones. These functions leave neither open:
an index counts from the array's start, and what has been loaded stays in registers. They check no bounds.

    y = load(votes, at, width)           # a vector of len(width) numbers; width is a tuple, its length part of the type
    s = fma(c, y, s)                     # s + c y
    store(sums, at, s)

Each works for float32 and float64.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import populate_array

_INT, _LONG = ir.IntType(32), ir.IntType(64)


class Vector(types.Type):
    """Numba's type of ``lanes`` numbers of ``dtype``."""

    def __init__(self, dtype, lanes):
        super().__init__(name=f"vector({dtype}, {lanes})")
        self.dtype, self.lanes = dtype, lanes


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector):
        super().__init__(manager, vector, ir.VectorType(manager[vector.dtype].get_value_type(), vector.lanes))


@intrinsic
def get(typing, x, i):
    """``get(x, i)``: x[i]; integers as int64."""

    def generate(context, builder, signature, args):
        number = builder.load(_element(context, builder, x, args[0], args[1]))
        return number if signature.return_type == x.dtype else builder.sext(number, _LONG)

    return (types.int64 if isinstance(x.dtype, types.Integer) else x.dtype)(x, i), generate


@intrinsic
def put(typing, x, i, number):
    """``put(x, i, number)``: x[i] = number."""

    def generate(context, builder, signature, args):
        builder.store(args[2], _element(context, builder, x, args[0], args[1]))
        return context.get_dummy_value()

    return types.void(x, i, x.dtype), generate


@intrinsic
def zeros(typing, count, x):
    """``zeros(count, x)``: ``count`` zeros of x's type, in new memory. ``np.zeros`` compiles for longer."""
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

    def generate(context, builder, signature, args):
        return _load(context, builder, x, args[0], args[1], len(width))

    return Vector(x.dtype, len(width))(x, i, width), generate


@intrinsic
def store(typing, x, i, vector):
    """``store(x, i, vector)``: x[i:i + lanes] = vector."""

    def generate(context, builder, signature, args):
        pointer = builder.bitcast(_element(context, builder, x, args[0], args[1]), args[2].type.as_pointer())
        builder.store(args[2], pointer, align=x.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(x, i, vector), generate


@intrinsic
def store_nontemporal(typing, x, i, vector):
    """``store_nontemporal(x, i, vector)``: as ``store``, for whole cache lines that won't be read soon.

    Rows that are no whole lines (64 bytes each, in an array that starts at one) are stored as usual.
    """
    size = x.dtype.bitwidth // 8

    def generate(context, builder, signature, args):
        element = _element(context, builder, x, args[0], args[1])
        pointer = builder.bitcast(element, args[2].type.as_pointer())
        if vector.lanes * size % 64:
            builder.store(args[2], pointer, align=size)
            return context.get_dummy_value()
        start = context.make_array(x)(context, builder, args[0]).data
        odd = builder.and_(builder.ptrtoint(start, _LONG), _LONG(63))
        with builder.if_else(builder.icmp_unsigned("==", odd, _LONG(0))) as (whole, parts):
            with whole:
                line = builder.store(args[2], pointer, align=64)
                line.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))
            with parts:
                builder.store(args[2], pointer, align=size)
        return context.get_dummy_value()

    return types.void(x, i, vector), generate


@intrinsic
def select_first(typing, count, x, y):
    """``select_first(count, x, y)``: the first ``count`` lanes of x, then those of y."""

    def generate(context, builder, signature, args):
        lanes = x.lanes
        count = builder.trunc(args[0], _INT)
        order = ir.Constant(ir.VectorType(_INT, lanes), list(range(lanes)))
        return builder.select(builder.icmp_signed("<", order, _splat(builder, count, lanes)), args[1], args[2])

    return x(types.int64, x, x), generate


@intrinsic
def prefetch(typing, x, i):
    """``prefetch(x, i)``: bring the cache line of x[i] nearer; changes nothing."""

    def generate(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        pointer = builder.bitcast(_element(context, builder, x, args[0], args[1]), byte)
        builder.call(prefetch, [pointer, _INT(0), _INT(3), _INT(1)])  # for reading, into the nearest cache, data
        return context.get_dummy_value()

    return types.void(x, i), generate


@intrinsic
def splat(typing, number, width):
    """``splat(number, width)``: the same number in each lane."""

    def generate(context, builder, signature, args):
        return _splat(builder, args[0], len(width))

    return Vector(number, len(width))(number, width), generate


@intrinsic
def fma(typing, a, x, y):
    """``fma(a, x, y)``: a x + y; ``a`` is a number or a vector."""

    def generate(context, builder, signature, args):
        factor = args[0] if isinstance(a, Vector) else _splat(builder, args[0], x.lanes)
        return _fma(builder, factor, args[1], args[2])

    return x(a if isinstance(a, Vector) else x.dtype, x, x), generate


@intrinsic
def multiply(typing, x, y):
    """``multiply(x, y)``: x y, lane by lane."""
    return x(x, x), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def subtract(typing, x, y):
    """``subtract(x, y)``: x - y, lane by lane."""
    return x(x, x), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def divide(typing, x, y):
    """``divide(x, y)``: x / y, lane by lane."""
    return x(x, x), lambda context, builder, signature, args: builder.fdiv(*args)


@intrinsic
def maximum(typing, x, y):
    """``maximum(x, y)``: the larger of the two in each lane."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return x(x, x), generate


@intrinsic
def exp(typing, x):
    """``exp(x)``: exp of each lane, for x <= 0 (else undefined, or NaN); within 2 units in the last place.

    exp(x) = 2^n exp(r) with n = round(x / ln 2), and the Taylor series of exp(r) for |r| <= ln 2 / 2, whose first term
    left out is below a tenth of a unit. Below the smallest normal number it gives 0.
    """

    def generate(context, builder, signature, args):
        return _exp(builder, args[0])

    return x(x), generate


@intrinsic
def dot(typing, x, y):
    """``dot(x, y)``: <x, y>."""

    def generate(context, builder, signature, args):
        return _reduce(builder, "fadd", builder.fmul(*args))

    return x.dtype(x, x), generate


@intrinsic
def dots(typing, x, ix, y, iy, z, width):
    """``dots(x, ix, y, iy, z, width)``: z + the products <x, y> of as many rows of D as z has lanes.

    The lanes of all products are added up together, two vectors' halves at a time, until each lane is a sum.
    """

    def generate(context, builder, signature, args):
        size, products = len(width), []
        for row in range(z.lanes):
            offset = ir.Constant(args[1].type, row * size)
            left = _load(context, builder, x, args[0], builder.add(args[1], offset), size)
            right = _load(context, builder, y, args[2], builder.add(args[3], offset), size)
            products.append(builder.fmul(left, right))
        return builder.fadd(_sums(builder, products, args[4].type), args[4])

    return z(x, ix, y, iy, z, width), generate


@intrinsic
def dots_with(typing, x, ix, stride, y, width):
    """``dots_with(x, ix, stride, y, width)``: the products <x, y> of one y and len(width) rows of x, a stride apart."""

    def generate(context, builder, signature, args):
        at, products = args[1], []
        for _ in range(len(width)):
            products.append(builder.fmul(_load(context, builder, x, args[0], at, y.lanes), args[3]))
            at = builder.add(at, args[2])
        return _sums(builder, products, ir.VectorType(args[3].type.element, len(width)))

    return Vector(x.dtype, len(width))(x, ix, types.int64, y, width), generate


@intrinsic
def reduce_sum(typing, x):
    """``reduce_sum(x)``: the sum of the lanes."""
    return x.dtype(x), lambda context, builder, signature, args: _reduce(builder, "fadd", args[0])


@intrinsic
def reduce_max(typing, x):
    """``reduce_max(x)``: the largest of the lanes."""

    def generate(context, builder, signature, args):
        rest = args[0]
        while rest.type.count > 1:
            half = (rest.type.count + 1) // 2  # of an odd number, both halves have the middle lane
            starts = 0, rest.type.count - half
            parts = [builder.shuffle_vector(rest, rest, _int_vector(range(at, at + half))) for at in starts]
            rest = builder.select(builder.fcmp_ordered(">", *parts), *parts)
        return builder.extract_element(rest, _INT(0))

    return x.dtype(x), generate


def _element(context, builder, array_type, array, index):
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _load(context, builder, array_type, array, index, lanes):
    vector = ir.VectorType(context.get_data_type(array_type.dtype), lanes)
    pointer = builder.bitcast(_element(context, builder, array_type, array, index), vector.as_pointer())
    return builder.load(pointer, align=array_type.dtype.bitwidth // 8)


def _int_vector(values):
    values = list(values)
    return ir.Constant(ir.VectorType(_INT, len(values)), values)


def _halves_added(builder, x, half):
    parts = [builder.shuffle_vector(x, x, _int_vector(range(at, at + half))) for at in (0, half)]
    return builder.fadd(*parts)


def _joined(builder, x, y):
    return builder.shuffle_vector(x, y, _int_vector(range(2 * x.type.count)))


def _groups_added(builder, x, y, half):
    """Of each run of 2 half lanes of x and then of y: its first half plus its second."""
    lanes = range(2 * x.type.count)
    parts = [[lane for lane in lanes if lane // half % 2 == odd] for odd in (0, 1)]
    return builder.fadd(*(builder.shuffle_vector(x, y, _int_vector(part)) for part in parts))


def _sums(builder, parts, kind):
    """A vector whose lanes are the sums of the parts' lanes, one part each."""
    lanes = kind.count
    while parts[0].type.count > lanes and parts[0].type.count % 2 == 0:
        half = parts[0].type.count // 2
        parts = [_halves_added(builder, part, half) for part in parts]
    group = parts[0].type.count
    if lanes & (lanes - 1) or group & (group - 1) or group > lanes:  # not to be halved and joined
        sums = ir.Constant(kind, ir.Undefined)
        for row, part in enumerate(parts):
            sums = builder.insert_element(sums, _reduce(builder, "fadd", part), _INT(row))
        return sums
    while parts[0].type.count < lanes:
        parts = [_joined(builder, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    while group > 1:
        group //= 2
        parts = [_groups_added(builder, *pair, group) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _splat(builder, number, lanes):
    undefined = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, number, _INT(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))


def _fma(builder, a, x, y):
    return builder.fadd(builder.fmul(a, x, flags=("contract",)), y, flags=("contract",))


def _reduce(builder, operation, vector):
    number = vector.type.element
    name = f"llvm.vector.reduce.{operation}.v{vector.type.count}f{32 if isinstance(number, ir.FloatType) else 64}"
    start = [ir.Constant(number, -0.0)] if operation == "fadd" else []
    kind = ir.FunctionType(number, [*(value.type for value in start), vector.type])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [*start, vector], fastmath=("reassoc",))


# Of a number type: digits of its fraction, ln 2 in two parts, terms of the series, logarithm of its smallest number.
_LAYOUT = {
    "float": (23, 0.693145751953125, 1.42860682030941723212e-6, 8, -87.33654),
    "double": (52, 0.6931471803691238, 1.9082149292705877e-10, 14, -708.3964185322641),
}


def _exp(builder, x):
    digits, high, low, terms, least = _LAYOUT[str(x.type.element)]
    lanes, number = x.type.count, x.type.element
    bits = _INT if digits == 23 else _LONG

    def every(value, kind=number):
        return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)

    tiny = builder.fcmp_ordered("<", x, every(least))
    x = builder.select(tiny, every(0.0), x)
    shifter = every(1.5 * 2.0**digits)  # adding it rounds to whole numbers and leaves them in the last digits
    shifted = _fma(builder, x, every(1.4426950408889634), shifter)
    n = builder.fsub(shifted, shifter)
    r = _fma(builder, n, every(-high), x)
    r = _fma(builder, n, every(-low), r)
    factorial = [1.0]
    for k in range(1, terms):
        factorial.append(factorial[-1] * k)
    series = every(1 / factorial[-1])
    for k in reversed(range(terms - 1)):
        series = _fma(builder, series, r, every(1 / factorial[k]))
    exponent = builder.shl(builder.bitcast(shifted, ir.VectorType(bits, lanes)), every(digits, bits))
    scaled = builder.add(builder.bitcast(series, ir.VectorType(bits, lanes)), exponent)
    whole = builder.select(builder.fcmp_unordered("uno", x, x), x, builder.bitcast(scaled, x.type))
    return builder.select(tiny, every(0.0), whole)
