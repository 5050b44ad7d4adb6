"""``graphcaps bench``: measure, print, write JSON and draw."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import torch

from ..atomic import replacing, write_text
from ..errors import expect
from ..training.hardware import pick_device
from . import machine
from .busy import busy
from .gpu import gpu
from .inputs import FULL, SEED, Sizes
from .memory import memory
from .nodes import nodes
from .tables import plain, text
from .targets import judged, verdict
from .train import train
from .works import Setup, growth, routing, sparse

WORKS = {
    "routing": routing,
    "sparse": sparse,
    "train": train,
    "memory": memory,
    "growth": growth,
    "nodes": nodes,
    "busy": busy,
    "gpu": gpu,
}
ALL = tuple(name for name in WORKS if name != "gpu")  # whose routing is in the others
HOW = (
    "Each round runs every row once; times are medians over rounds, with quartiles; a ratio is the reference's median "
    "over the row's. Warmed up before. What claims the paper's algorithm was first held against naive, value and "
    "gradient, in float64, and against engine dgl on the very input."
)


def bench(
    work: str = "all",
    *,
    device: str = "auto",
    threads: int | None = None,
    to: Path = Path("figures-bench"),
    json_file: Path | None = None,
    sizes: Sizes | None = None,
    say: Callable[[str], object] = print,
) -> dict:
    """Measure one work or all, say what was found as it is found, and return all of it as plain data.

    Args:
        work: a key of ``WORKS``, or "all" but ``gpu``.
        device: "auto", "cpu" or "cuda".
        threads: of torch and of the engines; None: as many as torch takes. The trainings of ``busy`` choose their own.
        to: folder of the charts, one PNG per work that measured something.
        json_file: where all that was printed goes, written anew after each work.
        sizes: default: those of the targets.
        say: takes the lines.

    Raises:
        GraphcapsError: a formulation gives wrong numbers, or a file can't be written.
    """
    expect(work in ("all", *WORKS), "work", f"one of all, {', '.join(WORKS)}", repr(work))
    expect(device in ("auto", *FULL), "device", "auto, cpu or cuda", repr(device))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = pick_device(device)
    for path in [to / "chart.png", *([json_file] if json_file is not None else [])]:
        _check_writable(path)
    sizes = sizes or FULL[device]
    threads, allocator = machine.fix_threads(threads), machine.fix_allocator()
    about = machine.about(device, threads, allocator)
    say("\n".join(f"{name:<10} {value}" for name, value in about.items()))
    ceilings = machine.ceilings(device, sizes)
    said = f"copy {ceilings['copy_gb_s']:.1f} GB/s (bytes read and bytes written), GEMM "
    said += ", ".join(f"{name.split('_')[0]} {x:,.0f} GFLOP/s" for name, x in ceilings.items() if "gflop" in name)
    say(f"ceilings   {said}\n\n{HOW}")
    found: dict = {
        "format_version": 1,
        "command": f"graphcaps bench {work} --device {device} --threads {threads}",
        "machine": about,
        "ceilings": ceilings,
        "how": HOW,
        "sizes": dataclasses.asdict(sizes),
        "seed": SEED,
        "works": {},
    }
    for name in ALL if work == "all" else [work]:
        tables = []
        for table in WORKS[name](Setup(device, sizes, ceilings)):
            tables.append(table)
            say(f"\n{text(table)}")
        targets = judged(name, "cuda" if name == "gpu" else device, tables)
        found["works"][name] = {"tables": [plain(table) for table in tables], "targets": targets}
        say(_said(targets))
        if json_file is not None:
            write_text(json_file, json.dumps(found, indent=1) + "\n")
        if any(row.numbers for table in tables for row in table.rows):
            say(f"\n{_draw(name, found, to)}")
    return found


class _Enough(Exception):
    pass


def _check_writable(path: Path) -> None:
    """Raise ``GraphcapsError`` now rather than after minutes of measuring; the file stays as it is."""
    expect(not path.is_dir(), "path", "a file", f"the folder {path}")
    with contextlib.suppress(_Enough), replacing(path):
        raise _Enough


def _said(targets: list[dict]) -> str:
    lines = [f"  {verdict(t):<12}  {t['says']}: {t['said']}, wanted {t['wanted']}" for t in targets]
    return "\n" + "\n".join(["targets", *lines]) if lines else ""


def _draw(work: str, found: dict, to: Path) -> Path:
    from ..viz import bars, save

    path = to / f"{work}.png"
    save(bars(work, found), path)
    return path
