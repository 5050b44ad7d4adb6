"""Whether the fused engine may be trusted on a GPU: it is tried there before ``auto`` takes it.

Nobody has run its kernels on every GPU, with every torch and Triton. So the first time that votes of some kind are to
be routed, small graphs of that kind are routed both ways, forward and backward, on the fused engine and, in float64, on
the dense one. Equal numbers, and the same bits in a second run, prove the engine for that kind. Anything else is said
in one warning, and the engine ``torch`` routes.

A large graph gives a program many children, and cuts parents into segments. A small one would do neither, so it is also
routed with fewer programs and shorter segments. Kernels are compiled for block sizes. Those of a batch are part of the
question, and of a graph's edges all that there can be are tried. So each kernel that ``auto`` starts has been tried,
unless a number that it is given is above 2^31, which is compiled for 64 bits.

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
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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

CHILDREN, EDGES, ITERATIONS = 24, 32, 3
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
        images: a small batch that is cut into blocks as the votes' own is.
        most_edges: the largest block of edges; 0 where no kernel has one.
    """

    routing: str
    votes: str
    dtype: str
    products: str
    num_parents: int
    parent_dim: int
    child_dim: int
    images: int
    most_edges: int


def question_of(routing: str, votes: Tensor | LinearVotes, num_parents: int, complete: bool) -> Question:
    """What to ask before ``votes`` are routed on a graph of so many parents."""
    from .fused.cuda.launch import batch_like, fits, largest_block, product

    linear = isinstance(votes, LinearVotes)
    u, numbers = (votes.u, votes.weight) if isinstance(votes, LinearVotes) else (votes, votes)
    child_dim, dim = numbers.shape[-2] if linear else 0, numbers.shape[-1]
    dtype, batch = str(numbers.dtype).removeprefix("torch."), math.prod(u.shape[1:-1])
    if not (complete and fits(num_parents, dim, child_dim)):
        linear, num_parents, child_dim = False, 0, 0
    kind = {2: "shared", 3: "per edge", 4: "per type"}[numbers.dim()] if linear else "given"
    tf32 = linear and numbers.dtype == torch.float32 and product(numbers) == "tf32"
    images, most = batch_like(batch, num_parents, dim), 0 if linear else largest_block(batch, dim)
    return Question(routing, kind, dtype, "tf32" if tf32 else dtype, num_parents, dim, child_dim, images, most)


def sizes(question: Question) -> list[int]:
    """How many edges, on average, the children and parents of each graph have that is tried: all blocks of edges.

    The last graph of votes that are routed child by child has parents of more edges than one block takes.
    """
    if not question.most_edges:
        return [CHILDREN]
    most = question.most_edges * (2 if question.num_parents else 1)
    return [2**n for n in range(most.bit_length())]


def small(question: Question, size: int, device: torch.device | str) -> tuple[DGLGraph, list[Tensor]]:
    """A graph of the kind that is asked about, and numbers for it: votes, or u and weight, and last the prior.

    Args:
        question: the kind.
        size: edges per parent, on average, and in a graph that isn't complete per child too.
        device: where the numbers are to be.
    """
    draw = torch.Generator().manual_seed(0)
    kind, dtype, num_parents, dim = question.votes, question.dtype, question.num_parents, question.parent_dim
    graph = complete_graph(size, num_parents) if num_parents else uneven_graph(max(EDGES, 4 * size), size, draw)
    edges, images = graph.num_edges(), question.images
    shapes, child_dim = [(edges, images, dim)], question.child_dim
    if kind != "given":
        matrices = {"per edge": (edges,), "per type": (2, num_parents), "shared": ()}[kind]
        shapes = [(size, images, child_dim), (*matrices, child_dim, dim)]
    scale = max(1, dim) ** -0.5 if kind == "given" else max(1, child_dim * dim) ** -0.25  # votes of length about 1
    numbers = [(2 * scale * torch.randn(shape, generator=draw)).to(device, getattr(torch, dtype)) for shape in shapes]
    prior = torch.randn(edges, images, generator=draw).to(device, torch.promote_types(numbers[0].dtype, torch.float32))
    return graph, [*numbers, prior]


def uneven_graph(edges: int, size: int, draw: torch.Generator) -> DGLGraph:
    """So many edges, ``size`` for each child and parent on average, some of them twice.

    A third are the first child's, and a third the second parent's. The last child and the first parent have none.
    """
    nodes, third = edges // size, edges // 3
    src, dst = (torch.randint(nodes - 1, (edges,), generator=draw) for _ in range(2))
    order = torch.randperm(edges, generator=draw)
    src[order[:third]] = 0
    dst[order[third : 2 * third]] = 0
    return bipartite_graph(src, dst + 1, nodes, nodes)


def routed(graph: DGLGraph, numbers: list[Tensor], engine: Callable, observed: bool = False) -> list[Tensor]:
    """v, and the gradients of ``numbers`` for a fixed cotangent; where it is ``observed``, without the prior's.

    An observer and a prior that doesn't learn need kernels of their own.
    """
    *votes, prior = [x.detach().requires_grad_() for x in numbers]
    leaves, b, watch = (votes, prior.detach(), _ignore) if observed else ([*votes, prior], prior, None)
    v, _ = engine(graph, LinearVotes(*votes) if len(votes) > 1 else votes[0], None, b, ITERATIONS, watch, True, None)
    cotangent = torch.randn(v.shape, generator=torch.Generator().manual_seed(1)).to(v)
    return [v.detach(), *torch.autograd.grad(v, leaves, cotangent)]


def _ignore(*state: object) -> None:
    pass


def trial(
    question: Question,
    device: torch.device | str,
    engine: Callable,
    exact: Callable,
    as_large: Callable[[], AbstractContextManager],
) -> str:
    """Route small graphs on ``engine``, and in float64 on ``exact``: "" where they agree, else what is wrong.

    Both are called as the table of engines says, ``engine(graph, votes, activation, b, iterations, ...)``.

    Args:
        question: the kind of votes.
        device: where they are routed.
        engine: what is tried.
        exact: what is believed.
        as_large: in this context ``engine`` cuts a small graph as it cuts a large one.

    Raises:
        torch.cuda.OutOfMemoryError: which says nothing of the engine.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if question.products == "tf32" else "highest")
    try:
        said = (_difference(question, size, device, engine, exact, as_large) for size in sizes(question))
        return next(filter(None, said), "")
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # of a compiler, a launch or a kernel: whatever it is, the engine doesn't run here
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    finally:
        torch.set_float32_matmul_precision(before)


def _difference(
    question: Question,
    size: int,
    device: torch.device | str,
    engine: Callable,
    exact: Callable,
    as_large: Callable[[], AbstractContextManager],
) -> str:
    """What is wrong on one graph."""
    graph, numbers = small(question, size, device)
    wanted = routed(graph, [x.double() for x in numbers], exact)
    first, second = (routed(graph, numbers, engine) for _ in range(2))
    observed = routed(graph, numbers, engine, observed=True)
    with as_large():  # a graph built anew, because an engine may keep how it has cut the other
        cut = routed(small(question, size, device)[0], numbers, engine)
    if any(not torch.equal(*pair) for pair in zip(first, second, strict=True)):
        return "a second run gives other numbers"
    names = ["the parents", *(f"the gradient of {name}" for name in _names(question))]
    most = TOLERANCE[question.products]
    for found, where in ((first, ""), (observed, " as observed"), (cut, " with few programs")):
        for name, got, right in zip(names, found, wanted, strict=False):  # observed has no gradient of the prior
            largest = float(right.abs().max()) or 1.0  # a prior's gradient is 0 where every child has one edge
            off = float((got.double() - right).abs().max()) / largest
            if not off <= most:  # as NaN isn't
                return f"{name}{where}: off by {off:.2g} of the largest number, where {most:g} is let through"
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
            encoding="utf-8",
            errors="replace",
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
        exact = functools.partial(engines.run, routing, "torch")
        verdict = trial(question, device, fused, exact, _as_large(device))  # type: ignore[arg-type]
    except RuntimeError:
        verdict = None
    print(json.dumps({"verdict": verdict}))


def _as_large(device: str) -> Callable[[], AbstractContextManager]:
    if torch.device(device).type != "cuda":
        return nullcontext
    from .fused.cuda.dynamic import few_programs

    return few_programs


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
        log.info("engine auto: trying 'fused' on %s, once; it compiles for a minute or two", here.get("device"))
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
