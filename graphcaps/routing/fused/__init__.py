"""The fused engine: routing in as few passes over the votes as there are iterations, by Numba or by Triton.

Numba runs it on the CPU. On CUDA it is Triton, with kernels that were tested through Triton's interpreter and compiler
but have never run on a GPU: there `"auto"` tries the engine first, and ``engine="fused"`` takes it untried.
README.md beside this file has the derivation, the notation and the order in which to read the files.
"""

from __future__ import annotations

import importlib
import importlib.util

import torch
from torch import Tensor

from ..edge_ops import repeated
from ..votes import LinearVotes, MatrixVotes

WIDEST = 256  # numbers per capsule: a row is one vector, and its compile time grows with its width
MODULES = {
    "cpu": "cpu.dynamic",
    "cuda": "cuda.dynamic",
}  # by device; Numba takes half a second to import, Triton as long


def why_not(votes: Tensor | LinearVotes | MatrixVotes, routing: str, devices: tuple[str, ...]) -> str:
    """What the engine would need to run ``routing`` on these votes, or "" where it can; it has it on ``devices``."""
    matrices = isinstance(votes, MatrixVotes)
    u = votes if isinstance(votes, Tensor) else votes.u
    if u.device.type not in devices:
        if u.device.type in MODULES or matrices:
            return f"votes on the CPU for {'products of matrices' if matrices else f'{routing} routing'}"
        return "votes on the CPU or on CUDA"
    if u.device.type == "cuda" and (lacking := without_triton(u.device)):
        return lacking
    widest = votes.shape[-1] if isinstance(votes, Tensor) else max(votes.weight.shape[-2:])
    return "" if widest <= WIDEST else f"capsules of at most {WIDEST} numbers"


def without_triton(device: torch.device | str) -> str:
    """What CUDA ``device`` would need for Triton's kernels to run there, or "" where they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton, which comes with torch on Linux,"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (7, 0):
        return "a GPU of compute capability 7.0 or more"
    return ""


def dynamic(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Dynamic routing of votes (E, *, D), or of ``LinearVotes``, built only where the engine of a device says so.

    Votes may be of half precision, with float32 logits b; parents are then float32. On the CPU they are widened first.
    """
    engine = importlib.import_module(f".{MODULES[b.device.type]}", __name__)
    return engine.dynamic(graph, votes, activation, b, iterations, on_iteration, squash_output)


def nobody(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """``dynamic`` where children may be nobody's, on the CPU."""
    engine = importlib.import_module(".cpu.dynamic", __name__)
    return engine.nobody(graph, votes, activation, b, iterations, on_iteration, squash_output)


def uniform(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Uniform coupling: dynamic routing's first pass."""
    return dynamic(graph, votes, activation, b, 1, repeated(on_iteration, iterations), squash_output)


def attention(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Self-attention routing (``attention``) of the same votes, on the CPU."""
    engine = importlib.import_module(".cpu.attention", __name__)
    return engine.attention(graph, votes, activation, b, iterations, on_iteration, squash_output)


def spherical(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """Spherical routing of the same votes, on the CPU."""
    engine = importlib.import_module(".cpu.spherical", __name__)
    return engine.spherical(graph, votes, activation, b, iterations, on_iteration, squash_output, parameters)


def matrix_em(graph, votes, activation, b, iterations, on_iteration, squash_output=True, parameters=None):
    """EM routing of ``MatrixVotes``, on the CPU."""
    engine = importlib.import_module(".cpu.em", __name__)
    return engine.em(graph, votes, activation, b, iterations, on_iteration, squash_output, parameters)
