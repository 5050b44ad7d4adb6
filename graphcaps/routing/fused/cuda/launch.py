"""The order of the passes of dynamic routing on a GPU, by parent or by child, and what each kernel is launched with.

Block sizes follow from the shapes alone. They were chosen by counting the registers that the compiler uses and the
bytes that are read, not by timing; and they are not tuned where the program runs, because other blocks add in another
order, and two runs should give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from .kernels import couple, over_parents, squash_sums, votes_gradient
from .kernels_complete import linear_gradient, over_children

PROGRAMS = 528  # four for each of an H200's 132 processors; the same on every GPU, so that all cut sums alike
WIDEST_CHILD = 2048  # numbers of one child's votes for one image, padded, that are held in registers
WIDEST_WEIGHTS = 32768  # and of its weights
WIDEST_MATRIX = 8192  # and of one matrix, whose gradient is summed up in registers: with more of them, they spill
TILE = 2048  # numbers in a program's tile of votes
GRADIENT_TILE = 2048  # numbers of the matrices whose gradient a program sums up; half of that in full precision
IMAGES = 16  # images, and at least as many rows and columns, that `tl.dot` multiplies at once: it takes no fewer
MOST_SHARED, LEAST_SHARED = 227 * 1024, 64 * 1024  # bytes of an H200's program, and of one on any GPU since Turing

Seen = Callable[[int, torch.Tensor], None]
OptionalTensor = torch.Tensor | None


@dataclass(frozen=True)
class EdgesByParent:
    """A graph's edges sorted by parent and cut into segments, and the way from each child to its edges, on one device.

    ``k`` counts the edges by parent. Index arrays are int32 where the number of edges allows.
    """

    num_children: int
    num_parents: int
    complete: bool  # every child linked once to every parent, source-major
    eid: torch.Tensor  # (E,) edge k in the graph's order
    segment_starts: torch.Tensor  # (S + 1,) first k of each segment
    segment_parents: torch.Tensor  # (S,) parent of each segment
    part_starts: torch.Tensor  # (J + 1,) first segment of each parent
    child_starts: torch.Tensor  # (I + 1,) first of each child in ``positions``
    positions: torch.Tensor  # (E,) k of each edge, sorted by child

    def in_edge_order(self, values: torch.Tensor) -> torch.Tensor:
        """(E, ...) values in the order of k -> in the graph's edge order."""
        return torch.empty_like(values).index_copy_(0, self.eid.long(), values)


def fits(num_parents: int, parent_dim: int, child_dim: int = 0) -> bool:
    """Whether a child's votes for all parents, and its weights where votes are linear, are few enough for `ByChild`."""
    child, matrix_rows = _padded(num_parents) * _padded(parent_dim), max(IMAGES, _padded(child_dim))
    if child > WIDEST_CHILD or child_dim == 0:
        return child <= WIDEST_CHILD
    return child * matrix_rows <= WIDEST_WEIGHTS and _padded(parent_dim) * matrix_rows <= WIDEST_MATRIX


def by_iteration(like: torch.Tensor, iterations: int, *shape: int) -> torch.Tensor:
    """Room for ``iterations`` tensors of ``shape``, each of which starts at a multiple of 16 numbers.

    Kernels are compiled anew for tensors that don't start at a multiple of 16 bytes.
    """
    numbers = math.prod(shape)
    return like.new_empty(iterations, triton.cdiv(numbers, 16) * 16)[:, :numbers].view(iterations, *shape)


def _step(x: torch.Tensor) -> int:
    """Numbers from one iteration of x to the next; where there is only one, some multiple of 16 as for several."""
    return x.stride(0) if len(x) > 1 else 16


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have on ``device``."""
    if device.type != "cuda":
        return MOST_SHARED
    found = torch.cuda.get_device_properties(device)
    return getattr(found, "shared_memory_per_block_optin", LEAST_SHARED)  # torch before 2.4 doesn't say


def shared_for_votes(tile: dict[str, int], size: int) -> int:
    """Bytes that `over_children` may need to make votes in one product: twice its factors, of ``size`` bytes a number.

    Counted from what Triton 3.9 takes, which is up to a tenth less; test_fused_gpu.py compiles and compares.
    """
    matrices, children = tile["P"] * tile["J"] * tile["D"], tile["B"] * tile["P"]
    return 2 * size * (matrices + tile["J"] * tile["D"] + children) + 1024


def _padded(size: int, most: int = 2**31) -> int:
    return min(triton.next_power_of_2(size), most)


def _launch(kernel: Any, programs: int, tile: int, **arguments: Any) -> None:
    """Run ``programs`` programs, each of as many warps as leave 16 numbers of the tile to a thread."""
    like = next(value for value in arguments.values() if isinstance(value, torch.Tensor))
    with torch.cuda.device_of(like):
        kernel[(programs,)](**arguments, num_warps=min(16, max(1, tile // 512)), enable_fp_fusion=True)


def _squash_sums(
    parts: torch.Tensor, part_starts: OptionalTensor, s: torch.Tensor, out: torch.Tensor, back: bool
) -> None:
    """The parents, or going back ds, of partial sums (.., B, D): those of j from starts[j] on, or equally many each."""
    num_parents, batch, parent_dim = s.shape
    images = _padded(batch, max(1, 256 // _padded(parent_dim)))
    blocks = triton.cdiv(batch, images)
    _launch(
        squash_sums,
        num_parents * blocks,
        TILE,
        parts=parts,
        part_starts=part_starts,
        parts_per_parent=len(parts) // num_parents,
        s=s,
        out=out,
        batch=batch,
        parent_dim=parent_dim,
        image_blocks=blocks,
        K=8,
        B=images,
        D=_padded(parent_dim),
        BACK=back,
    )


class ByParent:
    """Given votes on any graph: a program reads the in-edges of a parent, settles it, and reads them once more.

    The second reading, for the agreement, comes from the cache; a parent of very many in-edges is cut into segments,
    whose sums are settled in between, so that it keeps more than one program busy.

    Args:
        votes: (E, B, D) in the graph's edge order.
        edges: the graph's index arrays.
        like: a tensor of the dtype in which sums are taken.
    """

    def __init__(self, votes: torch.Tensor, edges: EdgesByParent, like: torch.Tensor) -> None:
        self.votes, self.edges, self.like = votes, edges, like
        self.batch, self.parent_dim = votes.shape[1:]
        wide = _padded(self.parent_dim)
        images = _padded(self.batch, max(1, 64 // wide))
        of_parent = _padded(max(1, len(edges.eid) // edges.num_parents), max(1, TILE // (images * wide)))
        self.tile = {"K": of_parent, "B": images, "D": wide}
        self.blocks = triton.cdiv(self.batch, images)

    def forward(self, b: torch.Tensor, c: torch.Tensor, s: torch.Tensor, v: torch.Tensor, seen: Seen) -> None:
        """Fill c, s and v of all iterations from the logits b; ``seen(r, b)`` is called when each is done."""
        for r in range(len(c)):
            self._couple(c[r], before=b)
            upcoming = torch.empty_like(b) if r < len(c) - 1 else None
            self._over_parents(c[r], s[r], v[r], before=b, after=upcoming)
            seen(r, b)
            if upcoming is not None:
                b = upcoming

    def agreement(self, v: torch.Tensor) -> torch.Tensor:
        """<u_hat, v> (E, B)."""
        agreement = v.new_empty(len(self.edges.eid), self.batch)
        self._over_segments(out=v, after=agreement)
        return agreement

    def backward(self, c: torch.Tensor, s: torch.Tensor, ds: torch.Tensor, db: torch.Tensor, since: int) -> None:
        """Fill ds of all iterations but the last, which is given, and db from iteration ``since`` on."""
        above, dc = None, torch.empty_like(c[0])
        for r in reversed(range(since, len(c))):
            if r == len(c) - 1:
                self._over_segments(out=ds[r], after=dc, back=True)
            self._couple(c[r], before=above, dc=dc, after=db[r])
            above = db[r]
            if r > 0:
                self._over_parents(above, s[r - 1], ds[r - 1], after=dc if r > since else None, back=True)

    def gradient(
        self, c: torch.Tensor, ds: torch.Tensor, db: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, OptionalTensor]:
        """The gradient of the votes, and None for a weight."""
        edges, tile, du = self.edges, self.tile, torch.empty_like(self.votes)
        _launch(
            votes_gradient,
            len(edges.segment_parents) * self.blocks,
            tile["K"] * tile["B"] * tile["D"],
            c=c,
            ds=ds,
            db=db,
            v=v,
            du=du,
            **self._constants(),
            iterations=len(c),
            c_stride=_step(c),
            ds_stride=_step(ds),
        )
        return du, None

    def _over_parents(
        self,
        weights: torch.Tensor,
        s: torch.Tensor,
        out: torch.Tensor,
        before: OptionalTensor = None,
        after: OptionalTensor = None,
        back: bool = False,
    ) -> None:
        """Sum up and squash all parents, and multiply the votes with them."""
        edges = self.edges
        if len(edges.segment_parents) == edges.num_parents:
            self._over_segments(weights=weights, s=s, out=out, before=before, after=after, back=back)
            return
        parts = self.like.new_empty(len(edges.segment_parents), self.batch, self.parent_dim)
        self._over_segments(weights=weights, parts=parts, out=out, back=back)
        _squash_sums(parts, edges.part_starts, s, out, back)
        if after is not None:
            self._over_segments(out=out, before=before, after=after, back=back)

    def _over_segments(
        self,
        out: torch.Tensor,
        weights: OptionalTensor = None,
        parts: OptionalTensor = None,
        s: OptionalTensor = None,
        before: OptionalTensor = None,
        after: OptionalTensor = None,
        back: bool = False,
    ) -> None:
        tile = self.tile
        _launch(
            over_parents,
            len(self.edges.segment_parents) * self.blocks,
            tile["K"] * tile["B"] * tile["D"],
            votes=self.votes,
            weights=weights,
            parts=parts,
            s=s,
            out=out,
            before=before,
            after=after,
            **self._constants(),
            BACK=back,
        )

    def _constants(self) -> dict[str, Any]:
        """What both kernels of this class are launched with."""
        edges = self.edges
        arrays = {
            "eid": edges.eid,
            "segment_starts": edges.segment_starts,
            "segment_parents": edges.segment_parents,
        }
        sizes = {"batch": self.batch, "parent_dim": self.parent_dim, "image_blocks": self.blocks}
        return arrays | sizes | self.tile

    def _couple(
        self,
        c: torch.Tensor,
        before: OptionalTensor,
        dc: OptionalTensor = None,
        after: OptionalTensor = None,
    ) -> None:
        edges = self.edges
        images = _padded(self.batch, 16)
        of_child = _padded(max(1, len(edges.eid) // edges.num_children), 512 // images)
        children = 512 // (images * of_child)
        blocks = triton.cdiv(self.batch, images)
        _launch(
            couple,
            triton.cdiv(edges.num_children, children) * blocks,
            1024,
            c=c,
            before=before,
            dc=dc,
            after=after,
            child_starts=edges.child_starts,
            positions=edges.positions,
            num_children=edges.num_children,
            batch=self.batch,
            image_blocks=blocks,
            C=children,
            K=of_child,
            B=images,
            BACK=dc is not None,
        )


class ByChild:
    """Votes on a complete graph of few parents: a program has all votes of a child at once, given or made there.

    So one reading of given votes does all that an iteration needs of them, and linear ones are never written.

    Args:
        u: (E, B, D) votes, or with ``weight`` the children (I, B, P).
        weight: None, or (T, J, P, D), where each type has I / T neighbouring children.
        edges: the graph's index arrays.
        like: a tensor of the dtype in which sums are taken.
    """

    def __init__(self, u: torch.Tensor, weight: OptionalTensor, edges: EdgesByParent, like: torch.Tensor) -> None:
        self.u, self.weight, self.edges, self.like = u, weight, edges, like
        self.batch, self.child_dim = u.shape[1:]
        self.parent_dim = self.child_dim if weight is None else weight.shape[-1]
        self.num_types = 1 if weight is None else len(weight)
        self.children_per_type = edges.num_children // self.num_types
        self.product = product(u)
        parents = _padded(edges.num_parents)
        wide = _padded(self.parent_dim) if weight is None else max(_padded(self.parent_dim), IMAGES // parents)
        images = _padded(self.batch, max(1, TILE // (parents * wide)))
        rows = 1 if weight is None else max(IMAGES, _padded(self.child_dim))
        self.tile = {"B": images, "J": parents, "D": wide, "P": rows}
        self.gradient_tile = _gradient_tile(self.tile, self.product)
        self.votes_product = self.product
        if weight is not None and self.product == "tf32":
            at_once = self.tile | {"B": IMAGES}
            if shared_for_votes(at_once, u.element_size()) <= shared_memory(u.device):
                self.tile = at_once
            else:
                self.votes_product = "ieee"  # a row of the matrices at a time
        self.blocks = triton.cdiv(self.batch, self.tile["B"])
        self.children_per_program = triton.cdiv(edges.num_children, max(1, PROGRAMS // self.blocks))
        self.ranges = triton.cdiv(edges.num_children, self.children_per_program)

    def forward(self, b: torch.Tensor, c: torch.Tensor, s: torch.Tensor, v: torch.Tensor, seen: Seen) -> None:
        """Fill c, s and v of all iterations from the logits b; ``seen(r, b)`` is called when each is done."""
        parts = self._parts()
        for r in range(len(c)):
            last, upcoming = (v[r - 1], torch.empty_like(b)) if r > 0 else (None, b)
            self._over_children(last, before=b, after=upcoming, c=c[r], parts=parts)
            _squash_sums(parts, None, s[r], v[r], back=False)
            b = upcoming
            seen(r, b)

    def agreement(self, v: torch.Tensor) -> torch.Tensor:
        """<u_hat, v> (E, B)."""
        agreement = v.new_empty(len(self.edges.eid), self.batch)
        self._over_children(v, before=None, after=agreement, c=torch.empty_like(agreement), parts=None)
        return agreement

    def backward(self, c: torch.Tensor, s: torch.Tensor, ds: torch.Tensor, db: torch.Tensor, since: int) -> None:
        """Fill ds of all iterations but the last, which is given, and db from iteration ``since`` on."""
        above, parts = None, self._parts()
        for r in reversed(range(since, len(c))):
            self._over_children(ds[r], before=above, after=db[r], c=c[r], parts=parts if r > 0 else None, back=True)
            if r > 0:
                _squash_sums(parts, None, s[r - 1], ds[r - 1], back=True)
            above = db[r]

    def gradient(
        self, c: torch.Tensor, ds: torch.Tensor, db: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, OptionalTensor]:
        """The gradients of the votes and None, or of u and weight."""
        if self.weight is None:
            return ByParent(self.u, self.edges, self.like).gradient(c, ds, db, v)
        tile = self.gradient_tile
        parent_blocks = triton.cdiv(self.edges.num_parents, tile["J"])
        share = triton.cdiv(PROGRAMS, self.num_types * parent_blocks)  # of the programs, for each block and type
        child_parts = min(self.children_per_type, share)
        image_parts = min(triton.cdiv(self.batch, tile["B"]), triton.cdiv(share, child_parts))
        du = torch.empty_like(self.u)
        sums = du if parent_blocks == 1 else self.like.new_empty(parent_blocks, *du.shape)
        dweight = self.like.new_empty(self.num_types, child_parts * image_parts, *self.weight.shape[1:])
        _launch(
            linear_gradient,
            self.num_types * child_parts * image_parts * parent_blocks,
            2 * tile["J"] * tile["D"] * tile["P"],
            u=self.u,
            c=c,
            ds=ds,
            db=db,
            v=v,
            du=sums,
            dweight=dweight,
            **self._constants(),
            PRODUCT=self.product,
            iterations=len(c),
            c_stride=_step(c),
            ds_stride=_step(ds),
            child_parts=child_parts,
            image_parts=image_parts,
            parent_blocks=parent_blocks,
            **tile,
        )
        if parent_blocks > 1:
            du = sums.sum(0).to(du.dtype)
        return du, dweight.sum(1).to(self.weight.dtype)

    def _parts(self) -> torch.Tensor:
        """Room for the sums of each range of children, those of a parent one after the other."""
        return self.like.new_empty(self.edges.num_parents * self.ranges, self.batch, self.parent_dim)

    def _over_children(
        self,
        parents: OptionalTensor,
        before: OptionalTensor,
        after: torch.Tensor,
        c: torch.Tensor,
        parts: OptionalTensor,
        back: bool = False,
    ) -> None:
        tile = self.tile
        _launch(
            over_children,
            self.ranges * self.blocks,
            tile["B"] * tile["J"] * tile["D"],
            votes=self.u,
            parents=parents,
            before=before,
            after=after,
            c=c,
            parts=parts,
            **self._constants(),
            children_per_program=self.children_per_program,
            image_blocks=self.blocks,
            **tile,
            PRODUCT=self.votes_product,
            BACK=back,
        )

    def _constants(self) -> dict[str, Any]:
        """What both kernels of this class are launched with."""
        type_stride, parent_stride = (0, 0) if self.weight is None else self.weight.stride()[:2]
        return {
            "weight": self.weight,
            "num_children": self.edges.num_children,
            "num_parents": self.edges.num_parents,
            "batch": self.batch,
            "parent_dim": self.parent_dim,
            "child_dim": self.child_dim,
            "children_per_type": self.children_per_type,
            "type_stride": type_stride,
            "parent_stride": parent_stride,
        }


def _gradient_tile(tile: dict[str, int], factors: str) -> dict[str, int]:
    """The tile of `linear_gradient`: parents in blocks of as many as make GRADIENT_TILE numbers of their matrices."""
    wide, child_dim = tile["D"], tile["P"]
    most = GRADIENT_TILE // 2 if factors == "ieee" else GRADIENT_TILE
    parents = min(tile["J"], max(1, most // (wide * child_dim)))
    return {"B": 1 if factors == "sum" else IMAGES, "J": parents, "D": max(wide, IMAGES // parents), "P": child_dim}


def product(u: torch.Tensor) -> str:
    """How linear votes are multiplied: "tf32", "ieee" (float32), or "sum" (float64)."""
    if u.dtype != torch.float32:
        return "sum" if u.dtype == torch.float64 else "tf32"
    matmul = torch.backends.cuda.matmul
    newer = hasattr(matmul, "fp32_precision")  # where it was set, torch refuses to tell allow_tf32
    return "tf32" if (matmul.fp32_precision == "tf32" if newer else matmul.allow_tf32) else "ieee"
