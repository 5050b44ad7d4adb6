"""Numba kernels for routing among a node's capsules: all iterations of a node while its neighbours' votes are in cache.

A row is a capsule of an edge's source, and has a vote of D numbers for each of the node's K capsules. `by_node` has the
formulas and describes ``rows``.

With MUTUAL, an edge e = (u, v) and its reverse e' share their logits b_e = <u_hat_e, w_v> + <u_hat_e', w_u>. An
iteration then needs the products of the iteration before along all edges, so a call runs one iteration of all nodes. It
computes a node's s together with its rows' products for the next iteration, while the votes are in cache.
"""

import math

from ...functional import MIN_MEAN_SQUARE, MIN_NORM
from .arguments import Kept, Slopes
from .kernel_cache import compiled
from .parts import inlined
from .simd import fma, get, load, prefetch, reduce_max, reduce_sum, splat, store, zeros
from .simd_math import exp
from .simd_rows import add_rows, dots

ROWS_AHEAD, LINE = 4, 16  # a row is prefetched ROWS_AHEAD rows before it is used, by LINE numbers at a time


@inlined
def start_of_row(rows, k):
    """Return the index in u_hat at which row k starts."""
    return get(rows.source, k) * len(rows.VOTES) * len(rows.D)


@inlined
def votes_stride(rows):
    """Return the distance of a row's votes in u_hat, or 0 if all capsules get the same one."""
    return len(rows.D) * min(1, len(rows.VOTES) - 1)


@inlined
def look_ahead(rows, k, last):
    at = start_of_row(rows, min(k + ROWS_AHEAD, last))
    for line in range(0, len(rows.VOTES) * len(rows.D), LINE):
        prefetch(rows.u_hat, at + line)


@inlined
def look_ahead_twice(rows, k, last, x, start):
    """Prefetch the votes of a later row, and the row of its reverse in x. x (rows, K) starts at ``start``."""
    look_ahead(rows, k, last)
    prefetch(x, start + get(rows.reverse, min(k + ROWS_AHEAD, last)) * len(rows.K))


@inlined
def scale_of_row(rows, k):
    """Return the factors (K,) of row k's votes."""
    K = rows.K
    if len(rows.scale) > 0:
        return load(rows.scale, get(rows.eid, k) * len(K), K)
    return splat(rows.u_hat.dtype.type(1), K)


@inlined
def products_of_row(rows, k, parents, at):
    """(K,): the products of row k's votes with ``parents`` (K, D), which start at ``at``."""
    row, D = start_of_row(rows, k), rows.D
    return dots(rows.u_hat, row, votes_stride(rows), parents, at, len(D), rows.K, D) * scale_of_row(rows, k)


@inlined
def add_votes_of_row(sums, at, factors, rows, k):
    """Add row k's votes, each times its factor, to the sums (K, D), which start at ``at``."""
    factors = factors * scale_of_row(rows, k)
    add_rows(sums, at, len(rows.D), factors, rows.u_hat, start_of_row(rows, k), votes_stride(rows), rows.D)


@inlined
def with_reverse(x, start, k, rows):
    """Return row k of x, plus the row of the reverse edge if there is one. x (rows, K) starts at ``start``."""
    K = rows.K
    row = load(x, start + k * len(K), K)
    if len(rows.reverse) > 0:
        row = load(x, start + get(rows.reverse, k) * len(K), K) + row
    return row


@inlined
def softmax_of_row(b):
    """Return the couplings of one row: the softmax of b."""
    raised = exp(b - reduce_max(b))
    return raised / reduce_sum(raised)


@inlined
def first_couplings(rows, k):
    """Return row k's couplings in the first iteration: equal ones, or the softmax of its prior."""
    K, number = rows.K, rows.u_hat.dtype
    c = splat(number.type(1) / number.type(len(K)), K)
    if len(rows.prior) > 0:
        c = softmax_of_row(load(rows.prior, get(rows.eid, k) * len(K), K))
    return c


@inlined
def couplings_of_row(rows, k, w, at):
    """Return row k's couplings in a later iteration, for w (K, D), which starts at ``at``."""
    b = products_of_row(rows, k, w, at)
    if len(rows.prior) > 0:
        b = load(rows.prior, get(rows.eid, k) * len(rows.K), rows.K) + b
    return softmax_of_row(b)


@inlined
def softmax_backward_of_row(c, dc):
    """db = c (dc - sum of c dc)."""
    return c * (dc - reduce_sum(c * dc))


@inlined
def clear_range(x, begin, end):
    for at in range(begin, end):
        store(x, at, x.dtype.type(0))


@inlined
def copy_capsules(to, i, x, j, rows):
    """Copy (K, D) numbers from x, where they start at j, to ``to``, where they start at i."""
    for at in range(0, len(rows.K) * len(rows.D), len(rows.D)):
        store(to, i + at, load(x, j + at, rows.D))


@inlined
def first_iteration(s, at, squares, ratio, i, kappa, j, rows, first, last):
    """Run a node's first iteration: s += couplings times votes, and fill ``squares`` and ``ratio``.

    ``squares`` are sums of the votes' squared lengths. ``ratio`` is kappa / rho, or 0 if all votes are zero.
    s (K, D) starts at ``at``, ``squares`` and ``ratio`` (K,) start at i, and ``kappa`` (K,) starts at j.
    """
    K, number, stride = rows.K, s.dtype, votes_stride(rows)
    total = splat(number.type(0), K)
    for k in range(first, last):
        look_ahead(rows, k, last - 1)
        row, scale = start_of_row(rows, k), scale_of_row(rows, k)
        square = dots(rows.u_hat, row, stride, rows.u_hat, row, stride, K, rows.D) * scale
        total = fma(square, scale, total)
        add_votes_of_row(s, at, first_couplings(rows, k), rows, k)
    store(squares, i, total)
    for capsule in range(len(K)):
        mean = get(squares, i + capsule) / number.type(last - first)
        per_root = get(kappa, j + capsule) * (math.sqrt(mean) / mean)
        store(ratio, i + capsule, per_root if mean > MIN_MEAN_SQUARE else number.type(0))


@inlined
def next_w(w, s, at, ratio, i, adds, rows):
    """Compute w (K, D), which starts at ``at``, from s and w of the iteration before, which end at ``at``.

    With ``adds``, w is the previous w plus squash(s). Else it is s / |s| times ``ratio`` (K,), which starts at i.
    """
    D, one, size = rows.D, w.dtype.type(1), len(rows.K) * len(rows.D)
    for capsule in range(len(rows.K)):
        x = at + capsule * len(D)
        row = load(s, x - size, D)
        n = w.dtype.type(math.sqrt(reduce_sum(row * row)))
        if adds:
            store(w, x, fma(n / (one + n * n), row, load(w, x - size, D)))
        else:
            per_norm = n / (n * n) if n > MIN_NORM else one  # NaN if n * n overflows
            store(w, x, get(ratio, i + capsule) * per_norm * row)


@inlined
def next_w_backward(ds, s, at, dw, j, ratio, dratio, i, adds, rows):
    """Compute ds (K, D) from the next iteration's dw (K, D), and add to dratio (K,). They start at ``at``, j and i."""
    D, one = rows.D, ds.dtype.type(1)
    for capsule in range(len(rows.K)):
        x = at + capsule * len(D)
        row, slope = load(s, x, D), load(dw, j + capsule * len(D), D)
        n = ds.dtype.type(math.sqrt(reduce_sum(row * row)))
        along = reduce_sum(row * slope)
        if adds:
            square = one + n * n
            factor = n / square
            back = ((one - n * n) / square / square / n if n > 0 else n) * along
        else:
            long = n > MIN_NORM
            n = n if long else one
            store(dratio, i + capsule, get(dratio, i + capsule) + along / n)
            factor = get(ratio, i + capsule) / n
            back = -factor * along / n / n if long else ds.dtype.type(0)
        store(ds, x, fma(factor, slope, back * row))


@inlined
def ratio_backward(squares, ratio, dratio, i, dkappa, j, through_rho, count):
    """Compute a node's dkappa (K,) at j, and ``through_rho`` (K,). Times a vote, it is that vote's gradient by rho."""
    number = ratio.dtype
    for capsule in range(len(through_rho)):
        mean, slope = get(squares, i + capsule) / number.type(count), get(dratio, i + capsule)
        nonzero = mean > MIN_MEAN_SQUARE
        store(dkappa, j + capsule, slope / math.sqrt(mean) if nonzero else number.type(0))
        factor = -slope * get(ratio, i + capsule) / mean / number.type(count)
        store(through_rho, capsule, factor if nonzero else number.type(0))


@inlined
def row_backward(rows, k, iterations, ds, w, at, c, db, begin, stride, through_rho, change, du, drows):
    """Add row k's gradient to du, and fill its rows of ``drows``. ds and w (R, K, D) start at ``at``.

    ``drows`` are dscale and dprior (rows, K), each empty if it isn't wanted. c and db (rows, K) of iteration r start
    at begin + r * stride. ``change`` (K, D) is a buffer.
    """
    K, D, row, scale = rows.K, rows.D, start_of_row(rows, k), scale_of_row(rows, k)
    size, apart, couplings, (dscale, dprior) = len(change), votes_stride(rows), first_couplings(rows, k), drows
    clear_range(change, 0, size)
    add_rows(change, 0, len(D), couplings, ds, at, len(D), D)
    if len(dprior) > 0:
        slope = softmax_backward_of_row(couplings, products_of_row(rows, k, ds, at))
        for r in range(1, iterations):
            slope = slope + load(db, begin + r * stride + k * len(K), K)
        store(dprior, get(rows.eid, k) * len(K), slope)
    for r in range(1, iterations):
        start = begin + r * stride
        add_rows(change, 0, len(D), load(c, start + k * len(K), K), ds, at + r * size, len(D), D)
        add_rows(change, 0, len(D), with_reverse(db, start, k, rows), w, at + r * size, len(D), D)
    add_votes_of_row(change, 0, load(through_rho, 0, K), rows, k)
    if len(dscale) > 0:
        store(dscale, get(rows.eid, k) * len(K), dots(change, 0, len(D), rows.u_hat, row, apart, K, D))
    add_rows(du, row, apart, scale, change, 0, len(D), D)


@inlined
def iterate_node(node, rows, MUTUAL, kappa, r_begin, r_end, iterations, adds, kept, stride, coupling):
    """Run iterations r_begin:r_end of a node. `nodes_forward` describes the arguments."""
    size, caps, (s, w, squares, ratio, products_of, c) = len(rows.K) * len(rows.D), len(rows.K), kept
    first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
    home, start = (node, 0) if MUTUAL is not None else (0, -first * caps)
    for r in range(r_begin, r_end):
        at, current, following = (home * iterations + r) * size, r % 2 * stride, (1 - r % 2) * stride
        clear_range(s, at, at + size)
        if r == 0:
            first_iteration(s, at, squares, ratio, home * caps, kappa, node * caps, rows, first, last)
            if MUTUAL is not None:
                clear_range(w, at, at + size)
        else:
            if MUTUAL is None:
                next_w(w, s, at, ratio, 0, adds, rows)
            for k in range(first, last):
                if MUTUAL is not None:
                    look_ahead_twice(rows, k, last - 1, products_of, current)
                    couplings = softmax_of_row(with_reverse(products_of, current, k, rows))
                else:
                    couplings = couplings_of_row(rows, k, w, at)
                if len(c) > 0:
                    store(c, start + r * stride + k * caps, couplings)
                if len(coupling) > 0 and r == iterations - 1:
                    store(coupling, get(rows.eid, k) * caps, couplings)
                add_votes_of_row(s, at, couplings, rows, k)
        if MUTUAL is not None and r < iterations - 1:
            next_w(w, s, at + size, ratio, node * caps, adds, rows)
            for k in range(first, last):
                store(products_of, following + k * caps, products_of_row(rows, k, w, at + size))


@compiled
def nodes_forward(begin, end, rows, MUTUAL, kappa, r_begin, r_end, iterations, adds, kept, stride, sums, coupling):
    """Run iterations r_begin:r_end of the nodes. The last one fills ``sums`` (N, K, D) and, if wanted, ``coupling``.

    With MUTUAL, a call runs one iteration, and ``kept`` holds the values of all nodes. Else it runs all iterations, and
    keeps the values of one node. ``coupling`` (rows, K) is in the graph's order, and empty if it isn't wanted. It isn't
    written if there is one iteration. ``stride`` is the size of c for one iteration.
    """
    size, caps, like = len(rows.K) * len(rows.D), len(rows.K), rows.u_hat
    if MUTUAL is None:
        s, w, nothing = zeros(iterations * size, like), zeros(iterations * size, like), zeros(0, like)
        kept = Kept(s, w, zeros(caps, like), zeros(caps, like), nothing, nothing)
    for node in range(begin, end):
        iterate_node(node, rows, MUTUAL, kappa, r_begin, r_end, iterations, adds, kept, stride, coupling)
        if r_end == iterations:
            home = node if MUTUAL is not None else 0
            copy_capsules(sums, node * size, kept.s, (home * iterations + iterations - 1) * size, rows)


@compiled
def nodes_backward(
    begin, end, rows, MUTUAL, kappa, r_begin, r_end, iterations, adds, kept, stride, grad, slopes, du, dkappa, drows
):
    """Run the backward pass of iterations r_begin:r_end, from ``grad`` (N, K, D), the gradient of the last s.

    The first iteration adds the votes' gradient to du (sources, K, D), and fills dkappa (N, K) and ``drows``. With
    MUTUAL, ``kept`` and ``slopes`` hold the values of all nodes; dw and dratio start at zero. Else the values of each
    node are recomputed.
    """
    K, like, size, caps, top = rows.K, rows.u_hat, len(rows.K) * len(rows.D), len(rows.K), iterations - 1
    change, through_rho, nothing = zeros(size, like), zeros(caps, like), zeros(0, like)
    if MUTUAL is None:
        of_parents, of_rows = iterations * size, iterations * stride
        s, w, c = zeros(of_parents, like), zeros(of_parents, like), zeros(of_rows, like)
        kept = Kept(s, w, zeros(caps, like), zeros(caps, like), nothing, c)
        slopes = Slopes(zeros(of_parents, like), zeros(of_rows, like), zeros(size, like), zeros(caps, like))
    (s, w, squares, ratio, _, c), (ds, db, dw, dratio) = kept, slopes
    for node in range(begin, end):
        first, last = get(rows.indptr, node), get(rows.indptr, node + 1)
        home, start = (node, 0) if MUTUAL is not None else (0, -first * caps)
        i, to = home * caps, home * size
        if MUTUAL is None:
            iterate_node(node, rows, MUTUAL, kappa, 0, max(1, top), iterations, adds, kept, stride, nothing)
            if top > 0:
                next_w(w, s, top * size, ratio, 0, adds, rows)
            clear_range(dw, 0, size)
            clear_range(dratio, 0, caps)
        for r in range(r_end - 1, r_begin - 1, -1):
            at, x = (home * iterations + r) * size, start + r * stride
            if r == top:
                copy_capsules(ds, at, grad, node * size, rows)
            elif MUTUAL is not None:
                if not adds:
                    clear_range(dw, to, to + size)
                for k in range(first, last):
                    look_ahead_twice(rows, k, last - 1, db, x + stride)
                    add_votes_of_row(dw, to, with_reverse(db, x + stride, k, rows), rows, k)
                next_w_backward(ds, s, at, dw, to, ratio, dratio, i, adds, rows)
            if r > 0:
                if MUTUAL is None and not adds:
                    clear_range(dw, 0, size)
                for k in range(first, last):
                    if r == top and MUTUAL is not None:
                        look_ahead(rows, k, last - 1)
                    if r == top and MUTUAL is None:
                        store(c, x + k * caps, couplings_of_row(rows, k, w, at))
                    slope = softmax_backward_of_row(load(c, x + k * caps, K), products_of_row(rows, k, ds, at))
                    store(db, x + k * caps, slope)
                    if MUTUAL is None:
                        add_votes_of_row(dw, 0, slope, rows, k)
                if MUTUAL is None:
                    next_w_backward(ds, s, at - size, dw, 0, ratio, dratio, 0, adds, rows)
        if r_begin == 0:
            at = home * iterations * size
            ratio_backward(squares, ratio, dratio, i, dkappa, node * caps, through_rho, last - first)
            for k in range(first, last):
                row_backward(rows, k, iterations, ds, w, at, c, db, start, stride, through_rho, change, du, drows)
