"""The passes of dynamic routing over the votes on a GPU, in Triton; `dynamic` calls them in order.

A program has a range of edges (or children) and a block of B images, and nothing is added atomically: what programs
share is written as partial sums and added up by `settle` in a fixed order, so that two runs give the same bits. For the
same reason block sizes are not tuned by timing.

Going forward and going back are the same pass with another middle, hence BACK:

    forward   c = softmax(b)                          s = sum of c u_hat     v = squash(s)             <u_hat, v>
    back      db = above + c (dc - sum of c dc)       dv = sum of db u_hat   ds = squash'(s) dv   dc = <u_hat, ds>

Votes are (E, batch, dim) in the graph's edge order. Scalars of an edge (b, c, db) are (E, batch) in the order of k,
which counts the edges sorted by parent; eid[k] is where the votes of edge k stand. Parents are (J, batch, dim).
Capitals are sizes of blocks: powers of two, the rest masked. Votes of less than 32 bits are widened as they are read.
"""

# No `from __future__ import annotations` in the files of kernels: it makes annotations strings, from which the
# interpreter of Triton 3.0 can't tell which arguments are constants.
import triton
import triton.language as tl


@triton.jit
def over_parents(
    votes, weights, parts, s, out, before, after, eid, starts, owners, batch, dim, blocks,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Sum weights * votes over one segment of a parent's in-edges, settle it, and multiply the votes with the result.

    Without ``weights`` nothing is summed and ``out`` is read instead. Without ``s`` the segment is only part of its
    parent and its sum goes to ``parts``. <u_hat, out>, plus ``before`` if there is one, goes to ``after`` if there is
    one; that second reading of the votes is from the cache where the segment is short.
    """
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    image = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)  # (B,)
    d = tl.arange(0, D)
    inside = (image < batch)[:, None] & (d < dim)[None, :]  # (B, D)
    place = (tl.load(owners + segment).to(tl.int64) * batch + image)[:, None] * dim + d[None, :]  # (B, D)
    first = tl.load(starts + segment).to(tl.int64)
    last = tl.load(starts + segment + 1).to(tl.int64)
    if weights is not None:
        sums = tl.zeros((K, B, D), s.dtype.element_ty if s is not None else parts.dtype.element_ty)
        for start in range(first, last, K):
            k = start + tl.arange(0, K)
            held = (k < last)[:, None] & (image < batch)[None, :]  # (K, B)
            share = tl.load(weights + k[:, None] * batch + image[None, :], mask=held, other=0.0)
            sums += share[:, :, None] * _rows(votes, eid, k, last, image, d, batch, dim).to(sums.dtype)
        total = tl.sum(sums, 0)  # (B, D)
        if s is not None:
            result = _settled(total, s, place, inside, BACK)
            tl.store(out + place, result, mask=inside)
        else:
            tl.store(parts + (segment * batch + image)[:, None] * dim + d[None, :], total, mask=inside)
    else:
        result = tl.load(out + place, mask=inside, other=0.0)
    if after is not None:
        for start in range(first, last, K):
            k = start + tl.arange(0, K)
            held = (k < last)[:, None] & (image < batch)[None, :]
            at = k[:, None] * batch + image[None, :]
            rows = _rows(votes, eid, k, last, image, d, batch, dim).to(result.dtype)
            dots = tl.sum(rows * result[None, :, :], 2)  # (K, B)
            if before is not None:
                dots += tl.load(before + at, mask=held, other=0.0)
            tl.store(after + at, dots, mask=held)


@triton.jit
def _rows(votes, eid, k, last, image, d, batch, dim):
    """The votes (K, B, D) of edges k, those below ``last``."""
    edge = tl.load(eid + k, mask=k < last, other=0).to(tl.int64)
    held = (k < last)[:, None, None] & (image < batch)[None, :, None] & (d < dim)[None, None, :]
    row = edge[:, None, None] * batch + image[None, :, None]
    return tl.load(votes + row * dim + d[None, None, :], mask=held, other=0.0)


@triton.jit
def _settled(total, s, place, inside, BACK: tl.constexpr):
    """Forward: keep s = total and squash it. Back: the gradient total = dv through squash, at the s that was kept."""
    if BACK:
        kept = tl.load(s + place, mask=inside, other=0.0)
    else:
        kept = total
        tl.store(s + place, total, mask=inside)
    squared = tl.sum(kept * kept, 1)[:, None]
    n = tl.sqrt(squared)
    result = total * (n / (1 + squared))
    if BACK:
        bend = (1 - squared) / (1 + squared) / (1 + squared) / tl.where(n > 0, n, 1)  # f' / n; s = 0 takes it to 0
        result += kept * (bend * tl.sum(kept * total, 1)[:, None])
    return result


@triton.jit
def settle(
    parts, starts, each, s, out, batch, dim, blocks,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Add up the partial sums of one parent, ``parts[starts[j]:starts[j + 1]]`` (.., batch, dim), and settle them.

    Without ``starts`` every parent has ``each``.
    """
    parent = (tl.program_id(0) // blocks).to(tl.int64)
    image = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    inside = (image < batch)[:, None] & (d < dim)[None, :]
    if starts is not None:
        first = tl.load(starts + parent).to(tl.int64)
        last = tl.load(starts + parent + 1).to(tl.int64)
    else:
        first = parent * each
        last = first + each
    sums = tl.zeros((K, B, D), s.dtype.element_ty)
    for start in range(first, last, K):
        part = start + tl.arange(0, K)
        row = part[:, None, None] * batch + image[None, :, None]
        held = (part < last)[:, None, None] & inside[None, :, :]
        sums += tl.load(parts + row * dim + d[None, None, :], mask=held, other=0.0)
    place = (parent * batch + image)[:, None] * dim + d[None, :]
    tl.store(out + place, _settled(tl.sum(sums, 0), s, place, inside, BACK), mask=inside)


@triton.jit
def couple(
    c, before, dots, after, starts, positions, num_children, batch, blocks,
    C: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Softmax of ``before`` over the out-edges of C children into ``c``; back, through it: before + c (dots - mean).

    Going back, ``before`` is zero where there is none.
    """
    child = (tl.program_id(0) // blocks).to(tl.int64) * C + tl.arange(0, C)
    image = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)
    first = tl.load(starts + child, mask=child < num_children, other=0).to(tl.int64)  # (C,)
    last = tl.load(starts + child + 1, mask=child < num_children, other=0).to(tl.int64)
    most = tl.max(last - first, 0)
    if BACK:
        mean = tl.zeros((C, B), c.dtype.element_ty)
        for start in range(0, most, K):
            at, held = _out_edges(first, last, start, positions, image, batch, K)
            share = tl.load(c + at, mask=held, other=0.0)
            mean += tl.sum(share * tl.load(dots + at, mask=held, other=0.0), 1)
        for start in range(0, most, K):
            at, held = _out_edges(first, last, start, positions, image, batch, K)
            share = tl.load(c + at, mask=held, other=0.0)
            change = share * (tl.load(dots + at, mask=held, other=0.0) - mean[:, None, :])
            if before is not None:
                change += tl.load(before + at, mask=held, other=0.0)
            tl.store(after + at, change, mask=held)
    else:
        top = tl.full((C, B), float("-inf"), c.dtype.element_ty)
        for start in range(0, most, K):
            at, held = _out_edges(first, last, start, positions, image, batch, K)
            top = tl.maximum(top, tl.max(tl.load(before + at, mask=held, other=float("-inf")), 1))
        total = tl.zeros((C, B), c.dtype.element_ty)
        for start in range(0, most, K):
            at, held = _out_edges(first, last, start, positions, image, batch, K)
            raised = tl.exp(tl.load(before + at, mask=held, other=0.0) - top[:, None, :])
            total += tl.sum(tl.where(held, raised, 0.0), 1)
        for start in range(0, most, K):
            at, held = _out_edges(first, last, start, positions, image, batch, K)
            raised = tl.exp(tl.load(before + at, mask=held, other=0.0) - top[:, None, :])
            tl.store(c + at, raised / total[:, None, :], mask=held)


@triton.jit
def _out_edges(first, last, start, positions, image, batch, K: tl.constexpr):
    """Where the scalars of each child's out-edges from ``start`` on stand, and which there are: (C, K, B)."""
    n = first[:, None] + start + tl.arange(0, K)[None, :]
    held = n < last[:, None]
    k = tl.load(positions + n, mask=held, other=0).to(tl.int64)
    return k[:, :, None] * batch + image[None, None, :], held[:, :, None] & (image < batch)[None, None, :]


@triton.jit
def votes_gradient(
    c, ds, db, v, du, eid, starts, owners, batch, dim, blocks, iterations, edges, parents,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The gradient of given votes, written once; c, db (R, E, batch) and ds, v (R, J, batch, dim)."""
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    image = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    inside = ((image < batch)[:, None] & (d < dim)[None, :])[None, :, :]  # (1, B, D)
    place = ((tl.load(owners + segment).to(tl.int64) * batch + image)[:, None] * dim + d[None, :])[None, :, :]
    first = tl.load(starts + segment).to(tl.int64)
    last = tl.load(starts + segment + 1).to(tl.int64)
    for start in range(first, last, K):
        k = start + tl.arange(0, K)
        held = (k < last)[:, None] & (image < batch)[None, :]
        at = k[:, None] * batch + image[None, :]
        rows = du_hat_of(c, ds, db, v, at, held, place, inside, iterations, edges, parents)  # (K, B, D)
        edge = tl.load(eid + k, mask=k < last, other=0).to(tl.int64)
        to = (edge[:, None] * batch + image[None, :])[:, :, None] * dim + d[None, None, :]
        tl.store(du + to, rows, mask=held[:, :, None] & inside)


@triton.jit
def du_hat_of(c, ds, db, v, at, held, place, inside, iterations, edges, parents):
    """sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1); from one r to the next are ``edges``, ``parents``."""
    total = _times(c + at, held, ds + place, inside)
    for _ in range(1, iterations):
        at += edges
        total += _times(db + at, held, v + place, inside)
        place += parents
        total += _times(c + at, held, ds + place, inside)
    return total


@triton.jit
def _times(share, held, rows, inside):
    return tl.load(share, mask=held, other=0.0)[:, :, None] * tl.load(rows, mask=inside, other=0.0)
