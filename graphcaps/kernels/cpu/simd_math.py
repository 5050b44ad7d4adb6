"""exp and log of SIMD vectors, for float32 and float64."""

import math

from llvmlite import ir
from numba.extending import intrinsic

from .simd import INT, LONG, code, emit_constant, emit_fma

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
        lanes, bits = x.type.count, INT if digits == 23 else LONG

        def every(value, kind=x.type.element):
            return emit_constant(kind, [value] * lanes)

        tiny = builder.fcmp_ordered("<", x, every(smallest))
        x = builder.select(tiny, every(0.0), x)
        shifter = every(1.5 * 2.0**digits)  # adding it rounds to an integer, which the last bits then hold
        shifted = emit_fma(builder, x, every(1.4426950408889634), shifter)
        n = builder.fsub(shifted, shifter)
        r = emit_fma(builder, n, every(-high), x)
        r = emit_fma(builder, n, every(-low), r)
        series = every(1 / math.factorial(terms - 1))
        for k in reversed(range(terms - 1)):
            series = emit_fma(builder, series, r, every(1 / math.factorial(k)))
        exponent = builder.shl(builder.bitcast(shifted, ir.VectorType(bits, lanes)), every(digits, bits))
        scaled = builder.add(builder.bitcast(series, ir.VectorType(bits, lanes)), exponent)
        whole = builder.select(builder.fcmp_unordered("uno", x, x), x, builder.bitcast(scaled, x.type))
        return builder.select(tiny, every(0.0), whole)

    return x(x), code(emit)


@intrinsic
def log1p(typing, x):
    """``log1p(x)``: log(1 + x) of each lane for x >= 0, within 3 units in the last place. NaN gives NaN.

    1 + x = 2^n y with y in [sqrt(1 / 2), sqrt(2)). log(y) = 2 artanh(s), s = (y - 1) / (y + 1), is a series whose first
    omitted term is less than a tenth of a unit. What 1 + x rounds away is added at the end.
    """

    def emit(builder, x):
        digits, high, low, *_ = EXP_CONSTANTS[str(x.type.element)]
        lanes, (bits, exponent) = x.type.count, (INT, 127) if digits == 23 else (LONG, 1023)
        whole, terms = ir.VectorType(bits, lanes), 5 if digits == 23 else 11

        def every(value, kind=x.type.element):
            return emit_constant(kind, [value] * lanes)

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
            series = emit_fma(builder, series, square, every(1 / (2 * k + 1)))
        number = builder.sitofp(n, x.type)
        total = builder.fadd(emit_fma(builder, number, every(low), rounded), builder.fmul(builder.fadd(s, s), series))
        total = emit_fma(builder, number, every(high), total)
        finite = builder.fcmp_ordered("<", y, every(math.inf))
        return builder.select(finite, total, y)

    return x(x), code(emit)
