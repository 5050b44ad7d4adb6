"""Whether the fused engine may be trusted on a GPU: it is tried there before ``auto`` takes it.

Nobody has run its kernels on every GPU, with every torch and Triton. So the first time that votes of some kind are to
be routed, a small graph of that kind is routed both ways, forward and backward, on the fused engine and, in float64, on
the dense one. Equal numbers, and the same bits in a second run, prove the engine for that kind. Anything else is said
in one warning, and the engine ``torch`` routes.

    Question     what is asked: the kind of votes, and the sizes that kernels are compiled for
    trial        the two ways to route, and what their difference says; on any device, of any engine
    tried_apart  a trial in a process of its own, so that a kernel that crashes or hangs stops nothing else
    holds        the verdict, kept in the user's cache folder for this device, torch, Triton and these kernels
    proven       all of that, for votes that are about to be routed
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._dgl import DGLGraph
from .._version import __version__
from ..atomic import write_text
from ..errors import GraphcapsError
from ..graph import bipartite_graph, complete_graph
from .fused.user_cache import user_cache
from .votes import LinearVotes

log = logging.getLogger("graphcaps")

CHILDREN, IMAGES, ITERATIONS = 24, 19, 3  # more images than one product of matrices takes, and no power of two
PATIENCE = 600  # seconds that a trial may take, most of it compiling
# Of the largest number: a wrong index, mask or stride is off by about 1. Three iterations multiply an error by about
# 10. float32 has 24 bits, tf32 11, bfloat16 8; half precision is rounded once more where results are written.
TOLERANCE = {"float64": 1e-10, "float32": 1e-3, "tf32": 5e-2, "float16": 2e-2, "bfloat16": 5e-2}


class Question(NamedTuple):
    """A kind of votes, as far as kernels differ for it.

    Args:
        routing: name of the routing.
        votes: ``"given"``, or the weights of linear ones: ``"per edge"``, ``"per type"`` or ``"shared"``.
        dtype: of the votes.
        products: what float32 is multiplied in, ``"float32"`` or ``"tf32"``; the dtype where votes are of another.
        num_parents: J of a complete graph routed child by child; 0: any graph.
        parent_dim: D.
        child_dim: P of linear votes; 0 for given ones.
    """

    routing: str
    votes: str
    dtype: str
    products: str
    num_parents: int
    parent_dim: int
    child_dim: int


def question_of(routing: str, votes: Tensor | LinearVotes, num_parents: int, complete: bool) -> Question:
    """What to ask before ``votes`` are routed on a graph of so many parents."""
    from .fused.cuda.launch import fits, product

    linear = isinstance(votes, LinearVotes)
    numbers = votes.weight if isinstance(votes, LinearVotes) else votes
    child_dim = numbers.shape[-2] if linear else 0
    dtype = str(numbers.dtype).removeprefix("torch.")
    if not (complete and fits(num_parents, numbers.shape[-1], child_dim)):
        return Question(routing, "given", dtype, dtype, 0, numbers.shape[-1], 0)
    kind = {2: "shared", 3: "per edge", 4: "per type"}[numbers.dim()] if linear else "given"
    tf32 = linear and numbers.dtype == torch.float32 and product(numbers) == "tf32"
    return Question(routing, kind, dtype, "tf32" if tf32 else dtype, num_parents, numbers.shape[-1], child_dim)


def small(question: Question, device: torch.device | str) -> tuple[DGLGraph, list[Tensor]]:
    """A graph of the kind that is asked about, and numbers for it: votes, or u and weight, and last the prior."""
    draw = torch.Generator().manual_seed(0)
    _, kind, dtype, _, num_parents, dim, child_dim = question
    if num_parents:
        graph = complete_graph(CHILDREN, num_parents)
    else:  # some edges twice; the last child and the first parent have none
        src, dst = (torch.randint(*ends, (60,), generator=draw) for ends in ((0, 11), (1, 5)))
        graph = bipartite_graph(src, dst, 12, 5)
    edges = graph.num_edges()
    shapes = [(edges, IMAGES, dim)]
    if kind != "given":
        matrices = {"per edge": (edges,), "per type": (2, num_parents), "shared": ()}[kind]
        shapes = [(CHILDREN, IMAGES, child_dim), (*matrices, child_dim, dim)]
    scale = max(1, dim) ** -0.5 if kind == "given" else max(1, child_dim * dim) ** -0.25  # votes of length about 1
    numbers = [(2 * scale * torch.randn(shape, generator=draw)).to(device, getattr(torch, dtype)) for shape in shapes]
    prior = torch.randn(edges, IMAGES, generator=draw).to(device, torch.promote_types(numbers[0].dtype, torch.float32))
    return graph, [*numbers, prior]


def routed(graph: DGLGraph, numbers: list[Tensor], engine: Callable) -> list[Tensor]:
    """v, and the gradients of all ``numbers`` for a fixed cotangent."""
    *votes, prior = leaves = [x.detach().requires_grad_() for x in numbers]
    v, _ = engine(graph, LinearVotes(*votes) if len(votes) > 1 else votes[0], None, prior, ITERATIONS, None, True, None)
    cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1)).to(v)
    return [v.detach(), *torch.autograd.grad(v, leaves, cotangent)]


def trial(question: Question, device: torch.device | str, engine: Callable, exact: Callable) -> str:
    """Route a small graph on ``engine``, and in float64 on ``exact``: "" where they agree, else what is wrong.

    Both are called as the table of engines says, ``engine(graph, votes, activation, b, iterations, ...)``.

    Raises:
        torch.cuda.OutOfMemoryError: which says nothing of the engine.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if question.products == "tf32" else "highest")
    try:
        graph, numbers = small(question, device)
        wanted = routed(graph, [x.double() for x in numbers], exact)
        first, second = (routed(graph, numbers, engine) for _ in range(2))
        if any(not torch.equal(*pair) for pair in zip(first, second, strict=True)):
            return "a second run gives other numbers"
        names = ["the parents", *(f"the gradient of {name}" for name in _names(question))]
        most = TOLERANCE[question.products]
        for name, got, right in zip(names, first, wanted, strict=True):
            off = float((got.double() - right).abs().max() / right.abs().max())
            if not off <= most:  # as NaN isn't
                return f"{name}: off by {off:.2g} of the largest number, where {most:g} is let through"
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # of a compiler, a launch or a kernel: whatever it is, the engine doesn't run here
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    finally:
        torch.set_float32_matmul_precision(before)
    return ""


def _names(question: Question) -> list[str]:
    return [*(["the votes"] if question.votes == "given" else ["u", "weight"]), "the prior"]


def tried_apart(question: Question, device: torch.device) -> str | None:
    """``trial`` of the fused engine on ``device`` in a process of its own; None: it could not be tried."""
    paths = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    asked = [sys.executable, "-c", f"from {__name__} import main; main()", str(device), *map(str, question)]
    try:
        done = subprocess.run(
            asked,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return json.loads(done.stdout.splitlines()[-1])["verdict"]
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} seconds"
    except OSError:
        return None
    except (IndexError, KeyError, TypeError, ValueError):
        said = (done.stderr.splitlines() or [""])[-1][:200]
        return f"the trial ended with {done.returncode}: {said}"


def main() -> None:
    """The process of ``tried_apart``: device and question are its arguments, a line of JSON is its answer."""
    from . import engines

    device, routing, votes, dtype, products, *sizes = sys.argv[1:]
    question = Question(routing, votes, dtype, products, *map(int, sizes))
    verdict: str | None
    try:
        torch.zeros(1, device=device)  # busy, full or gone: no fault of the engine
        fused = engines.ROUTINGS[routing].fused
        verdict = trial(question, device, fused, functools.partial(engines.run, routing, "torch"))  # type: ignore[arg-type]
    except RuntimeError:
        verdict = None
    print(json.dumps({"verdict": verdict}))


def place(device: torch.device) -> dict[str, Any]:
    """What a verdict depends on beside the question: the device, and the programs that make and start kernels."""
    import triton

    sources = sorted((Path(__file__).parent / "fused" / "cuda").glob("*.py"))
    return {
        "device": torch.cuda.get_device_name(device),
        "capability": list(torch.cuda.get_device_capability(device)),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "triton": triton.__version__,
        "graphcaps": __version__,
        "kernels": hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest(),
    }


def holds(question: Question, here: dict[str, Any], ask: Callable[[Question], str | None], folder: Path | None) -> bool:
    """Whether the engine is proven for ``question`` in this place; what isn't known is asked, and kept in ``folder``.

    Where it isn't proven, that is said in a warning. What could not be asked (None) is not kept.
    """
    asked = question._asdict() | here
    name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    file = folder and folder / f"proof-{name}.json"
    verdict = _kept(file, asked) if file else None
    if verdict is None:
        log.info("engine auto: trying 'fused' on %s, once; it compiles for up to a minute", here.get("device"))
        verdict = ask(question)
        if file and verdict is not None:
            try:
                write_text(file, json.dumps({"asked": asked, "verdict": verdict}, indent=1))
            except GraphcapsError as error:
                log.info("the verdict isn't kept: %s", error)
    if verdict == "":
        return True
    what = f"engine auto: 'fused' did not pass its trial for {question.votes} votes of {question.routing} routing"
    why = "it could not be tried" if verdict is None else verdict
    again = f" Remove {file} to have it tried again." if file and verdict is not None else ""
    warnings.warn(f"{what} on {here.get('device')} ({why}); 'torch' routes.{again}", RuntimeWarning, stacklevel=2)
    return False


def _kept(file: Path, asked: dict[str, Any]) -> str | None:
    """The verdict in ``file``, or None where there is none that can be read and answers what is asked."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        verdict = found["verdict"]
        return verdict if found["asked"] == asked and isinstance(verdict, str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def proven(routing: str, votes: Tensor | LinearVotes, num_parents: int, complete: bool) -> bool:
    """Whether ``auto`` may route these votes, which are on CUDA, on the fused engine; tried once if that isn't known.

    While torch compiles or exports, no: the engine ``torch`` is what it can see into.
    """
    numbers = votes if isinstance(votes, Tensor) else votes.weight
    if torch.compiler.is_compiling() or not numbers.numel():
        return False
    device = votes.device if isinstance(votes, Tensor) else votes.u.device
    return _proven(question_of(routing, votes, num_parents, complete), device)


@functools.cache
def _proven(question: Question, device: torch.device) -> bool:
    try:
        folder = user_cache() / "proofs"
    except RuntimeError:  # no home
        folder = None
    return holds(question, place(device), functools.partial(tried_apart, device=device), folder)
