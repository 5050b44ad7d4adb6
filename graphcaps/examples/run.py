"""``graphcaps example``: read, train, print, write JSON."""

from __future__ import annotations

import json
import platform
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from graphcaps import __version__, dgl
from graphcaps.atomic import write_text
from graphcaps.data.graphs.cora import load_cora
from graphcaps.data.graphs.motifs import MOTIFS
from graphcaps.data.graphs.tu import load_graphs
from graphcaps.errors import check_whole, expect
from graphcaps.examples import cora, factors, molecules, motifs, table, trials
from graphcaps.progress import bar

SEEDS = {"cora": 20, "mutag": 1, "proteins": 1, "factors": 10, "motifs": 5}
FACTORS = {"factors": (4, 8), "motifs": (4, 6)}
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
    num_factors: Sequence[int] | None = None,
    say: Callable[[str], object] = print,
) -> dict:
    """Run one example and say what it found.

    Args:
        name: a key of ``SEEDS``.
        data: folder with ``cora/`` or ``tu/``; what is missing is downloaded there. factors and motifs read nothing.
        seeds: trainings of what was chosen, or, of molecules, of each setting on each fold; default: ``SEEDS``.
        quick: a few epochs each, to see that it runs; the numbers mean nothing.
        json_file: where the result goes.
        out: the example's folder is made in it, for the trainings that have ended; that of mutag also has the routing
            of some test graphs for ``graphcaps viz``, those of cora and factors their pictures. A quick look has a
            folder of its own, and keeps no trainings.
        num_factors: how many latent factors the graphs of factors have, or motifs those of motifs, one table each;
            default: ``FACTORS``.
        say: takes the lines.

    Returns:
        what ``cora.run`` or ``molecules.run`` returns, or as ``parts`` what ``factors.run`` or ``motifs.run`` returns
        for each number of factors; with the command, the time and the machine.

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
    start, keep = time.perf_counter(), None if quick else folder / "trainings"
    kept = len([*keep.glob("*.json")]) if keep is not None else 0
    if kept:
        say(f"{table.counted(kept, 'training')} kept in {keep}, and not repeated. Delete the folder to start anew.")
    graphs = load_graphs(name.upper(), data) if name in EPOCHS else None
    train: Callable[[Callable[[float], None]], dict]
    fits = num_factors is None or name in FACTORS
    expect(fits, "factors", f"nothing: {name} has none, only {' and '.join(FACTORS)} have", num_factors)
    numbers = tuple(FACTORS.get(name, ()) if num_factors is None else num_factors)
    if name in FACTORS:
        train = partial(_each, name, numbers, seeds, quick, keep)
    elif graphs is None:
        train = partial(cora.run, load_cora(data), seeds, quick, keep=keep)
    else:
        train = partial(molecules.run, graphs, seeds, EPOCHS[name], quick, keep=keep)
    with bar(f"{name}: training") as on_share:
        found = train(on_share)
    asked = f" --factors {' '.join(map(str, numbers))}" * (name in FACTORS and numbers != FACTORS[name])
    asked += f" --seeds {seeds}" * (seeds != SEEDS[name]) + " --quick" * quick
    entropy = found.pop("entropy", None)  # a number for each node: for the picture
    result = {
        "format_version": 1,
        "example": name,
        "command": f"graphcaps example {name}{asked}",
        **found,
        "minutes": (time.perf_counter() - start) / 60,
        **({"kept": kept} if kept else {}),
        "processes": 1 if quick else trials.cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"graphcaps": __version__, "torch": torch.__version__, "dgl": dgl.__version__},
    }
    if json_file is not None:
        write_text(json_file, json.dumps(result, indent=1) + "\n")
    say("\n".join(table.lines(result)))
    if entropy is not None:
        from graphcaps.viz import entropy_by_degree, save

        picture = folder / "degrees.png"
        save(entropy_by_degree(entropy), picture)
        say(f"wrote {picture}")
    if name == "factors":
        from graphcaps.viz import recovered, save

        for part in found["parts"]:
            picture = folder / f"factors-{part['factors']}.png"
            save(recovered(part["picture"]), picture)
            say(f"wrote {picture}")
    if graphs is not None and name == "mutag":
        settings = next(row for row in found["rows"] if row["name"] == "capsules")["settings"][0]
        traces = molecules.traces(graphs, settings, 2 if quick else EPOCHS[name])
        files = [folder / f"graph-{trace.about['graph']}.npz" for trace in traces]
        for trace, path in zip(traces, files, strict=True):
            trace.save(path)
        say(f"test molecules to draw: {table.answers(traces)}")
        say(f"next: graphcaps viz {shlex.quote(str(files[0]))}")
    return result


def _each(
    name: str,
    num_factors: Sequence[int],
    seeds: int,
    quick: bool,
    keep: Path | None,
    on_share: Callable[[float], None],
) -> dict:
    """``factors.run`` of each number of factors, or ``motifs.run``."""
    run, most, measure = (factors.run, 32, "micro-F1") if name == "factors" else (motifs.run, len(MOTIFS), "accuracy")
    expect(len(num_factors) > 0, "factors", "one number or more", "none")
    for number in num_factors:
        check_whole("factors", number, 2, most)
    parts = []
    for k, number in enumerate(num_factors):

        def on_part(done: float, before: int = k) -> None:
            on_share((before + done) / len(num_factors))

        parts.append(run(number, seeds, quick, on_part, keep))
    return {"measure": measure, "parts": parts}
