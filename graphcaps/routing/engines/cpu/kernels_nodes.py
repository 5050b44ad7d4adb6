"""Routing among the capsules of a node, for Numba: all of a node's iterations while its neighbours' votes are in cache.

Where the votes along an edge compete among the capsules of its destination alone, no node's routing looks at
another's. So these kernels go from node to node. A source's votes are read where they lie, by all of its edges. Nothing
is kept from forward to backward: the couplings are made anew.

A row is a capsule of an edge's source. It has a vote of D numbers for each of the node's K capsules. What is summed
over a node's rows is (K, D): s and w of an iteration, and their gradients. The first arguments of a kernel are its
range of nodes begin:end. `nodes` has the formulas, and what the other arguments are.
"""

from __future__ import annotations

import math

from .kernel_cache import compiled
from .parts import inlined
from .simd import (
    divide,
    dot,
    dots,
    exp,
    fma,
    get,
    load,
    multiply,
    prefetch,
    put,
    reduce_max,
    reduce_sum,
    splat,
    store,
    subtract,
    zeros,
)

LEAST = 1e-24  # a mean square of lengths up to which votes have no direction
SHORTEST = 1e-12  # a length up to which a sum has none
AHEAD, LINE = 4, 16  # rows from the one that is worked on to the one that is prefetched, 16 numbers at a time


@inlined
def start_of(rows, k):
    """Where row k begins in u_hat."""
    return get(rows.source, k) * len(rows.K) * len(rows.D)


@inlined
def look_ahead(rows, k, last):
    at = start_of(rows, min(k + AHEAD, last))
    for line in range(0, len(rows.K) * len(rows.D), LINE):
        prefetch(rows.u_hat, at + line)


@inlined
def scales(rows, k):
    """How long each of row k's votes is made."""
    K = rows.K
    if len(rows.scale) > 0:
        return load(rows.scale, get(rows.eid, k) * len(K), K)
    return splat(rows.u_hat.dtype.type(1), K)


@inlined
def products(rows, k, parents, at):
    """<u_hat, parent> of row k and each capsule, of ``parents`` (K, D) from ``at`` on."""
    K = rows.K
    found = dots(rows.u_hat, start_of(rows, k), parents, at, splat(parents.dtype.type(0), K), rows.D)
    return multiply(found, scales(rows, k))


@inlined
def add_votes(sums, to, numbers, rows, k, room):
    """sums (K, D), from ``to`` on, += row k's votes, each times its number; ``room`` is for K numbers."""
    row, D = start_of(rows, k), rows.D
    store(room, 0, multiply(numbers, scales(rows, k)))
    for j in range(len(rows.K)):
        x = j * len(D)
        store(sums, to + x, fma(get(room, j), load(rows.u_hat, row + x, D), load(sums, to + x, D)))


@inlined
def add_parents(change, numbers, parents, at, K, D, room):
    """change (K, D) += the parents (K, D) from ``at`` on, each times its number."""
    store(room, 0, numbers)
    for j in range(len(K)):
        x = j * len(D)
        store(change, x, fma(get(room, j), load(parents, at + x, D), load(change, x, D)))


@inlined
def softmax(b, K):
    """Couplings of one row."""
    raised = exp(subtract(b, splat(reduce_max(b), K)))
    return divide(raised, splat(reduce_sum(raised), K))


@inlined
def softmax_backward(c, dc, K):
    """db = c (dc - sum of c dc)."""
    return multiply(c, subtract(dc, splat(reduce_sum(multiply(c, dc)), K)))


@inlined
def clear(x, begin, end):
    for at in range(begin, end):
        put(x, at, x.dtype.type(0))


@inlined
def sum_equally(s, squares, rows, first, last, room):
    """s += the votes / K, and squares (K,) += their squared lengths."""
    K, D = rows.K, rows.D
    one = s.dtype.type(1)
    equal, total = splat(one / s.dtype.type(len(K)), K), splat(s.dtype.type(0), K)
    for k in range(first, last):
        look_ahead(rows, k, last - 1)
        row, scale = start_of(rows, k), scales(rows, k)
        length = multiply(dots(rows.u_hat, row, rows.u_hat, row, splat(s.dtype.type(0), K), D), scale)
        total = fma(length, scale, total)
        add_votes(s, 0, equal, rows, k, room)
    store(squares, 0, total)


@inlined
def per_length(squares, count, node, kappa, K, found):
    """found (K,) = kappa / rho, 0 for parents whose votes are all zero."""
    for j in range(len(K)):
        mean = get(squares, j) / found.dtype.type(count)
        mine = get(kappa, node * len(K) + j)
        put(found, j, mine / math.sqrt(mean) if mean > LEAST else found.dtype.type(0))


@inlined
def agree_with(w, before, s, at, length, adds, K, D):
    """w (K, D) from ``at`` on: what the next logits are products with, of the sums s there.

    As long as ``length`` (K,), or if ``adds`` those ``before`` plus squash(s).
    """
    one, size = w.dtype.type(1), len(D)
    for j in range(len(K)):
        row = load(s, at - len(K) * size + j * size, D)
        n = w.dtype.type(math.sqrt(dot(row, row)))
        if adds:
            store(w, at + j * size, fma(n / (one + n * n), row, load(w, before + j * size, D)))
        else:
            factor = get(length, j) / (n if n > SHORTEST else one)
            store(w, at + j * size, multiply(splat(factor, D), row))


@inlined
def agree_with_backward(ds, s, at, dw, length, dlength, adds, K, D):
    """ds (K, D) from ``at`` on, of dw (K, D), and dlength (K,) += its own."""
    one, size = ds.dtype.type(1), len(D)
    for j in range(len(K)):
        x = at + j * size
        row, slope = load(s, x, D), load(dw, j * size, D)
        n = ds.dtype.type(math.sqrt(dot(row, row)))
        along = dot(row, slope)
        if adds:
            square = one + n * n
            bend = (one - n * n) / square / square / n if n > 0 else n
            store(ds, x, fma(n / square, slope, multiply(splat(bend * along, D), row)))
        else:
            some = n > SHORTEST
            n = n if some else one
            put(dlength, j, get(dlength, j) + along / n)
            factor = get(length, j) / n
            back = -factor * along / n / n if some else ds.dtype.type(0)
            store(ds, x, fma(factor, slope, multiply(splat(back, D), row)))


@inlined
def gradient_of_length(squares, count, dlength, length, node, dkappa, bend, K):
    """dkappa of a node with ``count`` rows, and bend (K,): times a vote, what rho's gradient adds to the vote's."""
    number = length.dtype
    for j in range(len(K)):
        mean, mine = get(squares, j) / number.type(count), get(dlength, j)
        some = mean > LEAST
        put(dkappa, node * len(K) + j, mine / math.sqrt(mean) if some else number.type(0))
        of_rho = -mine * get(length, j) / mean / number.type(count)
        put(bend, j, of_rho if some else number.type(0))


@inlined
def gradient_of_votes(change, bend, rows, k, du, dscale, room):
    """du += and dscale of row k, of ``change`` (K, D): the gradient of its scaled votes, without that through rho."""
    K, D = rows.K, rows.D
    scale, row = scales(rows, k), start_of(rows, k)
    store(room, 0, multiply(load(bend, 0, K), scale))
    for j in range(len(K)):
        x = j * len(D)
        store(change, x, fma(get(room, j), load(rows.u_hat, row + x, D), load(change, x, D)))
    if len(dscale) > 0:
        along = dots(change, 0, rows.u_hat, row, splat(change.dtype.type(0), K), D)
        store(dscale, get(rows.eid, k) * len(K), along)
    store(room, 0, scale)
    for j in range(len(K)):
        x = j * len(D)
        store(du, row + x, fma(get(room, j), load(change, x, D), load(du, row + x, D)))


@compiled
def route(begin, end, rows, kappa, iterations, adds, s, c):
    """s (N, K, D) of the last iteration, and unless c is empty its couplings c (rows, K)."""
    K, D, like = rows.K, rows.D, rows.u_hat
    size = len(K) * len(D)
    sums, w = zeros(iterations * size, like), zeros(iterations * size, like)
    squares, length, room = zeros(len(K), like), zeros(len(K), like), zeros(len(K), like)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        clear(sums, 0, iterations * size)
        if first < last:
            sum_equally(sums, squares, rows, first, last, room)
            per_length(squares, last - first, node, kappa, K, length)
        for r in range(1, iterations):
            at = r * size
            agree_with(w, at - size, sums, at, length, adds, K, D)
            for k in range(first, last):
                coupling = softmax(products(rows, k, w, at), K)
                if len(c) > 0 and r == iterations - 1:
                    store(c, get(rows.eid, k) * len(K), coupling)
                add_votes(sums, at, coupling, rows, k, room)
        if len(c) > 0 and iterations == 1:
            for k in range(first, last):
                store(c, get(rows.eid, k) * len(K), splat(like.dtype.type(1) / like.dtype.type(len(K)), K))
        at = (iterations - 1) * size
        for x in range(0, size, len(D)):
            store(s, node * size + x, load(sums, at + x, D))


@compiled
def route_backward(begin, end, rows, kappa, iterations, adds, most, grad, du, dkappa, dscale):
    """The gradient of the last s, which is ``grad`` (N, K, D), through all iterations.

    du (sources, K, D) += that of the votes, dkappa (N, K) is that of kappa, and unless it is empty dscale (rows, K)
    that of the scale. ``most`` is the largest number of rows of a node.
    """
    K, D, like = rows.K, rows.D, rows.u_hat
    size, caps = len(K) * len(D), len(K)
    sums, w = zeros(iterations * size, like), zeros(iterations * size, like)
    ds, dw, change = zeros(iterations * size, like), zeros(size, like), zeros(size, like)
    squares, length, dlength = zeros(caps, like), zeros(caps, like), zeros(caps, like)
    # Of each row and of the iterations from 1 on.
    c, db = zeros(iterations * most * caps, like), zeros(iterations * most * caps, like)
    room, bend = zeros(caps, like), zeros(caps, like)
    equal = splat(like.dtype.type(1) / like.dtype.type(caps), K)
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        if first == last:
            continue
        clear(sums, 0, iterations * size)
        sum_equally(sums, squares, rows, first, last, room)
        per_length(squares, last - first, node, kappa, K, length)
        for r in range(1, iterations):
            at = r * size
            agree_with(w, at - size, sums, at, length, adds, K, D)
            if r < iterations - 1:
                for k in range(first, last):
                    coupling = softmax(products(rows, k, w, at), K)
                    store(c, (r * most + k - first) * caps, coupling)
                    add_votes(sums, at, coupling, rows, k, room)
        for x in range(0, size, len(D)):
            store(ds, (iterations - 1) * size + x, load(grad, node * size + x, D))
        clear(dw, 0, size)
        clear(dlength, 0, caps)
        for r in range(iterations - 1, 0, -1):
            at = r * size
            if not adds:
                clear(dw, 0, size)
            for k in range(first, last):
                tile = (r * most + k - first) * caps
                if r == iterations - 1:
                    coupling = softmax(products(rows, k, w, at), K)
                    store(c, tile, coupling)
                else:
                    coupling = load(c, tile, K)
                slope = softmax_backward(coupling, products(rows, k, ds, at), K)
                store(db, tile, slope)
                add_votes(dw, 0, slope, rows, k, room)
            agree_with_backward(ds, sums, at - size, dw, length, dlength, adds, K, D)
        gradient_of_length(squares, last - first, dlength, length, node, dkappa, bend, K)
        for k in range(first, last):
            clear(change, 0, size)
            add_parents(change, equal, ds, 0, K, D, room)
            for r in range(1, iterations):
                tile = (r * most + k - first) * caps
                add_parents(change, load(c, tile, K), ds, r * size, K, D, room)
                add_parents(change, load(db, tile, K), w, r * size, K, D, room)
            gradient_of_votes(change, bend, rows, k, du, dscale, room)
