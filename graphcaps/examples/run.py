"""``graphcaps example``: read, train, print, write JSON."""

from __future__ import annotations

import json
import platform
import shlex
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from graphcaps import __version__, dgl
from graphcaps.atomic import write_text
from graphcaps.data.graphs.cora import load_cora
from graphcaps.data.graphs.tu import load_graphs
from graphcaps.errors import check_whole, expect
from graphcaps.examples import cora, molecules, table, trials
from graphcaps.progress import bar
from graphcaps.trace.graph_trace import FILE_NAME

SEEDS = {"cora": 20, "mutag": 1, "proteins": 1}
EPOCHS = {"mutag": 100, "proteins": 40}
QUICK = "A quick look, to see that it runs: a few epochs each, numbers that mean nothing."


def example(
    name: str,
    *,
    data: Path = Path("data"),
    seeds: int | None = None,
    quick: bool = False,
    json_file: Path | None = None,
    out: Path = Path("runs"),
    say: Callable[[str], object] = print,
) -> dict:
    """Run one example and say what it found.

    Args:
        name: a key of ``SEEDS``.
        data: folder with ``cora/`` or ``tu/``; what is missing is downloaded there.
        seeds: trainings of what was chosen (cora), or of each setting on each fold; default: ``SEEDS``.
        quick: a few epochs each, to see that it runs; the numbers mean nothing.
        json_file: where the result goes.
        out: mutag's folder, which holds the routing of some test graphs for ``graphcaps viz``, is made in it; a quick
            look has a folder of its own.
        say: takes the lines.

    Returns:
        what ``cora.run`` or ``molecules.run`` returns, with the command, the time and the machine.

    Raises:
        InputError: another name, no seed, or a training run in mutag's folder.
        GraphcapsError: no data, a file that isn't what it should be, or a training that diverged.
    """
    expect(name in SEEDS, "example", f"one of {', '.join(SEEDS)}", repr(name))
    seeds = seeds if seeds is not None else 1 if quick else SEEDS[name]
    check_whole("seeds", seeds)
    folder = out / (f"{name}-quick" if quick else name)
    if name == "mutag":
        then = f"Name another folder than {out} with --out DIR"
        trained = (folder / "config.json").exists()
        expect(not trained, "out", f"no training run in {folder}, where the molecules' routing goes", "one", then)
    if quick:
        say(QUICK)
    start = time.perf_counter()
    graphs = None if name == "cora" else load_graphs(name.upper(), data)
    if graphs is None:
        train = partial(cora.run, load_cora(data), seeds, quick)
    else:
        train = partial(molecules.run, graphs, seeds, EPOCHS[name], quick)
    with bar(f"{name}: training") as on_share:
        found = train(on_share)
    result = {
        "format_version": 1,
        "example": name,
        "command": f"graphcaps example {name}" + f" --seeds {seeds}" * (seeds != SEEDS[name]) + " --quick" * quick,
        **found,
        "minutes": (time.perf_counter() - start) / 60,
        "processes": 1 if quick else trials.cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__, "dgl": dgl.__version__},
    }
    if json_file is not None:
        write_text(json_file, json.dumps(result, indent=1) + "\n")
    say("\n".join(table.lines(result)))
    if graphs is not None and name == "mutag":
        settings = next(row for row in found["rows"] if row["name"] == "capsules")["settings"][0]
        trace = molecules.trace(graphs, settings, 2 if quick else EPOCHS[name])
        trace.save(folder / FILE_NAME)
        say(f"test molecules to draw: {table.answers(trace)}")
        say(f"next: graphcaps viz {shlex.quote(str(folder))}")
    return result
