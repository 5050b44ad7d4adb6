"""Numba kernels for an iteration of ``BeliefConv``: messages about K capsules of D states go along edges, both ways.

A row k is an edge e = (u, v), sorted by v; ``reverse[k]`` is the row of (v, u). Node v reads the messages m of its rows
and of their reverses, and alone writes the next messages of these reverses. `beliefs` has the formulas.
"""

from .kernel_cache import compiled
from .parts import inlined
from .simd import fma, get, load, maximum, prefetch, reduce_sum, select_negative, splat, store, stream, zeros
from .simd_math import exp, log1p
from .simd_rows import add_outer, max_of_groups, spread, sum_of_groups, times_table

ROWS_AHEAD, LINE = 4, 16  # a reverse's message is prefetched so many rows before it is used, LINE numbers at a time


@inlined
def look_ahead(rows, k, x):
    at = get(rows.reverse, min(k + ROWS_AHEAD, len(rows.reverse) - 1)) * len(rows.ROW)
    for line in range(0, len(rows.ROW), LINE):
        prefetch(x, at + line)


@inlined
def joined_ratio(rows, message, reverse_message):
    """Return <m_e A, m_e'> of each capsule, (K,). It is a, unless rounding or a learned A made it negative."""
    return sum_of_groups(times_table(message, rows.ratio, rows.K) * reverse_message, rows.K)


@inlined
def rest_of(rows, explained):
    """Return epsilon and the explanations (K,) of the other capsules: epsilon + sum over l != k of rho_l a_l."""
    nothing = splat(rows.m.dtype.type(0), rows.K)
    return get(rows.settings, 0) + maximum(nothing, reduce_sum(explained) - explained)


@inlined
def softmax_of_groups(x, rows):
    raised = exp(x - spread(max_of_groups(x, rows.K), rows.ROW))
    return raised / spread(sum_of_groups(raised, rows.K), rows.ROW)


@inlined
def softmax_backward_of_groups(h, dh, rows):
    return h * (dh - spread(sum_of_groups(h * dh, rows.K), rows.ROW))


@compiled
def beliefs_forward(begin, end, rows, base, most, h, t, following, explained):
    """Fill h = softmax(t) (N, K, D), t, the next messages ``following`` (rows, K, D), and ``explained`` (rows, K)."""
    K, ROW, m, size, number = rows.K, rows.ROW, rows.m, len(rows.ROW), rows.m.dtype
    evidence, nothing, rho = zeros(most * size, m), splat(number.type(0), K), load(rows.rho, 0, K)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        total = load(base, node * size, ROW)
        for k in range(first, last):
            look_ahead(rows, k, m)
            message, reverse_message = load(m, k * size, ROW), load(m, get(rows.reverse, k) * size, ROW)
            rates = rho * maximum(nothing, joined_ratio(rows, message, reverse_message))
            store(explained, k * len(K), rates)
            strength = get(rows.settings, 1) * get(rows.weight, k) * log1p(rho / rest_of(rows, rates))
            of_edge = spread(strength, ROW) * times_table(message, rows.evidence, K)
            store(evidence, (k - first) * size, of_edge)
            total = total + of_edge
        store(t, node * size, total)
        store(h, node * size, softmax_of_groups(total, rows))
        for k in range(first, last):
            at = get(rows.reverse, k) * size
            without = softmax_of_groups(total - load(evidence, (k - first) * size, ROW), rows)
            stream(following, at, fma(get(rows.settings, 2), load(m, at, ROW) - without, without))


@compiled
def beliefs_backward(
    begin, end, rows, most, h, t, dh, dfollowing, dbase, dm, dreverse, dweight, drho, dsettings, devidence, dratio
):
    """Fill dbase (N, K, D), dweight (rows,), and the gradients of each row's message and of its reverse's.

    The gradients of m are the sum of dm and dreverse (rows, K, D). Each thread adds to its own drho (K,), dsettings
    (3, K), devidence and dratio (D, K, D). dh and dfollowing are the gradients of the results, each perhaps empty.
    """
    K, ROW, m, size, caps, number = rows.K, rows.ROW, rows.m, len(rows.ROW), len(rows.K), rows.m.dtype
    products, ratios, dwithout = zeros(most * size, m), zeros(most * caps, m), zeros(most * size, m)  # of one node
    nothing, none, rho, one = splat(number.type(0), K), splat(number.type(0), ROW), load(rows.rho, 0, K), number.type(1)
    rho_slope, epsilon_slope, gain_slope, gain = nothing, nothing, nothing, get(rows.settings, 1)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        total, dtotal = load(t, node * size, ROW), none
        if len(dh) > 0:
            dtotal = softmax_backward_of_groups(load(h, node * size, ROW), load(dh, node * size, ROW), rows)
        for k in range(first, last):
            look_ahead(rows, k, m)
            at, place, message = get(rows.reverse, k) * size, (k - first) * size, load(m, k * size, ROW)
            ratio, product = joined_ratio(rows, message, load(m, at, ROW)), times_table(message, rows.evidence, K)
            store(ratios, (k - first) * caps, ratio)
            store(products, place, product)
            if len(dfollowing) > 0:
                look_ahead(rows, k, dfollowing)
                rest = rest_of(rows, rho * maximum(nothing, ratio))
                strength = gain * get(rows.weight, k) * log1p(rho / rest)
                without = softmax_of_groups(total - spread(strength, ROW) * product, rows)
                slope = (one - get(rows.settings, 2)) * load(dfollowing, at, ROW)
                slope = softmax_backward_of_groups(without, slope, rows)
                store(dwithout, place, slope)
                dtotal = dtotal + slope
        store(dbase, node * size, dtotal)
        for k in range(first, last):
            at, place, weight = get(rows.reverse, k) * size, (k - first) * size, get(rows.weight, k)
            message, reverse_message = load(m, k * size, ROW), load(m, at, ROW)
            ratio, of_edge = load(ratios, (k - first) * caps, K), dtotal  # of_edge: the gradient of the edge's evidence
            rates = rho * maximum(nothing, ratio)
            rest = rest_of(rows, rates)
            odds = rho / rest
            logarithm = log1p(odds)
            if len(dfollowing) > 0:
                of_edge = dtotal - load(dwithout, place, ROW)
            dstrength = sum_of_groups(of_edge * load(products, place, ROW), K)
            strength = spread(gain * weight * logarithm, ROW)
            add_outer(devidence, strength * message, of_edge, K)
            gain_slope = fma(weight, dstrength * logarithm, gain_slope)
            store(dweight, k, gain * reduce_sum(dstrength * logarithm))
            dodds = gain * weight * dstrength / (one + odds)
            drest = number.type(-1) * dodds * odds / rest
            rho_slope, epsilon_slope = rho_slope + dodds / rest, epsilon_slope + drest
            drest = select_negative(reduce_sum(rates) - rates, nothing, drest)
            drates = reduce_sum(drest) - drest
            rho_slope = rho_slope + drates * maximum(nothing, ratio)
            dproduct = spread(select_negative(ratio, nothing, rho * drates), ROW)
            add_outer(dratio, dproduct * message, reverse_message, K)
            by_evidence = strength * times_table(of_edge, rows.evidence, K)
            stream(dm, k * size, by_evidence + dproduct * times_table(reverse_message, rows.ratio, K))
            of_reverse = dproduct * times_table(message, rows.ratio, K)
            if len(dfollowing) > 0:
                of_reverse = fma(get(rows.settings, 2), load(dfollowing, at, ROW), of_reverse)
            stream(dreverse, at, of_reverse)
    store(drho, 0, rho_slope)
    store(dsettings, 0, epsilon_slope)
    store(dsettings, caps, gain_slope)
