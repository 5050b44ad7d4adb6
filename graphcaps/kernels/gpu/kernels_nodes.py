"""Triton kernels for routing among the capsules of each node. `nodes` describes the passes, and S is its `Sizes`.

Blocks are (rows, K, D) or (rows, K), padded with zeros to powers of two. A row is an edge; blocks of a node have one
row. An index of -1 marks a row that doesn't exist.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from .kernels_rule import LEAST_SQUARE, next_query, next_query_backward


class Rows(NamedTuple):
    """Votes, and edges sorted by destination. ``reverse`` and src are None without ``mutual``."""

    z: tl.tensor  # (N, K, D) or (E, K, D), the votes without their factors
    scale: tl.tensor  # (E, K) in the graph's order, or None
    source: tl.tensor  # (E,): the row of edge e in z
    eid: tl.tensor  # (E,): the number of the edge in the graph
    reverse: tl.tensor  # (E,): the place of the reverse edge
    src: tl.tensor  # (E,): the node at which the edge starts


@triton.jit
def numbers_at(index, S: tl.constexpr):
    """Return the offsets (rows, K) of rows, and a mask that leaves out padding."""
    k, index = tl.arange(0, S.PADDED_K)[None, :], index[:, None].to(tl.int64)
    return index * S.K + k, (index >= 0) & (k < S.K)


@triton.jit
def capsules_at(index, S: tl.constexpr):
    """Return the offsets (rows, K, D) of rows, and a mask that leaves out padding."""
    at, inside = numbers_at(index, S)
    d = tl.arange(0, S.PADDED_D)[None, None, :]
    return at[:, :, None] * S.D + d, inside[:, :, None] & (d < S.D)


@triton.jit
def load(x, where):
    """Load a block. It is at least as precise as float32."""
    block = tl.load(x + where[0], where[1], 0.0)
    return block if x.dtype.element_ty == tl.float64 else block.to(tl.float32)


@triton.jit
def store(x, where, value):
    tl.store(x + where[0], value, where[1])


@triton.jit
def load_index(x, edge):
    return tl.load(x + edge, edge >= 0, -1).to(tl.int64)


@triton.jit
def zeros(S: tl.constexpr):
    """Return zeros (1, K, D)."""
    K: tl.constexpr = S.PADDED_K  # Triton 3.6 refuses fields of S within tuples
    D: tl.constexpr = S.PADDED_D
    return tl.zeros((1, K, D), tl.float32)


@triton.jit
def scaled(votes, rows, eid, S: tl.constexpr):
    return votes if rows.scale is None else votes * load(rows.scale, numbers_at(eid, S))[:, :, None]


@triton.jit
def rows_at(rows, at, end, S: tl.constexpr):
    """Return the rows from ``at`` on that are before ``end``, and their indices in z and in scale."""
    row = at + tl.arange(0, S.ROWS)
    row = tl.where(row < end, row, -1)
    return row, load_index(rows.source, row), load_index(rows.eid, row)


@triton.jit
def products(u_hat, x, x_of_all, skip, rows, edge, S: tl.constexpr):
    """Return the products (rows, K) of votes and their destination's x (1, K, D).

    With ``mutual``, add those of the reverse edges' votes and x of the sources, the rows ``skip + src`` of x_of_all.
    """
    result = tl.sum(u_hat * x, 2)
    if rows.src is not None:
        back = load_index(rows.reverse, edge)
        votes = load(rows.z, capsules_at(load_index(rows.source, back), S))
        votes = scaled(votes, rows, load_index(rows.eid, back), S)
        src = tl.load(rows.src + edge, edge >= 0, 0)
        result += tl.sum(votes * load(x_of_all, capsules_at(skip + src, S)), 2)
    return result


@triton.jit
def softmax(b, SIZE: tl.constexpr):
    """Return the softmax over the first SIZE numbers of the last axis."""
    axis: tl.constexpr = len(b.shape) - 1
    b = tl.where(tl.arange(0, b.shape[axis]) < SIZE, b, float("-inf"))
    raised = tl.exp(b - tl.expand_dims(tl.max(b, axis), axis))
    return raised / tl.expand_dims(tl.sum(raised, axis), axis)


@triton.jit
def sum_rows(rows, begin, end, S: tl.constexpr, w, w_of_all=None, ds=None, ds_of_all=None, coupling=None):
    """Return s (1, K, D) of the rows begin:end, the sum of the votes times their couplings, and the sum of |u_hat|^2.

    Without w, as in the first iteration, all couplings are equal. The sum of |u_hat|^2 (1, K) is zero in the others.
    With ds, the factors are the gradients of the logits instead of the couplings, so s is the gradient of w.
    ``coupling`` is None, or receives the couplings in the graph's order.
    """
    total, squares = zeros(S), tl.sum(zeros(S), 2)
    for at in range(begin, end, S.ROWS):
        edge, source, eid = rows_at(rows, at, end, S)
        u_hat = scaled(load(rows.z, capsules_at(source, S)), rows, eid, S)
        if w is None:
            x = tl.zeros_like(tl.sum(u_hat, 2)) + 1 / S.K
            squares += 0.0 if S.ADDS else tl.sum(tl.sum(u_hat * u_hat, 2), 0)[None]
        else:
            x = softmax(products(u_hat, w, w_of_all, 0, rows, edge, S), S.K)
        if coupling is not None:
            store(coupling, numbers_at(eid, S), x)
        if ds is not None:
            dc = products(u_hat, ds, ds_of_all, 0, rows, edge, S)
            x = x * (dc - tl.sum(x * dc, 1)[:, None])
        total += tl.sum(x[:, :, None] * u_hat, 0)[None]
    return total, squares


@triton.jit
def votes_gradient(rows, begin, end, ws, w_of_all, dss, ds_of_all, hubs, bend, dz, dscale, R, S: tl.constexpr):
    """Write the gradients of the rows begin:end, from ds of all R iterations, and w of all but the first.

    ``bend`` (1, K) times u_hat is the votes' gradient through kappa / rho.
    """
    for at in range(begin, end, S.ROWS):
        edge, source, eid = rows_at(rows, at, end, S)
        votes = load(rows.z, capsules_at(source, S))
        u_hat = scaled(votes, rows, eid, S)
        change = dss[0] / S.K + (tl.zeros_like(votes) if S.ADDS else bend[:, :, None] * u_hat)
        for r in tl.static_range(1, R):
            c = softmax(products(u_hat, ws[r - 1], w_of_all, (r - 1) * hubs, rows, edge, S), S.K)
            dc = products(u_hat, dss[r], ds_of_all, r * hubs, rows, edge, S)
            db = c * (dc - tl.sum(c * dc, 1)[:, None])
            change += c[:, :, None] * dss[r] + db[:, :, None] * ws[r - 1]
        if dscale is not None:
            store(dscale, numbers_at(eid, S), tl.sum(change * votes, 2))
        if dz is not None:
            change = scaled(change, rows, eid, S)
            if S.ATOMIC:
                at_source = capsules_at(source, S)
                tl.atomic_add(dz + at_source[0], change, at_source[1], sem="relaxed")
            else:
                store(dz, capsules_at(eid, S), change)


@triton.jit
def rows_of(node, ptr, S: tl.constexpr):
    return tl.load(ptr + node).to(tl.int64), tl.load(ptr + node + 1).to(tl.int64)


@triton.jit
def per_root(total, count):
    """Return 1 / the root of a mean: 0 if that counts as zero, and NaN if it is infinite because squares overflowed."""
    mean = total / count
    return tl.where(mean > LEAST_SQUARE, tl.rsqrt(mean) + 0 * mean, 0.0)


@triton.jit
def route_node(
    z, scale, source, eid, ptr, kappa, R: tl.constexpr, S: tl.constexpr,
    sums=None, coupling=None, grad=None, dz=None, dscale=None, slopes=None,
):  # fmt: skip
    """Run all iterations of a node. With ``grad``, run all but the last one, then the backward pass. Skip hubs."""
    node, rows = tl.program_id(0), Rows(z, scale, source, eid, None, None)
    begin, end = rows_of(node, ptr, S)
    if end - begin > S.SEGMENT:
        return
    here, ws, ss, strength = node + tl.arange(0, 1), (), (), 0.0 if S.ADDS else tl.load(kappa)
    s, squares = sum_rows(rows, begin, end, S, None)
    w, per_rho = tl.zeros_like(s), per_root(squares, end - begin)
    for r in tl.static_range(1, R):
        w = next_query(s, w, strength * per_rho, S.ADDS)
        ws, ss = ws + (w,), ss + (s,)
        if r < R - 1 or grad is None:
            s, _ = sum_rows(rows, begin, end, S, w, coupling=coupling if r == R - 1 else None)
    if grad is None:
        store(sums, capsules_at(here, S), s)
    else:
        ds, dw, slope = load(grad, capsules_at(here, S)), tl.zeros_like(s), tl.zeros_like(squares)
        dss = (ds,)
        for r in tl.static_range(R - 1, 0, -1):
            change, _ = sum_rows(rows, begin, end, S, ws[r - 1], ds=ds)
            dw = dw + change if S.ADDS else change
            ds, along = next_query_backward(ss[r - 1], dw, strength * per_rho, S.ADDS)
            slope += along * per_rho
            dss = (ds,) + dss
        store(slopes, numbers_at(here, S), slope)
        bend = -slope * strength * per_rho * per_rho / (end - begin)
        votes_gradient(rows, begin, end, ws, None, dss, None, 0, bend, dz, dscale, R, S)


@triton.jit
def route_segment(
    z, scale, source, eid, reverse, src, ptr, kappa, hubs, first, hub_of, sums, squares, per_rho, num_hubs,
    R: tl.constexpr, S: tl.constexpr, w=None, ds=None, coupling=None, BACK: tl.constexpr = False, dz=None, dscale=None,
    slopes=None,
):  # fmt: skip
    """Sum the votes of a segment, which is a part of a hub's rows; or with BACK run `votes_gradient`."""
    segment, rows = tl.program_id(0), Rows(z, scale, source, eid, reverse, src)
    hub = tl.load(hub_of + segment)
    node, here, ws, dss = tl.load(hubs + hub), hub + tl.arange(0, 1), (), ()
    start, end = rows_of(node, ptr, S)
    begin = start + (segment - tl.load(first + hub)).to(tl.int64) * S.SEGMENT
    until = tl.minimum(end, begin + S.SEGMENT)
    if BACK:
        for r in tl.static_range(0, R):
            ws = ws + (load(w, capsules_at(here + r * num_hubs, S)),) if r < R - 1 else ws
            dss = dss + (load(ds, capsules_at(here + r * num_hubs, S)),)
        slope, share = load(slopes, numbers_at(node + tl.arange(0, 1), S)), load(per_rho, numbers_at(here, S))
        bend = 0.0 if S.ADDS else -slope * tl.load(kappa) * share * share / (end - start)
        votes_gradient(rows, begin, until, ws, w, dss, ds, num_hubs, bend, dz, dscale, R, S)
    else:
        w_here = None if w is None else load(w, capsules_at(here, S))
        ds_here = None if ds is None else load(ds, capsules_at(here, S))
        total, of_segment = sum_rows(rows, begin, until, S, w_here, w, ds_here, ds, coupling)
        store(sums, capsules_at(segment + tl.arange(0, 1), S), total)
        if w is None and not S.ADDS:
            store(squares, numbers_at(segment + tl.arange(0, 1), S), of_segment)


@triton.jit
def finish_hub(
    ptr, kappa, hubs, first, sums, squares, per_rho, S: tl.constexpr,
    s=None, w=None, w_after=None, result=None, dw=None, ds=None, slopes=None,
):  # fmt: skip
    """Add up a hub's segments in a fixed order. Then compute w from s, or with ``dw`` the gradient of the s before w.

    The first iteration also stores the hub's 1 / rho. The last one stores s in ``result`` instead.
    """
    hub = tl.program_id(0)
    here, node, last = hub + tl.arange(0, 1), tl.load(hubs + hub) + tl.arange(0, 1), tl.load(first + hub + 1)
    total, of_hub = zeros(S), tl.sum(zeros(S), 2)
    for at in range(tl.load(first + hub), last, 4 * S.ROWS):
        segment = at + tl.arange(0, 4 * S.ROWS)
        segment = tl.where(segment < last, segment, -1)
        total += tl.sum(load(sums, capsules_at(segment, S)), 0)[None]
        if w is None and dw is None and not S.ADDS:
            of_hub += tl.sum(load(squares, numbers_at(segment, S)), 0)[None]
    if w is None and dw is None:
        begin, end = rows_of(tl.load(hubs + hub), ptr, S)
        share = per_root(of_hub, end - begin)
        store(per_rho, numbers_at(here, S), share)
    else:
        share = load(per_rho, numbers_at(here, S))
    ratio = 0.0 if S.ADDS else tl.load(kappa) * share
    if result is not None:
        store(result, capsules_at(node, S), total)
    elif dw is None:
        store(s, capsules_at(here, S), total)
        before = tl.zeros_like(total) if w is None else load(w, capsules_at(here, S))
        store(w_after, capsules_at(here, S), next_query(total, before, ratio, S.ADDS))
    else:
        if S.ADDS:
            total += load(dw, capsules_at(here, S))
            store(dw, capsules_at(here, S), total)
        change, along = next_query_backward(load(s, capsules_at(here, S)), total, ratio, S.ADDS)
        store(ds, capsules_at(here, S), change)
        store(slopes, numbers_at(node, S), load(slopes, numbers_at(node, S)) + along * share)


@triton.jit
def finish_node(
    source, ptr, power, bias, residual, own_power, S: tl.constexpr,
    s=None, v=None, grad=None, ds=None, dy=None, dresidual=None, dpower=None, down_power=None,
):  # fmt: skip
    """Store v = squash(y), y = s K / in-degree / f + residual / f' + bias, with the f and f' of ``Finish``.

    With ``grad``, the gradient of v, store those of s, y, residual and ``own_power``, and add that of ``power`` up.
    """
    node, edges, total = tl.program_id(0), tl.arange(0, S.SEGMENT), 0.0 * tl.arange(0, S.SEGMENT)
    begin, end = rows_of(node, ptr, S)
    here, count, per_f = capsules_at(node + tl.arange(0, 1), S), tl.maximum(end - begin, 1), 1.0
    if power is not None:
        for at in range(begin, end, S.SEGMENT):
            row = load_index(source, tl.where(at + edges < end, at + edges, -1))
            total += tl.load(power + row, row >= 0, 0.0)
        per_f = per_root(tl.sum(total, 0), count)
    x, factor = load(s, here), per_f * S.K / count
    own = 0.0 if residual is None else load(residual, here)
    per_own = 1.0 if own_power is None else per_root(tl.load(own_power + node), 1)
    y = x * factor + own * per_own + (0.0 if bias is None else load(bias, capsules_at(tl.arange(0, 1), S)))
    if grad is None:
        store(v, here, next_query(y, 0.0, 0.0, True))
    else:
        slope, _ = next_query_backward(y, load(grad, here), 0.0, True)
        store(ds, here, slope * factor)
        store(dy, here, slope)
        if dresidual is not None:
            store(dresidual, here, slope * per_own)
        if down_power is not None:
            tl.store(down_power + node, -0.5 * tl.sum(slope * own) * per_own * per_own * per_own)
        if dpower is not None:
            change = -0.5 * tl.sum(slope * x) * factor * per_f * per_f / count
            for at in range(begin, end, S.SEGMENT):
                row = load_index(source, tl.where(at + edges < end, at + edges, -1))
                tl.atomic_add(dpower + row, change + 0 * total, row >= 0, sem="relaxed")
