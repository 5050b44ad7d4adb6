"""The passes of dynamic routing over the votes on a GPU, in Triton; `launch` calls them in order.

A program has a range of edges (or children) and a block of B images, and nothing is added atomically: what programs
share is written as partial sums and added up by `squash_sums` in a fixed order, so that two runs give the same bits.
For the same reason block sizes are not tuned by timing.

Going forward and going back are the same pass with another middle, hence BACK:

    forward   c = softmax(b)                          s = sum of c u_hat     v = squash(s)             <u_hat, v>
    back      db = above + c (dc - sum of c dc)       dv = sum of db u_hat   ds = squash'(s) dv   dc = <u_hat, ds>

Votes are (E, batch, parent_dim) in the graph's edge order. Scalars of an edge (b, c, db) are (E, batch) in the order of
k, which counts the edges sorted by parent; eid[k] is where the votes of edge k are. Parents are (J, batch, parent_dim).
Capitals are sizes of blocks: powers of two, the rest masked. Votes of less than 32 bits are widened as they are read.

Triton compiles a kernel anew for a number that is 1, and for one that is a multiple of 16. For counts it may not
(`do_not_specialize`): so what tests try on a small graph is what a large one is routed with.
"""

# No `from __future__ import annotations` in the files of kernels: it makes annotations strings, from which the
# interpreter of Triton 3.0 can't tell which arguments are constants.
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["image_blocks"])
def over_parents(
    votes, weights, parts, s, out, before, after, eid, segment_starts, segment_parents, batch, parent_dim, image_blocks,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Sum weights * votes over one segment of a parent's in-edges, squash it, and multiply the votes with the result.

    Without ``weights`` nothing is summed and ``out`` is read instead. Without ``s`` the segment is only part of its
    parent and its sum goes to ``parts``. <u_hat, out>, plus ``before`` if there is one, goes to ``after`` if there is
    one; that second reading of the votes is from the cache where the segment is short.
    """
    segment = (tl.program_id(0) // image_blocks).to(tl.int64)
    image = (tl.program_id(0) % image_blocks).to(tl.int64) * B + tl.arange(0, B)  # (B,)
    d = tl.arange(0, D)
    parent_mask = (image < batch)[:, None] & (d < parent_dim)[None, :]  # (B, D)
    parent = tl.load(segment_parents + segment).to(tl.int64)
    parent_offsets = (parent * batch + image)[:, None] * parent_dim + d[None, :]  # (B, D)
    begin = tl.load(segment_starts + segment).to(tl.int64)
    end = tl.load(segment_starts + segment + 1).to(tl.int64)
    if weights is not None:
        products = tl.zeros((K, B, D), s.dtype.element_ty if s is not None else parts.dtype.element_ty)
        for start in range(begin, end, K):
            k = start + tl.arange(0, K)
            edge_mask = (k < end)[:, None] & (image < batch)[None, :]  # (K, B)
            weight = tl.load(weights + k[:, None] * batch + image[None, :], mask=edge_mask, other=0.0)
            u_hat = _load_votes(votes, eid, k, end, image, d, batch, parent_dim)
            products += weight[:, :, None] * u_hat.to(products.dtype)
        total = tl.sum(products, 0)  # (B, D)
        if s is not None:
            result = _squashed(total, s, parent_offsets, parent_mask, BACK)
            tl.store(out + parent_offsets, result, mask=parent_mask)
        else:
            tl.store(parts + (segment * batch + image)[:, None] * parent_dim + d[None, :], total, mask=parent_mask)
    else:
        result = tl.load(out + parent_offsets, mask=parent_mask, other=0.0)
    if after is not None:
        for start in range(begin, end, K):
            k = start + tl.arange(0, K)
            edge_mask = (k < end)[:, None] & (image < batch)[None, :]
            edge_offsets = k[:, None] * batch + image[None, :]
            u_hat = _load_votes(votes, eid, k, end, image, d, batch, parent_dim).to(result.dtype)
            agreement = tl.sum(u_hat * result[None, :, :], 2)  # (K, B)
            if before is not None:
                agreement += tl.load(before + edge_offsets, mask=edge_mask, other=0.0)
            tl.store(after + edge_offsets, agreement, mask=edge_mask)


@triton.jit
def _load_votes(votes, eid, k, end, image, d, batch, parent_dim):
    """The votes (K, B, D) of edges k, those below ``end``."""
    edge = tl.load(eid + k, mask=k < end, other=0).to(tl.int64)
    mask = (k < end)[:, None, None] & (image < batch)[None, :, None] & (d < parent_dim)[None, None, :]
    row = edge[:, None, None] * batch + image[None, :, None]
    return tl.load(votes + row * parent_dim + d[None, None, :], mask=mask, other=0.0)


@triton.jit
def _squashed(total, s, parent_offsets, parent_mask, BACK: tl.constexpr):
    """Forward: keep s = total and squash it. Back: the gradient total = dv through squash, at the s that was kept."""
    if BACK:
        kept = tl.load(s + parent_offsets, mask=parent_mask, other=0.0)
    else:
        kept = total
        tl.store(s + parent_offsets, total, mask=parent_mask)
    squared = tl.sum(kept * kept, 1)[:, None]
    n = tl.sqrt(squared)
    result = total * (n / (1 + squared))
    if BACK:
        slope = (1 - squared) / (1 + squared) / (1 + squared) / tl.where(n > 0, n, 1)  # f' / n; s = 0 takes it to 0
        result += kept * (slope * tl.sum(kept * total, 1)[:, None])
    return result


@triton.jit(do_not_specialize=["parts_per_parent", "image_blocks"])
def squash_sums(
    parts, part_starts, parts_per_parent, s, out, batch, parent_dim, image_blocks,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Add up and squash a parent's partial sums, ``parts[part_starts[j]:part_starts[j + 1]]`` (.., batch, parent_dim).

    Without ``part_starts`` every parent has ``parts_per_parent``.
    """
    parent = (tl.program_id(0) // image_blocks).to(tl.int64)
    image = (tl.program_id(0) % image_blocks).to(tl.int64) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    parent_mask = (image < batch)[:, None] & (d < parent_dim)[None, :]
    if part_starts is not None:
        begin = tl.load(part_starts + parent).to(tl.int64)
        end = tl.load(part_starts + parent + 1).to(tl.int64)
    else:
        begin = parent * parts_per_parent
        end = begin + parts_per_parent
    sums = tl.zeros((K, B, D), s.dtype.element_ty)
    for start in range(begin, end, K):
        part = start + tl.arange(0, K)
        row = part[:, None, None] * batch + image[None, :, None]
        mask = (part < end)[:, None, None] & parent_mask[None, :, :]
        sums += tl.load(parts + row * parent_dim + d[None, None, :], mask=mask, other=0.0)
    parent_offsets = (parent * batch + image)[:, None] * parent_dim + d[None, :]
    tl.store(out + parent_offsets, _squashed(tl.sum(sums, 0), s, parent_offsets, parent_mask, BACK), mask=parent_mask)


@triton.jit(do_not_specialize=["num_children", "image_blocks"])
def couple(
    c, before, dc, after, child_starts, positions, num_children, batch, image_blocks,
    C: tl.constexpr, K: tl.constexpr, B: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Softmax of ``before`` over the out-edges of C children into ``c``; back, through it: before + c (dc - mean).

    Going back, ``before`` is zero where there is none.
    """
    child = (tl.program_id(0) // image_blocks).to(tl.int64) * C + tl.arange(0, C)
    image = (tl.program_id(0) % image_blocks).to(tl.int64) * B + tl.arange(0, B)
    begin = tl.load(child_starts + child, mask=child < num_children, other=0).to(tl.int64)  # (C,)
    end = tl.load(child_starts + child + 1, mask=child < num_children, other=0).to(tl.int64)
    max_degree = tl.max(end - begin, 0)
    if BACK:
        mean = tl.zeros((C, B), c.dtype.element_ty)
        for start in range(0, max_degree, K):
            offsets, mask = _out_edges(begin, end, start, positions, image, batch, K)
            share = tl.load(c + offsets, mask=mask, other=0.0)
            mean += tl.sum(share * tl.load(dc + offsets, mask=mask, other=0.0), 1)
        for start in range(0, max_degree, K):
            offsets, mask = _out_edges(begin, end, start, positions, image, batch, K)
            share = tl.load(c + offsets, mask=mask, other=0.0)
            db = share * (tl.load(dc + offsets, mask=mask, other=0.0) - mean[:, None, :])
            if before is not None:
                db += tl.load(before + offsets, mask=mask, other=0.0)
            tl.store(after + offsets, db, mask=mask)
    else:
        top = tl.full((C, B), float("-inf"), c.dtype.element_ty)
        for start in range(0, max_degree, K):
            offsets, mask = _out_edges(begin, end, start, positions, image, batch, K)
            top = tl.maximum(top, tl.max(tl.load(before + offsets, mask=mask, other=float("-inf")), 1))
        total = tl.zeros((C, B), c.dtype.element_ty)
        for start in range(0, max_degree, K):
            offsets, mask = _out_edges(begin, end, start, positions, image, batch, K)
            raised = tl.exp(tl.load(before + offsets, mask=mask, other=0.0) - top[:, None, :])
            total += tl.sum(tl.where(mask, raised, 0.0), 1)
        for start in range(0, max_degree, K):
            offsets, mask = _out_edges(begin, end, start, positions, image, batch, K)
            raised = tl.exp(tl.load(before + offsets, mask=mask, other=0.0) - top[:, None, :])
            tl.store(c + offsets, raised / total[:, None, :], mask=mask)


@triton.jit
def _out_edges(begin, end, start, positions, image, batch, K: tl.constexpr):
    """Where the scalars of each child's out-edges from ``start`` on are, and which there are: (C, K, B)."""
    n = begin[:, None] + start + tl.arange(0, K)[None, :]
    mask = n < end[:, None]
    k = tl.load(positions + n, mask=mask, other=0).to(tl.int64)
    return k[:, :, None] * batch + image[None, None, :], mask[:, :, None] & (image < batch)[None, None, :]


@triton.jit(do_not_specialize=["image_blocks", "iterations"])
def votes_gradient(
    c, ds, db, v, du, eid, segment_starts, segment_parents, batch, parent_dim, image_blocks,
    iterations, c_stride, ds_stride,
    K: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The gradient of given votes, written once; c, db (R, E, batch) and ds, v (R, J, batch, parent_dim)."""
    segment = (tl.program_id(0) // image_blocks).to(tl.int64)
    image = (tl.program_id(0) % image_blocks).to(tl.int64) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    parent_mask = ((image < batch)[:, None] & (d < parent_dim)[None, :])[None, :, :]  # (1, B, D)
    parent = tl.load(segment_parents + segment).to(tl.int64)
    parent_offsets = ((parent * batch + image)[:, None] * parent_dim + d[None, :])[None, :, :]
    begin = tl.load(segment_starts + segment).to(tl.int64)
    end = tl.load(segment_starts + segment + 1).to(tl.int64)
    for start in range(begin, end, K):
        k = start + tl.arange(0, K)
        edge_mask = (k < end)[:, None] & (image < batch)[None, :]
        edge_offsets = k[:, None] * batch + image[None, :]
        du_hat = du_hat_of(
            c, ds, db, v, edge_offsets, edge_mask, parent_offsets, parent_mask, iterations, c_stride, ds_stride
        )  # (K, B, D)
        edge = tl.load(eid + k, mask=k < end, other=0).to(tl.int64)
        to = (edge[:, None] * batch + image[None, :])[:, :, None] * parent_dim + d[None, None, :]
        tl.store(du + to, du_hat, mask=edge_mask[:, :, None] & parent_mask)


@triton.jit
def du_hat_of(c, ds, db, v, edge_offsets, edge_mask, parent_offsets, parent_mask, iterations, c_stride, ds_stride):
    """sum over r of c^r ds^r + sum over r >= 1 of db^r v^(r-1); the strides are from one r to the next."""
    total = _outer(c + edge_offsets, edge_mask, ds + parent_offsets, parent_mask)
    for _ in range(1, iterations):
        edge_offsets += c_stride
        total += _outer(db + edge_offsets, edge_mask, v + parent_offsets, parent_mask)
        parent_offsets += ds_stride
        total += _outer(c + edge_offsets, edge_mask, ds + parent_offsets, parent_mask)
    return total


@triton.jit
def _outer(edges, edge_mask, parents, parent_mask):
    """The numbers of edges times the rows of parents."""
    number = tl.load(edges, mask=edge_mask, other=0.0)
    return number[:, :, None] * tl.load(parents, mask=parent_mask, other=0.0)
