"""The passes over a complete graph's votes on a GPU, child by child, in Triton.

As `kernels`, which says how sums are shared and what the names mean, but a program has a range of children, and all
votes of a child, for every parent, stand in its registers: the agreement with the last parents, the softmax and the
child's share of the next sums take one reading of given votes, and votes that are linear are made there and never
written. So J times D must be small; J is padded to a power of two as D is.
"""

import triton
import triton.language as tl

from .kernels import du_hat_of


@triton.jit
def over_children(
    votes, weight, x, before, after, c, parts,
    num_children, num_parents, batch, dim, height, run, by_type, by_parent, reach, blocks,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """One pass over ``reach`` children: <u_hat, x>, what becomes of b or db by it, and the sums over children.

    Forward, without ``x`` the logits are ``before``; with it they are before + <u_hat, x> and go to ``after``. Back,
    x is ds. The sums go to ``parts`` (J, ranges of children, batch, dim) if there are any. With ``weight``, of strides
    by_type, by_parent, dim, 1 and one type per ``run`` children, votes are children (I, batch, height). ``before`` is
    not ``after``: several threads may hold the same number, and one may write it before another has read it. Without
    ``before`` it is zero.
    """
    part = (tl.program_id(0) // blocks).to(tl.int64)
    image = (tl.program_id(0) % blocks).to(tl.int64) * B + tl.arange(0, B)  # (B,)
    parent = tl.arange(0, J).to(tl.int64)
    d = tl.arange(0, D)
    pair = (image < batch)[:, None] & (parent < num_parents)[None, :]  # (B, J)
    inside = pair[:, :, None] & (d < dim)[None, None, :]  # (B, J, D)
    if x is not None:
        row = parent[None, :] * batch + image[:, None]
        along = tl.load(x + row[:, :, None] * dim + d[None, None, :], mask=inside, other=0.0)
    sums = tl.zeros((B, J, D), c.dtype.element_ty)
    for i in range(part * reach, tl.minimum(part * reach + reach, num_children)):
        if weight is not None:
            matrices = weight + i // run * by_type
            rows = _made(
                votes, matrices, i, image, parent, d, batch, num_parents, dim, height, by_parent,
                sums, B, J, D, P, PRODUCT,
            )  # fmt: skip
        else:
            row = (i * num_parents + parent)[None, :] * batch + image[:, None]
            rows = tl.load(votes + row[:, :, None] * dim + d[None, None, :], mask=inside, other=0.0).to(sums.dtype)
        at = (parent * num_children + i)[None, :] * batch + image[:, None]  # (B, J)
        if before is not None:
            state = tl.load(before + at, mask=pair, other=0.0)
        else:
            state = tl.zeros((B, J), c.dtype.element_ty)
        if BACK:
            dots = tl.sum(rows * along, 2)
            share = tl.load(c + at, mask=pair, other=0.0)
            share = state + share * (dots - tl.sum(share * dots, 1)[:, None])
            tl.store(after + at, share, mask=pair)
        else:
            if x is not None:
                state += tl.sum(rows * along, 2)
                tl.store(after + at, state, mask=pair)
            state = tl.where((parent < num_parents)[None, :], state, float("-inf"))
            raised = tl.exp(state - tl.max(state, 1)[:, None])
            share = raised / tl.sum(raised, 1)[:, None]
            tl.store(c + at, share, mask=pair)
        if parts is not None:
            sums += share[:, :, None] * rows
    if parts is not None:
        ranges = tl.num_programs(0) // blocks
        row = (parent * ranges + part)[None, :] * batch + image[:, None]
        tl.store(parts + row[:, :, None] * dim + d[None, None, :], sums, mask=inside)


@triton.jit
def _made(
    u, matrices, i, image, parent, d, batch, num_parents, dim, height, by_parent, like,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """The votes (B, J, D) of child i: u (B, P) times its matrices (P, J D), in one product or a row at a time."""
    child = u + (i * batch + image) * height  # (B,)
    if PRODUCT == "tf32":
        p = tl.arange(0, P)
        held = (image < batch)[:, None] & (p < height)[None, :]
        left = tl.load(child[:, None] + p[None, :], mask=held, other=0.0).to(like.dtype)
        right = _matrix(matrices, num_parents, dim, height, by_parent, J, D, P).to(like.dtype)
        rows = tl.reshape(tl.dot(left, right, input_precision="tf32"), (B, J, D))
    else:
        rows = tl.zeros((B, J, D), like.dtype)
        inside = (parent < num_parents)[:, None] & (d < dim)[None, :]
        for p in range(0, height):
            left = tl.load(child + p, mask=image < batch, other=0.0).to(like.dtype)
            right = matrices + (parent * by_parent + p * dim)[:, None] + d[None, :]
            right = tl.load(right, mask=inside, other=0.0).to(like.dtype)
            rows += left[:, None, None] * right[None, :, :]
    return rows


@triton.jit
def _matrix(
    matrices, num_parents, dim, height, by_parent, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """The weights (P, J D) of one type of child."""
    p = tl.arange(0, P)[:, None]
    parent = (tl.arange(0, J * D) // D).to(tl.int64)[None, :]
    d = (tl.arange(0, J * D) % D)[None, :]
    held = (p < height) & (parent < num_parents) & (d < dim)
    return tl.load(matrices + parent * by_parent + p * dim + d, mask=held, other=0.0)


@triton.jit
def linear_gradient(
    u, weight, c, ds, db, v, du, dweight,
    num_children, num_parents, batch, dim, height, run, by_type, by_parent, iterations, edges, parents,
    child_parts, image_parts,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """The gradient of u and weight, through that of the votes of one child and B images at a time.

    A program has one of ``child_parts`` of a type's children and one of ``image_parts`` of the blocks of images;
    its sum is dweight (types, child_parts * image_parts, J, height, dim).
    """
    program = tl.program_id(0).to(tl.int64)
    parts = child_parts * image_parts
    kind = program // parts
    child_part = program % parts // image_parts
    parent = tl.arange(0, J).to(tl.int64)
    d = tl.arange(0, D)
    p = tl.arange(0, P)
    matrix = _matrix(weight + kind * by_type, num_parents, dim, height, by_parent, J, D, P).to(c.dtype.element_ty)
    total = tl.zeros((P, J * D), c.dtype.element_ty)
    reach = tl.cdiv(run, child_parts)
    for i in range(kind * run + child_part * reach, kind * run + tl.minimum(child_part * reach + reach, run)):
        for block in range(program % image_parts, tl.cdiv(batch, B), image_parts):
            image = block * B + tl.arange(0, B).to(tl.int64)
            pair = (image < batch)[:, None] & (parent < num_parents)[None, :]
            inside = pair[:, :, None] & (d < dim)[None, None, :]
            at = (parent * num_children + i)[None, :] * batch + image[:, None]  # (B, J)
            place = (parent[None, :] * batch + image[:, None])[:, :, None] * dim + d[None, None, :]  # (B, J, D)
            rows = du_hat_of(c, ds, db, v, at, pair, place, inside, iterations, edges, parents)
            rows = tl.reshape(rows, (B, J * D))
            child = (i * batch + image)[:, None] * height + p[None, :]
            held = (image < batch)[:, None] & (p < height)[None, :]
            left = tl.load(u + child, mask=held, other=0.0).to(total.dtype)
            total += _product(tl.trans(left), rows, PRODUCT)
            tl.store(du + child, _product(rows, tl.trans(matrix), PRODUCT), mask=held)
    row = ((program * num_parents + parent[None, :, None]) * height + p[:, None, None]) * dim + d[None, None, :]
    held = (p < height)[:, None, None] & (parent < num_parents)[None, :, None] & (d < dim)[None, None, :]
    tl.store(dweight + row, tl.reshape(total, (P, J, D)), mask=held)


@triton.jit
def _product(left, right, PRODUCT: tl.constexpr):
    """left (M, K) times right (K, N); "sum" is for float64, which not every Triton's `tl.dot` takes."""
    if PRODUCT == "sum":
        result = tl.sum(left[:, :, None] * right[None, :, :], 1)
    else:
        result = tl.dot(left, right, input_precision=PRODUCT)
    return result
