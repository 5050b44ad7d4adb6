"""The command line: parses, calls and prints. ``graphcaps --help`` lists the commands.

Nothing here imports torch before a command needs it, so that help and mistakes answer at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import tyro

from . import __version__
from .config import OF_THE_MACHINE, TrainConfig
from .errors import GraphcapsError, InputError, expect

DESCRIPTION = """Capsule routing as message passing on DGL graphs: train a CapsNet, watch its routing settle.

Start with: graphcaps train --dataset digits. --version prints the version; --debug shows the traceback of an error."""

# The hint is tyro's "(default: None)": the help texts say what happens without the flag.
Folder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")]
Run = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]", help_behavior_hint="")]


def train(config: Annotated[TrainConfig, tyro.conf.arg(name="")], resume: Folder = None) -> None:
    """Train a capsule network on images, keep its routing, and report its test accuracy once.

    Writes a run folder: config.json, metrics.csv, checkpoints, the routing of one test image per class (trace.npz), and
    result.json at the end. Ctrl-C saves and says how to go on.

    Args:
        config: settings of the run.
        resume: Go on with the run in this folder, exactly where it was saved. It keeps its settings: only --data and
            --device may be given with it.
    """
    if resume is not None:
        flags = ", ".join(f"--{key.replace('_', '-')}" for key in config.changed() if key not in OF_THE_MACHINE)
        expect(not flags, "resume", "no flags but --data and --device (a run keeps its settings)", flags, "Drop them")
        from .run import Run

        Run.open(resume)  # a wrong folder is answered before torch is imported
    config.check()
    from .training import train

    result = train(config, resume=resume)
    from accelerate import PartialState

    if not PartialState().is_main_process:
        return
    low, high = result["test_interval_95"]
    print(
        f"\ntest accuracy {result['test_accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}), "
        f"{result['test_images'] - result['test_correct']} of {result['test_images']} wrong\n"
        f"weights of epoch {result['best_epoch']}, best on validation images ({result['val_accuracy']:.2%})\n"
        f"{result['parameters']:,} parameters ({result['parameters_without_decoder']:,} without the decoder), "
        f"{result['seconds']:.0f} s on {result['device']}\n"
        f"next: graphcaps viz {shlex.quote(result['run'])}"
    )


def evaluate(
    run: Run = None,
    data: Folder = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    out: Path = Path("runs"),
) -> None:
    """Test accuracy, error rate, a table per class, and a picture of the confusion matrix.

    Of multimnist also a picture of which pixels belong to which digit. Pictures go into the run's folder figures.

    Args:
        run: Run folder; default: the newest one.
        data: Folder with the data set; default: the one used in training.
        device: Where to compute; auto takes a GPU if there is one.
        out: Folder that holds the run folders.
    """
    from .run import Run, newest_run

    chosen = Run.open(run) if run else newest_run(out)
    from .data import Batches, load_images
    from .evaluation import EVALUATION_BATCH, evaluate
    from .hardware import pick_device
    from .report import accuracy_table
    from .run import load

    device = pick_device(device)
    model = load(chosen.path, device=device)
    splits = load_images(chosen.config.dataset, data or chosen.config.data)
    done = "" if chosen.result() else " (training has not finished)"
    print(f"{chosen}: {chosen.config.model} on {chosen.config.dataset}, weights best on validation images{done}")
    batches = Batches(splits.test, EVALUATION_BATCH, device=device)
    result = evaluate(model, batches)
    print(accuracy_table(result, splits.class_names))
    from .files import replacing
    from .viz import confusion

    picture = chosen.path / "figures" / "confusion.png"
    with replacing(picture) as temporary:
        confusion(result.confusion(splits.num_classes).numpy(), splits.class_names).savefig(temporary)
    print(f"confusion matrix: {picture}")
    if model.objects > 1:
        from .evaluation import examples
        from .viz import segmentation

        picture = chosen.path / "figures" / "segmentation.png"
        with replacing(picture) as temporary:
            segmentation(**examples(model, batches, result), class_names=splits.class_names).savefig(temporary, dpi=200)
        print(f"segmentation: {picture}")


def predict(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")],
    images: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE...", help_behavior_hint="")],
    invert: Literal["auto", "yes", "no"] = "auto",
    top: int = 3,
) -> None:
    """Classify image files: prints each one's classes with the lengths of their capsules.

    Args:
        run: Run folder.
        images: Image files of any size, fitted to what the network was trained on (MNIST: the drawing is cut out and
            fills 20 of 28 pixels)
        invert: Whether dark and light are swapped first. auto: grey images with a light border are, since MNIST is
            light on dark.
        top: How many classes to print for each image, the longest capsules first.
    """
    expect(len(images) >= 1, "images", "at least one file after the run folder", "none", "graphcaps predict RUN IMAGE")
    expect(top >= 1, "top", "an integer >= 1", top)
    from .report import predictions

    for line in predictions(run, images, invert, top):
        print(line)


def runs(out: Path = Path("runs")) -> None:
    """List the runs, newest first.

    Args:
        out: Folder that holds the run folders.
    """
    from .run import find_runs
    from .summary import runs_table

    found = find_runs(out)
    print(runs_table(found) if found else f"no runs in {out}. Train one: graphcaps train --dataset digits")


def viz(
    run: Run = None,
    what: Literal["all", "entropy", "graph", "histogram", "sheet"] = "all",
    over: Literal["both", "iterations", "epochs"] = "both",
    format: Literal["gif", "mp4", "png", "svg", "pdf", "html"] = "gif",
    image: int = 0,
    random: Annotated[str | None, tyro.conf.arg(metavar="IxJ", help_behavior_hint="")] = None,
    iterations: int = 10,
    seed: int = 0,
    to: Folder = None,
    out: Path = Path("runs"),
) -> None:
    """Draw how the couplings settle, from a run's routing trace alone.

    A folder with graphs.npz, the routing of graphs instead of images, gives the graph with its nodes in the colours of
    the classes they support.

    Args:
        run: Run folder; default: the newest one.
        what: entropy: how undecided the children are. graph: the bipartite graph beside the image. histogram: of the
            couplings. sheet: a still of training curves and reconstructions. all: these four.
        over: Animate over routing iterations, over epochs of training, or both.
        format: gif and mp4 move; mp4 needs: pip install "graphcaps[video]".
            png, svg, pdf: the last step, sized for a column of a paper.
            html: the explorer, one page with all images, iterations and epochs, to open from the disk.
        image: Which of the trace's test images, from 0; there is one per class. html: the one shown first. Of a folder
            with graphs: which graph.
        random: Route random votes instead of a run's, CHILDRENxPARENTS: 20x10 is the DGL tutorial's example.
        iterations: Routing iterations, with --random only.
        seed: Seed of the random votes, with --random only.
        to: Folder for the pictures; default: figures in the run folder, or figures-random.
        out: Folder that holds the run folders.
    """
    from .viz import draw

    if random is not None:
        expect(run is None, "random", "no run beside it", run)
        expect(0 <= seed < 2**63, "seed", "an integer from 0 to 2**63 - 1", seed)
        size = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,2})", random)
        expect(size is not None, "random", "CHILDRENxPARENTS up to 9999x999, such as 20x10", repr(random))
        from .trace import RoutingTrace

        trace, folder = RoutingTrace.random(int(size[1]), int(size[2]), iterations, seed), Path("figures-random")
    else:
        alone = (iterations, seed) == (10, 0)
        expect(alone, "iterations and seed", "--random beside them", "a run", "A run's routing is in its trace")
        from .graph_trace import FILE_NAME, GraphTrace

        if run is not None and (run / FILE_NAME).exists():
            whole = (what, over) == ("all", "both")
            expect(whole, "what and over", "all and both for graphs", f"{what} and {over}", "There is one picture")
            from .viz import draw_graph

            graphs = GraphTrace.load(run / FILE_NAME)
            draw_graph(graphs, to or run / "figures", format=format, image=image, on_written=print)
            return
        from .run import Run, newest_run

        chosen = Run.open(run) if run else newest_run(out)
        trace, folder = chosen.trace(), chosen.path / "figures"
    draw(trace, to or folder, what=what, over=over, format=format, image=image, on_written=print)


def explain(
    run: Run = None,
    what: Literal["all", "parts", "capsules"] = "all",
    image: int = 0,
    keep: float = 0.9,
    data: Folder = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    out: Path = Path("runs"),
) -> None:
    """Which parts made an answer, as GraphML, JSON and a picture; and which capsules are used on the test images.

    Writes into the folder explain of the run.

    Args:
        run: Run folder; default: the newest one.
        what: parts: the strongest links from children to parents for one image, from the run's routing trace alone.
            capsules: dead and starved capsules and the coupling entropy of each type of child, over the test images.
            all: both.
        image: Which of the trace's test images, from 0; there is one per class.
        keep: The fewest links are kept that make up this share of all credit above 0. A link's credit is c <u_hat, v>,
            what its child gives to its parent's length, after the iterations of training.
        data: Folder with the data set; default: the one used in training.
        device: Where to count capsules; auto takes a GPU if there is one.
        out: Folder that holds the run folders.
    """
    from .run import Run, newest_run

    chosen = Run.open(run) if run else newest_run(out)
    folder = chosen.path / "explain"
    if what != "capsules":
        from .explanation import write_parts

        for path in write_parts(chosen.trace(), folder, image, keep):
            print(path)
    if what != "parts":
        from .data import Batches, load_images
        from .evaluation import EVALUATION_BATCH
        from .files import write_text
        from .hardware import pick_device
        from .progress import bar
        from .report import census_tables
        from .run import load

        device = pick_device(device)
        model = load(chosen.path, device=device)
        splits = load_images(chosen.config.dataset, data or chosen.config.data)
        from .census import census

        with bar("test images") as on_share:
            found = census(model, Batches(splits.test, EVALUATION_BATCH, device=device), on_share)
        write_text(folder / "capsules.json", found.to_json(splits.class_names))
        print(census_tables(found, splits.class_names))
        print(folder / "capsules.json")


def prune(
    run: Run = None,
    keep: Annotated[str, tyro.conf.arg(metavar="K,K,...")] = "1,2,3,5,all",
    data: Folder = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    out: Path = Path("runs"),
) -> None:
    """Accuracy with only the strongest edges of each child capsule, without training again.

    An edge's strength is its mean coupling over the training images. Beside it, as controls, as many random edges and
    the weakest. Writes the numbers and a picture into the folder prune of the run.

    Args:
        run: Run folder; default: the newest one.
        keep: How many edges each child of the last capsule layer keeps, one number or several; all is always measured.
        data: Folder with the data set; default: the one used in training.
        device: Where to compute; auto takes a GPU if there is one.
        out: Folder that holds the run folders.
    """
    known = re.fullmatch(r"(all|[1-9]\d{0,6})(,(all|[1-9]\d{0,6}))*", keep)
    expect(known is not None, "keep", "numbers from 1 and all, with commas between, such as 1,2,all", repr(keep))
    counts = tuple(int(word) for word in keep.split(",") if word != "all")
    from .run import Run, newest_run

    chosen = Run.open(run) if run else newest_run(out)
    from .data import Batches, load_images
    from .evaluation import EVALUATION_BATCH
    from .files import replacing, write_text
    from .hardware import pick_device
    from .progress import bar
    from .pruning import mean_coupling
    from .pruning import prune as measure
    from .report import pruning_table
    from .run import load
    from .viz import accuracy_by_edges

    device = pick_device(device)
    model = load(chosen.path, device=device)
    splits = load_images(chosen.config.dataset, data or chosen.config.data)
    train, val, test = (
        Batches(part, EVALUATION_BATCH, device=device) for part in (splits.train, splits.val, splits.test)
    )
    with bar("couplings of the training images") as on_share:
        strength = mean_coupling(model, train, on_share)
    with bar("pruned networks") as on_share:
        found = measure(model, strength, counts, val, test, on_share=on_share)
    about = {"command": f"graphcaps prune --keep {keep}", "train_images": train.num_images}
    about |= {"model": chosen.config.model, "dataset": chosen.config.dataset}
    folder = chosen.path / "prune"
    write_text(folder / "prune.json", found.to_json(**about))
    with replacing(folder / "accuracy.png") as temporary:
        accuracy_by_edges({**about, **found.as_dict()}).savefig(temporary, dpi=200)
    print(f"{chosen}: {chosen.config.model} on {chosen.config.dataset}")
    print(pruning_table(found))
    print(folder / "prune.json", folder / "accuracy.png", sep="\n")


def explore(
    run: Run = None,
    port: int = 8000,
    open: tyro.conf.FlagCreatePairsOff[bool] = False,
    data: Folder = None,
    out: Path = Path("runs"),
) -> None:
    """Draw a digit on a local page and see at once how the network routes it. Needs: pip install "graphcaps[app]".

    Serves http://127.0.0.1:PORT to this machine alone until Ctrl-C; no network is needed.

    Args:
        run: Run folder; default: the newest one.
        port: Port to serve at; 0: any free one.
        open: Open the page in the browser.
        data: Folder with the data set, whose test images can be picked; default: the one used in training, and where it
            isn't there, the images in the run's trace.
        out: Folder that holds the run folders.
    """
    expect(0 <= port < 2**16, "port", "an integer from 0 to 65535", port)
    from .run import Run, newest_run

    chosen = Run.open(run) if run else newest_run(out)
    try:
        from .app import server
    except ModuleNotFoundError as error:
        then = 'pip install "graphcaps[app]"'
        raise GraphcapsError(f"explore: expected starlette and uvicorn, got no {error.name}. {then}") from None
    from .app.answers import Explorer

    listener = server.listen(port)
    app = server.make_app(Explorer.of(chosen, data))
    url = f"http://{server.ADDRESS}:{listener.getsockname()[1]}"
    print(f"{chosen}: {url} (Ctrl-C stops it)", flush=True)
    if open:
        webbrowser.open(url)
    with contextlib.suppress(KeyboardInterrupt):
        server.http_server(app).run(sockets=[listener])


def bench(
    work: tyro.conf.Positional[Literal["all", "routing", "sparse", "train", "memory", "growth", "nodes"]] = "all",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    to: Path = Path("figures-bench"),
) -> None:
    """Time routing and training beside other formulations and the machine's ceilings, and say which targets are met.

    Args:
        work: routing: image capsules, from given votes and from children and weights. sparse: a random graph of a
            million edges. train: whole training steps. memory: peaks. growth: time per edge up to ten million edges.
            nodes: full-graph training steps of CapsuleConv, up to ten million capsule edges.
        device: Where to measure; auto takes a GPU if there is one.
        threads: Threads of torch and of the engines; default: as many as torch takes.
        json: Also write all that is printed to this file.
        to: Folder for the bar charts, one per work.
    """
    from .bench.run import bench

    bench(work, device=device, threads=threads, to=to, json_file=json)


def example(
    name: tyro.conf.Positional[Literal["cora", "mutag", "proteins"]],
    data: Path = Path("data"),
    seeds: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None,
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    quick: tyro.conf.FlagCreatePairsOff[bool] = False,
    out: Path = Path("runs"),
) -> None:
    """Put capsules and the usual layers into the same graph networks, and compare their test accuracies.

    Every model gets as many trials of settings as the others, judged on validation data alone. mutag also writes how
    some test molecules are routed, for graphcaps viz.

    Args:
        name: cora: classify the papers of a citation graph. mutag, proteins: classify molecules, ten folds.
        data: Folder with the data; what is missing is downloaded into it.
        seeds: cora: how often what was chosen is trained, 20 unless said. mutag, proteins: trainings of each setting on
            each fold, 3 and 1.
        json: Also write the result, with every seed's or fold's number, to this file.
        quick: A few epochs each, to see that it runs; the numbers mean nothing.
        out: Folder that holds the run folders, and mutag's routing.
    """
    from .examples.run import example

    example(name, data=data, seeds=seeds, json_file=json, quick=quick, out=out)


COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "runs": runs,
    "viz": viz,
    "explain": explain,
    "prune": prune,
    "explore": explore,
    "bench": bench,
    "example": example,
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 for errors, 2 for wrong usage, 128 + number for signals."""
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    argv = [word for word in argv if word != "--debug"]
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    try:
        try:
            if argv[:1] in (["--version"], ["-V"]):
                print(f"graphcaps {__version__}")
            else:
                words = argv or ["--help"]
                tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="graphcaps", description=DESCRIPTION, args=words)
        finally:
            sys.stdout.flush()
    except SystemExit as error:  # tyro's, after help or wrong usage
        return error.code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except GraphcapsError as error:
        if debug:
            raise
        print(f"graphcaps: {error}", file=sys.stderr)
        signum = getattr(error, "signum", 0)
        return 128 + signum if signum else 2 if isinstance(error, InputError) else 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python fails once more at its end
        return 1
    return 0
