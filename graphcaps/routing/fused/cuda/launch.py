"""The order of the passes of dynamic routing on a GPU, by parent or by child, and what each kernel is launched with.

Block sizes follow from the shapes alone. They were chosen by counting the registers that the compiler uses and the
bytes that are read, not by timing; and they are not tuned where the program runs, because other blocks add in another
order, and two runs should give the same bits.
"""

from __future__ import annotations

import torch
import triton

from .kernels import couple, over_parents, settle, votes_gradient
from .kernels_complete import linear_gradient, over_children

PROGRAMS = 528  # four for each of an H200's 132 processors; the same on every GPU, so that all cut sums alike
WIDEST_CHILD = 2048  # numbers of one child's votes for one image, padded, that stand in registers
WIDEST_WEIGHTS = 32768  # and of its weights
TILE = 2048  # numbers in a program's tile of votes
IMAGES = 16  # images, and at least as many rows and columns, that `tl.dot` multiplies at once: it takes no fewer


def fits(num_parents: int, dim: int, height: int = 0) -> bool:
    """Whether a child's votes for all parents, and its weights where votes are linear, are few enough for `ByChild`."""
    child = _padded(num_parents) * _padded(dim)
    return child <= WIDEST_CHILD and (height == 0 or child * max(IMAGES, _padded(height)) <= WIDEST_WEIGHTS)


def _padded(size: int, most: int = 2**31) -> int:
    return min(triton.next_power_of_2(size), most)


def _launch(kernel, programs, tile, *arguments, **constants):
    """Run ``programs`` programs, each of as many warps as leave 16 numbers of the tile to a thread."""
    with torch.cuda.device_of(arguments[0]):
        kernel[(programs,)](*arguments, **constants, num_warps=min(16, max(1, tile // 512)), enable_fp_fusion=True)


def settle_parents(parts, starts, s, out, back):
    """The parents, or going back ds, of partial sums (.., B, D): those of j from starts[j] on, or equally many each."""
    num_parents, batch, dim = s.shape
    images = _padded(batch, max(1, 256 // _padded(dim)))
    blocks = triton.cdiv(batch, images)
    tile = {"K": _padded(triton.cdiv(len(parts), num_parents), 8), "B": images, "D": _padded(dim)}
    each = len(parts) // num_parents
    _launch(settle, num_parents * blocks, TILE, parts, starts, each, s, out, batch, dim, blocks, **tile, BACK=back)


class ByParent:
    """Given votes on any graph: a program reads the in-edges of a parent, settles it, and reads them once more.

    The second reading, for the agreement, comes from the cache; a parent of very many in-edges is cut into segments,
    whose sums are settled in between, so that it keeps more than one program busy.

    Args:
        votes: (E, B, D) in the graph's edge order.
        rows: the graph's index arrays.
        like: a tensor of the dtype in which sums are taken.
    """

    def __init__(self, votes, rows, like):
        self.votes, self.rows, self.like = votes, rows, like
        self.batch, self.dim = votes.shape[1:]
        wide = _padded(self.dim)
        images = _padded(self.batch, max(1, 64 // wide))
        edges = _padded(max(1, len(rows.eid) // rows.num_parents), max(1, TILE // (images * wide)))
        self.tile = {"K": edges, "B": images, "D": wide}
        self.blocks = triton.cdiv(self.batch, images)

    def forward(self, b, c, s, v, seen):
        """Fill c, s and v of all iterations from the logits b; ``seen(r, b)`` is called when each is done."""
        for r in range(len(c)):
            self._couple(c[r], b, None, None)
            upcoming = torch.empty_like(b) if r < len(c) - 1 else None
            self._over_parents(c[r], s[r], v[r], b, upcoming, back=False)
            seen(r, b)
            b = upcoming

    def agreement(self, v):
        """<u_hat, v> (E, B)."""
        agreement = v.new_empty(len(self.rows.eid), self.batch)
        self._over_parents(None, None, v, None, agreement, back=False)
        return agreement

    def backward(self, c, s, ds, db, since):
        """Fill ds of all iterations but the last, which is given, and db from iteration ``since`` on."""
        above, dc = None, torch.empty_like(c[0])
        for r in reversed(range(since, len(c))):
            if r == len(c) - 1:
                self._over_parents(None, None, ds[r], None, dc, back=True)
            self._couple(c[r], above, dc, db[r])
            above = db[r]
            if r > 0:
                self._over_parents(above, s[r - 1], ds[r - 1], None, dc if r > since else None, back=True)

    def gradient(self, c, ds, db, v):
        """The gradient of the votes, and None for a weight."""
        rows, tile, du = self.rows, self.tile, torch.empty_like(self.votes)
        _launch(
            votes_gradient, len(rows.owners) * self.blocks, tile["K"] * tile["B"] * tile["D"],
            c, ds, db, v, du, rows.eid, rows.starts, rows.owners, self.batch, self.dim, self.blocks,
            len(c), c.stride(0), ds.stride(0), **tile,
        )  # fmt: skip
        return du, None

    def _over_parents(self, weights, s, out, before, after, back):
        rows = self.rows
        if weights is None or len(rows.owners) == rows.num_parents:
            self._over_segments(weights, None, s, out, before, after, back)
            return
        parts = self.like.new_empty(len(rows.owners), self.batch, self.dim)
        self._over_segments(weights, parts, None, out, None, None, back)
        settle_parents(parts, rows.segments, s, out, back)
        if after is not None:
            self._over_segments(None, None, None, out, before, after, back)

    def _over_segments(self, weights, parts, s, out, before, after, back):
        rows, tile = self.rows, self.tile
        _launch(
            over_parents, len(rows.owners) * self.blocks, tile["K"] * tile["B"] * tile["D"],
            self.votes, weights, parts, s, out, before, after, rows.eid, rows.starts, rows.owners,
            self.batch, self.dim, self.blocks, **tile, BACK=back,
        )  # fmt: skip

    def _couple(self, c, before, dots, after):
        rows = self.rows
        images = _padded(self.batch, 16)
        edges = _padded(max(1, len(rows.eid) // rows.num_children), 512 // images)
        children = 512 // (images * edges)
        blocks = triton.cdiv(self.batch, images)
        _launch(
            couple, triton.cdiv(rows.num_children, children) * blocks, 1024,
            c, before, dots, after, rows.out_starts, rows.positions, rows.num_children, self.batch, blocks,
            C=children, K=edges, B=images, BACK=dots is not None,
        )  # fmt: skip


class ByChild:
    """Votes on a complete graph of few parents: a program has all votes of a child at once, given or made there.

    So one reading of given votes does all that an iteration needs of them, and linear ones are never written.

    Args:
        u: (E, B, D) votes, or with ``weight`` the children (I, B, P).
        weight: None, or (T, J, P, D), where each type has I / T neighbouring children.
        rows: the graph's index arrays.
        like: a tensor of the dtype in which sums are taken.
    """

    def __init__(self, u, weight, rows, like):
        self.u, self.weight, self.rows, self.like = u, weight, rows, like
        self.batch, self.height = u.shape[1:]
        self.dim = self.height if weight is None else weight.shape[-1]
        self.num_types = 1 if weight is None else len(weight)
        self.run = rows.num_children // self.num_types
        self.product = _product(u)
        parents = _padded(rows.num_parents)
        wide = _padded(self.dim) if weight is None else max(_padded(self.dim), IMAGES // parents)
        images = _padded(self.batch, max(1, TILE // (parents * wide)))
        self.tile = {
            "B": IMAGES if weight is not None and self.product == "tf32" else images,
            "J": parents,
            "D": wide,
            "P": 1 if weight is None else max(IMAGES, _padded(self.height)),
        }
        self.blocks = triton.cdiv(self.batch, self.tile["B"])
        self.reach = triton.cdiv(rows.num_children, max(1, PROGRAMS // self.blocks))
        self.ranges = triton.cdiv(rows.num_children, self.reach)

    def forward(self, b, c, s, v, seen):
        """Fill c, s and v of all iterations from the logits b; ``seen(r, b)`` is called when each is done."""
        parts = self._parts()
        for r in range(len(c)):
            last, upcoming = (v[r - 1], torch.empty_like(b)) if r > 0 else (None, b)
            self._over_children(last, b, upcoming, c[r], parts, back=False)
            settle_parents(parts, None, s[r], v[r], back=False)
            b = upcoming
            seen(r, b)

    def agreement(self, v):
        """<u_hat, v> (E, B)."""
        agreement = v.new_empty(len(self.rows.eid), self.batch)
        self._over_children(v, None, agreement, torch.empty_like(agreement), None, back=False)
        return agreement

    def backward(self, c, s, ds, db, since):
        """Fill ds of all iterations but the last, which is given, and db from iteration ``since`` on."""
        above, parts = None, self._parts()
        for r in reversed(range(since, len(c))):
            self._over_children(ds[r], above, db[r], c[r], parts if r > 0 else None, back=True)
            if r > 0:
                settle_parents(parts, None, s[r - 1], ds[r - 1], back=True)
            above = db[r]

    def gradient(self, c, ds, db, v):
        """The gradients of the votes and None, or of u and weight."""
        if self.weight is None:
            return ByParent(self.u, self.rows, self.like).gradient(c, ds, db, v)
        rows, tile = self.rows, self.tile | {"B": 1 if self.product == "sum" else IMAGES}
        child_parts = min(self.run, triton.cdiv(PROGRAMS, self.num_types))
        image_parts = min(triton.cdiv(self.batch, tile["B"]), triton.cdiv(PROGRAMS, self.num_types * child_parts))
        du = torch.empty_like(self.u)
        dweight = self.like.new_empty(self.num_types, child_parts * image_parts, *self.weight.shape[1:])
        _launch(
            linear_gradient, self.num_types * child_parts * image_parts, tile["J"] * tile["D"] * IMAGES,
            self.u, self.weight, c, ds, db, v, du, dweight, rows.num_children, rows.num_parents, self.batch, self.dim,
            self.height, self.run, *self.weight.stride()[:2], len(c), c.stride(0), ds.stride(0),
            child_parts, image_parts, **tile, PRODUCT=self.product,
        )  # fmt: skip
        return du, dweight.sum(1).to(self.weight.dtype)

    def _parts(self):
        """Room for the sums of each range of children, those of a parent one after the other."""
        return self.like.new_empty(self.rows.num_parents * self.ranges, self.batch, self.dim)

    def _over_children(self, x, before, after, c, parts, back):
        rows, tile = self.rows, self.tile
        by_type, by_parent = (0, 0) if self.weight is None else self.weight.stride()[:2]
        _launch(
            over_children, self.ranges * self.blocks, tile["B"] * tile["J"] * tile["D"],
            self.u, self.weight, x, before, after, c, parts, rows.num_children, rows.num_parents, self.batch, self.dim,
            self.height, self.run, by_type, by_parent, self.reach, self.blocks,
            **tile, PRODUCT=self.product, BACK=back,
        )  # fmt: skip


def _product(u) -> str:
    """How linear votes are multiplied: "tf32", "ieee" (float32), or "sum" (float64)."""
    if u.dtype != torch.float32:
        return "sum" if u.dtype == torch.float64 else "tf32"
    matmul = torch.backends.cuda.matmul
    newer = hasattr(matmul, "fp32_precision")  # where it was set, torch refuses to tell allow_tf32
    return "tf32" if (matmul.fp32_precision == "tf32" if newer else matmul.allow_tf32) else "ieee"
