"""Dispatch of calls to the kernels: ``needs`` checks whether they can route a call, and ``sums`` routes it.

They run all iterations of a routing, with one pass over the votes in each; ``exchange`` is one iteration of
``BeliefConv``, for which ``needs_for_beliefs`` checks calls. Numba compiles them for a CPU, Triton for a GPU.
``cpu/README.md`` contains the derivation, the notation and a reading order. The kernels are imported on first use,
because Numba takes half a second to import, and not every machine has Triton.
"""

import functools
import importlib.util
import math
import os
from typing import NamedTuple

import torch
from torch import Tensor

from ..algorithms.rule import Rule
from ..algorithms.votes import GivenVotes, LinearVotes, NodeVotes, Votes
from ..graph import Links
from ..tracing import is_exported, is_tracing
from .operators import KernelError

MAX_WIDTH = 256  # numbers in a capsule: it is one SIMD vector, and the time to compile grows with its width
MAX_NODE_NUMBERS = 1024  # limit of K * D, because the time to compile a kernel grows with it
MAX_BELIEFS = 128  # the same for the states of all capsules of a node
MAX_IMAGES = 65_535 * 64  # a grid of CUDA has at most 65,535 tiles in its second dimension, and a tile 64 images
HALF = torch.bfloat16, torch.float16
_failures: dict[tuple, str] = {}  # the kinds of calls whose kernels Triton could not compile or load, and its errors


class Sums(NamedTuple):
    """The result of ``sums``."""

    s: Tensor
    """(J, *, D), the last sums; of nodes (N, K, D)."""
    coupling: Tensor | None
    """The last couplings in edge order, (E, *) or of nodes (E, K), detached; None unless wanted."""
    v: Tensor | None = None
    """squash(s), or of nodes what ``NodeVotes.finish`` describes, if the kernels compute it."""


def needs(links: Links, votes: Votes, rule: Rule | None) -> str:
    """Return what the kernels need that this call isn't, such as "a complete graph on CUDA"; "" if they can route it.

    Kernels for a layer route ``GivenVotes`` and ``LinearVotes``, kernels for the nodes of a graph ``NodeVotes``.
    """
    if is_tracing() and (is_exported() or not torch.compiler.is_dynamo_compiling()):
        return "a call that torch doesn't export or transform"
    if rule is None:
        return "a routing with a rule, as Dynamic, Uniform, Spherical and Attention have one"
    is_cuda = on_gpu(votes)
    if reason := _needs_for_device(votes, "votes", _kind_of_call(votes, rule)):
        return reason
    if is_cuda and links.num_edges >= 1 << 31:
        return "a graph of fewer than 2**31 edges on CUDA"
    if isinstance(votes, NodeVotes):
        return _needs_for_nodes(votes, rule, is_cuda)
    if not isinstance(votes, (GivenVotes, LinearVotes)):
        return "a tensor of votes, or LinearVotes"
    if not is_cuda:
        return "" if max(votes.u.shape[-1], votes.dim) <= MAX_WIDTH else f"capsules of at most {MAX_WIDTH} numbers"
    if not links.complete:
        return "a complete graph on CUDA"
    if rule.kind == "sums" or votes.dtype == torch.float64:
        return "Dynamic, Uniform or Spherical on CUDA, in float32, bfloat16 or float16"
    if votes.dim > 64 or (isinstance(votes, LinearVotes) and votes.u.shape[-1] > 32):
        return "votes of at most 64 numbers on CUDA, and children of at most 32 in LinearVotes"
    return "" if math.prod(votes.trailing) <= MAX_IMAGES else f"at most {MAX_IMAGES:,} images on CUDA"


def _needs_for_device(x: Votes | Tensor, name: str, kind: tuple) -> str:
    if on_gpu(x):
        if not has_triton():
            return "Triton on CUDA, with torch 2.8 or later"
        error = _failures and _failures.get(kind)
        return f"kernels that Triton can compile and load here ({error})" if error else ""
    if x.device.type != "cpu":
        return f"{name} on the CPU or on CUDA"
    compiles = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
    return "" if compiles else "Numba's compiler, which the variable NUMBA_DISABLE_JIT turns off"


def _needs_for_nodes(votes: NodeVotes, rule: Rule, is_cuda: bool) -> str:
    if rule.kind == "sums":
        return "another routing than Attention"
    if is_cuda and rule.kappa is not None and rule.kappa.dim():
        return "one kappa for all capsules on CUDA"
    if votes.prior is not None and is_cuda:
        return "votes without a prior on CUDA"
    fits = votes.u.dim() == 3 and votes.num_caps * votes.dim <= MAX_NODE_NUMBERS
    dtypes = (torch.float32, *HALF) if is_cuda else (torch.float32, torch.float64, *HALF)
    wanted = f"votes (N, K, D) with K * D <= {MAX_NODE_NUMBERS}, on CUDA not in float64"
    return "" if fits and votes.dtype in dtypes else wanted


def needs_for_beliefs(links: Links, z: Tensor) -> str:
    """Return what the kernels of ``BeliefConv`` need that logits z (N, K, D) aren't, as ``needs`` does."""
    if links.traced or is_tracing():
        return "a call that torch doesn't trace"
    if reason := _needs_for_device(z, "beliefs", _kind_of_beliefs(z)):
        return reason
    return "" if z.shape[1] * z.shape[2] <= MAX_BELIEFS else f"num_caps * out_feats <= {MAX_BELIEFS}"


def _kind_of_call(votes: Votes, rule: Rule) -> tuple:
    return type(votes), votes.u.shape[-1], votes.dim, votes.dtype, rule.kind


def _kind_of_beliefs(z: Tensor) -> tuple:
    return "beliefs", z.shape[1:], z.dtype


def sums(
    links: Links,
    votes: Votes,
    rule: Rule,
    prior: Tensor | None = None,
    mutual: bool = False,
    coupling: bool = False,
    half: torch.dtype | None = None,
) -> Sums:
    """Run a rule's iterations. The sums are at least as precise as float32.

    Args:
        links, votes, rule: a call for which ``needs`` returns "".
        prior: logits (E, *) in the dtype of the computation, for votes other than ``NodeVotes``.
        mutual: for ``NodeVotes``, whether the two directions of an edge share their logits.
        coupling: whether to return couplings.
        half: the dtype in which kernels on a GPU may multiply float32 votes.

    Raises:
        KernelError: Triton can't compile or load the kernels. From then on, ``needs`` refuses such calls.
    """
    is_cuda = on_gpu(votes)
    try:
        if isinstance(votes, NodeVotes):
            if is_cuda:
                from .gpu.nodes import sums_by_node
            else:
                from .cpu.by_node import sums_by_node
            return sums_by_node(links, votes, rule, mutual, coupling)
        assert prior is not None
        if is_cuda:
            from .gpu.dense import sums_on_complete

            return Sums(*sums_on_complete(links, votes, rule, prior, coupling, half))
        from .cpu.by_child import sums_by_child

        return Sums(*sums_by_child(links, votes.to(prior.dtype), rule, prior, coupling))
    except KernelError as error:
        _failures[_kind_of_call(votes, rule)] = error.cause
        raise


def exchange(base: Tensor, m: Tensor, *numbers: Tensor) -> list[Tensor]:
    """Run an iteration of ``BeliefConv`` for which ``needs_for_beliefs`` returns "", with `cpu.beliefs`' arguments.

    Raises:
        KernelError: as ``sums``.
    """
    try:
        if on_gpu(base):
            from .gpu.beliefs import exchange as run
        else:
            from .cpu.beliefs import exchange as run
        return run(base, m, *numbers, settings=[])
    except KernelError as error:
        _failures[_kind_of_beliefs(base)] = error.cause
        raise


def prepare(links: Links, mutual: bool) -> None:
    """Compute the orders of edges that routing among nodes reads, before a program that torch traces needs them."""
    links.by_parent(mutual)  # reads, and so computes, in_degrees and with mutual the reverses
    if links.device.type == "cuda" and has_triton():
        from .gpu.nodes import edges_by_node

        edges_by_node(links, mutual)


def on_gpu(x: Votes | Tensor) -> bool:
    """Whether Triton's kernels compute with these votes or beliefs, not Numba's."""
    return x.device.type == "cuda"


@functools.cache
def has_triton() -> bool:
    """Whether Triton can compile all kernels. Releases before 3.4, which came with torch 2.8, can't."""
    return torch.__version__ >= "2.8" and importlib.util.find_spec("triton") is not None
