"""Numba kernels for an iteration of ``BeliefConv``: messages about K capsules of D states go along edges, both ways.

A row k is an edge e = (u, v), sorted by v; ``reverse[k]`` is the row of (v, u). Node v reads the messages m of its rows
and of their reverses, and alone writes the next messages of these reverses. `beliefs` has the formulas.
"""

from .kernel_cache import compiled
from .parts import inlined
from .simd import (
    add_outer,
    exp,
    fma,
    get,
    load,
    log1p,
    max_of_groups,
    maximum,
    prefetch,
    reduce_sum,
    select_negative,
    splat,
    spread,
    store,
    stream,
    sum_of_groups,
    times_table,
    zeros,
)

ROWS_AHEAD, LINE = 4, 16  # a reverse's message is prefetched so many rows before it is used, LINE numbers at a time


@inlined
def look_ahead(rows, k, x):
    at = get(rows.reverse, min(k + ROWS_AHEAD, len(rows.reverse) - 1)) * len(rows.ROW)
    for line in range(0, len(rows.ROW), LINE):
        prefetch(x, at + line)


@inlined
def explained_by(rows, own, told):
    """Return <own A, told> of each capsule, (K,)."""
    return sum_of_groups(times_table(own, rows.ratio, rows.K) * told, rows.K)


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
            own, told = load(m, k * size, ROW), load(m, get(rows.reverse, k) * size, ROW)
            by_capsule = rho * maximum(nothing, explained_by(rows, own, told))
            store(explained, k * len(K), by_capsule)
            strength = get(rows.settings, 1) * get(rows.weight, k) * log1p(rho / rest_of(rows, by_capsule))
            sent = spread(strength, ROW) * times_table(own, rows.evidence, K)
            store(evidence, (k - first) * size, sent)
            total = total + sent
        store(t, node * size, total)
        store(h, node * size, softmax_of_groups(total, rows))
        for k in range(first, last):
            at = get(rows.reverse, k) * size
            without = softmax_of_groups(total - load(evidence, (k - first) * size, ROW), rows)
            stream(following, at, fma(get(rows.settings, 2), load(m, at, ROW) - without, without))


@compiled
def beliefs_backward(
    begin, end, rows, most, h, t, dh, dfollowing, dbase, down, dtold, dweight, drho, dsettings, devidence, dratio
):
    """Fill dbase (N, K, D), dweight (rows,), and a row's gradients as an edge of its node, and as a reverse.

    The gradients of m are the sum of down and dtold (rows, K, D). Each thread adds to its own drho (K,), dsettings
    (3, K), devidence and dratio (D, K, D). dh and dfollowing are the gradients of the results, each perhaps empty.
    """
    K, ROW, m, size, caps, number = rows.K, rows.ROW, rows.m, len(rows.ROW), len(rows.K), rows.m.dtype
    slopes, evidence, products = zeros(most * size, m), zeros(most * size, m), zeros(most * caps, m)
    nothing, none, rho, one = splat(number.type(0), K), splat(number.type(0), ROW), load(rows.rho, 0, K), number.type(1)
    of_rho, of_epsilon, of_gain, gain = nothing, nothing, nothing, get(rows.settings, 1)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        total, slope = load(t, node * size, ROW), none
        if len(dh) > 0:
            slope = softmax_backward_of_groups(load(h, node * size, ROW), load(dh, node * size, ROW), rows)
        for k in range(first, last):
            look_ahead(rows, k, m)
            at, place = get(rows.reverse, k) * size, (k - first) * size
            own = load(m, k * size, ROW)
            product = explained_by(rows, own, load(m, at, ROW))
            rest, along = rest_of(rows, rho * maximum(nothing, product)), times_table(own, rows.evidence, K)
            store(products, (k - first) * caps, product)
            store(evidence, place, along)
            if len(dfollowing) > 0:
                look_ahead(rows, k, dfollowing)
                strength = gain * get(rows.weight, k) * log1p(rho / rest)
                without = softmax_of_groups(total - spread(strength, ROW) * along, rows)
                change = (one - get(rows.settings, 2)) * load(dfollowing, at, ROW)
                change = softmax_backward_of_groups(without, change, rows)
                store(slopes, place, change)
                slope = slope + change
        store(dbase, node * size, slope)
        for k in range(first, last):
            at, place, weight = get(rows.reverse, k) * size, (k - first) * size, get(rows.weight, k)
            own, told, product = load(m, k * size, ROW), load(m, at, ROW), load(products, (k - first) * caps, K)
            by_capsule = rho * maximum(nothing, product)
            rest = rest_of(rows, by_capsule)
            odds = rho / rest
            logarithm, sent = log1p(odds), slope
            if len(dfollowing) > 0:
                sent = slope - load(slopes, place, ROW)
            dstrength = sum_of_groups(sent * load(evidence, place, ROW), K)
            weighted = spread(gain * weight * logarithm, ROW)
            add_outer(devidence, weighted * own, sent, K)
            back = weighted * times_table(sent, rows.evidence, K)
            of_gain = fma(weight, dstrength * logarithm, of_gain)
            store(dweight, k, gain * reduce_sum(dstrength * logarithm))
            dodds = gain * weight * dstrength / (one + odds)
            drest = number.type(-1) * dodds * odds / rest
            of_rho, of_epsilon = of_rho + dodds / rest, of_epsilon + drest
            drest = select_negative(reduce_sum(by_capsule) - by_capsule, nothing, drest)
            dexplained = reduce_sum(drest) - drest
            of_rho = of_rho + dexplained * maximum(nothing, product)
            dproduct = spread(select_negative(product, nothing, rho * dexplained), ROW)
            add_outer(dratio, dproduct * own, told, K)
            stream(down, k * size, back + dproduct * times_table(told, rows.ratio, K))
            reached = dproduct * times_table(own, rows.ratio, K)
            if len(dfollowing) > 0:
                reached = fma(get(rows.settings, 2), load(dfollowing, at, ROW), reached)
            stream(dtold, at, reached)
    store(drho, 0, of_rho)
    store(dsettings, 0, of_epsilon)
    store(dsettings, caps, of_gain)
