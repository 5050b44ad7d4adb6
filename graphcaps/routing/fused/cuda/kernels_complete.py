"""The passes over a complete graph's votes on a GPU, child by child, in Triton.

As `kernels`, which says how sums are shared and what the names mean, but a program has a range of children, and all
votes of a child, for every parent, are in its registers: the agreement with the last parents, the softmax and the
child's share of the next sums take one reading of given votes, and votes that are linear are made there and never
written. So J times D must be small; J is padded to a power of two as D is.
"""

import triton
import triton.language as tl

from .kernels import du_hat_of


@triton.jit(do_not_specialize=["num_children", "children_per_type", "children_per_program", "image_blocks"])
def over_children(
    votes, weight, parents, before, after, c, parts,
    num_children, num_parents, batch, parent_dim, child_dim,
    children_per_type, type_stride, parent_stride, children_per_program, image_blocks,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """One pass over a range of children: <u_hat, parents>, what becomes of b or db by it, and the sums over children.

    Forward, ``parents`` are v. Without them the logits are ``before``; with them they are before + <u_hat, v> and go
    to ``after``. Back, ``parents`` are ds. The sums go to ``parts`` (J, ranges of children, batch, parent_dim) if there
    are any. With ``weight``, of strides type_stride, parent_stride, parent_dim, 1, votes are children
    (I, batch, child_dim). ``before`` is not ``after``: several threads may hold the same number, and one may write it
    before another has read it. Without ``before`` it is zero.
    """
    part = (tl.program_id(0) // image_blocks).to(tl.int64)
    image = (tl.program_id(0) % image_blocks).to(tl.int64) * B + tl.arange(0, B)  # (B,)
    parent = tl.arange(0, J).to(tl.int64)
    d = tl.arange(0, D)
    edge_mask = (image < batch)[:, None] & (parent < num_parents)[None, :]  # (B, J)
    parent_mask = edge_mask[:, :, None] & (d < parent_dim)[None, None, :]  # (B, J, D)
    if parents is not None:
        row = parent[None, :] * batch + image[:, None]
        of_parents = tl.load(parents + row[:, :, None] * parent_dim + d[None, None, :], mask=parent_mask, other=0.0)
    sums = tl.zeros((B, J, D), c.dtype.element_ty)
    first = part * children_per_program
    for i in range(first, tl.minimum(first + children_per_program, num_children)):
        if weight is not None:
            matrices = weight + i // children_per_type * type_stride
            u_hat = _make_votes(
                votes, matrices, i, image, parent, d, batch, num_parents, parent_dim, child_dim, parent_stride,
                sums, B, J, D, P, PRODUCT,
            )  # fmt: skip
        else:
            row = (i * num_parents + parent)[None, :] * batch + image[:, None]
            u_hat = tl.load(votes + row[:, :, None] * parent_dim + d[None, None, :], mask=parent_mask, other=0.0)
            u_hat = u_hat.to(sums.dtype)
        edge_offsets = (parent * num_children + i)[None, :] * batch + image[:, None]  # (B, J)
        if before is not None:
            state = tl.load(before + edge_offsets, mask=edge_mask, other=0.0)
        else:
            state = tl.zeros((B, J), c.dtype.element_ty)
        if BACK:
            dc = tl.sum(u_hat * of_parents, 2)
            share = tl.load(c + edge_offsets, mask=edge_mask, other=0.0)
            share = state + share * (dc - tl.sum(share * dc, 1)[:, None])
            tl.store(after + edge_offsets, share, mask=edge_mask)
        else:
            if parents is not None:
                state += tl.sum(u_hat * of_parents, 2)
                tl.store(after + edge_offsets, state, mask=edge_mask)
            state = tl.where((parent < num_parents)[None, :], state, float("-inf"))
            raised = tl.exp(state - tl.max(state, 1)[:, None])
            share = raised / tl.sum(raised, 1)[:, None]
            tl.store(c + edge_offsets, share, mask=edge_mask)
        if parts is not None:
            sums += share[:, :, None] * u_hat
    if parts is not None:
        ranges = tl.num_programs(0) // image_blocks
        row = (parent * ranges + part)[None, :] * batch + image[:, None]
        tl.store(parts + row[:, :, None] * parent_dim + d[None, None, :], sums, mask=parent_mask)


@triton.jit
def _make_votes(
    u, matrices, i, image, parent, d, batch, num_parents, parent_dim, child_dim, parent_stride, like,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """The votes (B, J, D) of child i: u (B, P) times its matrices (P, J D), in one product or a row at a time."""
    child = u + (i * batch + image) * child_dim  # (B,)
    if PRODUCT == "tf32":
        p = tl.arange(0, P)
        mask = (image < batch)[:, None] & (p < child_dim)[None, :]
        left = tl.load(child[:, None] + p[None, :], mask=mask, other=0.0).to(like.dtype)
        right = _load_matrices(matrices, num_parents, parent_dim, child_dim, parent_stride, J, D, P).to(like.dtype)
        u_hat = tl.reshape(tl.dot(left, right, input_precision="tf32"), (B, J, D))
    else:
        u_hat = tl.zeros((B, J, D), like.dtype)
        mask = (parent < num_parents)[:, None] & (d < parent_dim)[None, :]
        for p in range(0, child_dim):
            left = tl.load(child + p, mask=image < batch, other=0.0).to(like.dtype)
            right = matrices + (parent * parent_stride + p * parent_dim)[:, None] + d[None, :]
            right = tl.load(right, mask=mask, other=0.0).to(like.dtype)
            u_hat += left[:, None, None] * right[None, :, :]
    return u_hat


@triton.jit
def _load_matrices(
    matrices, num_parents, parent_dim, child_dim, parent_stride, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """The weights (P, J D) of one type of child."""
    p = tl.arange(0, P)[:, None]
    parent = (tl.arange(0, J * D) // D).to(tl.int64)[None, :]
    d = (tl.arange(0, J * D) % D)[None, :]
    mask = (p < child_dim) & (parent < num_parents) & (d < parent_dim)
    return tl.load(matrices + parent * parent_stride + p * parent_dim + d, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["num_children", "children_per_type", "iterations", "child_parts", "image_parts"])
def linear_gradient(
    u, weight, c, ds, db, v, du, dweight,
    num_children, num_parents, batch, parent_dim, child_dim,
    children_per_type, type_stride, parent_stride, iterations, c_stride, ds_stride,
    child_parts, image_parts, parent_blocks,
    B: tl.constexpr, J: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PRODUCT: tl.constexpr,
):  # fmt: skip
    """The gradient of u and weight, through that of the votes of one child for J parents and B images at a time.

    A program has one of ``parent_blocks`` of J parents, one of ``child_parts`` of a type's children and one of
    ``image_parts`` of the blocks of images. Its sums are du (parent_blocks, I, batch, child_dim) and
    dweight (types, child_parts * image_parts, J, child_dim, parent_dim).
    """
    parent_block = (tl.program_id(0) % parent_blocks).to(tl.int64)
    program = (tl.program_id(0) // parent_blocks).to(tl.int64)
    parts = child_parts * image_parts
    type_of_child = program // parts
    child_part = program % parts // image_parts
    first_parent = parent_block * J
    parent = first_parent + tl.arange(0, J).to(tl.int64)
    d = tl.arange(0, D)
    p = tl.arange(0, P)
    matrices = weight + type_of_child * type_stride + first_parent * parent_stride
    matrix = _load_matrices(matrices, num_parents - first_parent, parent_dim, child_dim, parent_stride, J, D, P)
    matrix = matrix.to(c.dtype.element_ty)
    total = tl.zeros((P, J * D), c.dtype.element_ty)
    per_part = tl.cdiv(children_per_type, child_parts)
    first = type_of_child * children_per_type
    begin = child_part * per_part
    for i in range(first + begin, first + tl.minimum(begin + per_part, children_per_type)):
        for block in range(program % image_parts, tl.cdiv(batch, B), image_parts):
            image = block * B + tl.arange(0, B).to(tl.int64)
            edge_mask = (image < batch)[:, None] & (parent < num_parents)[None, :]  # (B, J)
            parent_mask = edge_mask[:, :, None] & (d < parent_dim)[None, None, :]  # (B, J, D)
            edge_offsets = (parent * num_children + i)[None, :] * batch + image[:, None]
            parent_offsets = (parent[None, :] * batch + image[:, None])[:, :, None] * parent_dim + d[None, None, :]
            du_hat = du_hat_of(
                c, ds, db, v, edge_offsets, edge_mask, parent_offsets, parent_mask, iterations, c_stride, ds_stride
            )
            du_hat = tl.reshape(du_hat, (B, J * D))
            child_offsets = (i * batch + image)[:, None] * child_dim + p[None, :]  # (B, P)
            child_mask = (image < batch)[:, None] & (p < child_dim)[None, :]
            left = tl.load(u + child_offsets, mask=child_mask, other=0.0).to(total.dtype)
            total += _matmul(tl.trans(left), du_hat, PRODUCT)
            part = du + parent_block * num_children * batch * child_dim + child_offsets
            tl.store(part, _matmul(du_hat, tl.trans(matrix), PRODUCT), mask=child_mask)
    row = (program * num_parents + parent[None, :, None]) * child_dim + p[:, None, None]
    offsets = row * parent_dim + d[None, None, :]
    mask = (p < child_dim)[:, None, None] & (parent < num_parents)[None, :, None] & (d < parent_dim)[None, None, :]
    tl.store(dweight + offsets, tl.reshape(total, (P, J, D)), mask=mask)


@triton.jit
def _matmul(left, right, PRODUCT: tl.constexpr):
    """left (M, K) times right (K, N); "sum" is for float64, which not every Triton's `tl.dot` takes."""
    if PRODUCT == "sum":
        result = tl.sum(left[:, :, None] * right[None, :, :], 1)
    else:
        result = tl.dot(left, right, input_precision=PRODUCT)
    return result
