"""Commands that train and use networks: train, evaluate, predict, runs, export."""

from __future__ import annotations

import io
import logging
import shlex
import sys
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..errors import GraphcapsError, InputError, check_whole, expect
from ..images.config import MACHINE_SETTINGS
from .arguments import FLAGS, Data, Device, Folder, Out, Run, Settings, check_data, names_run, open_run
from .columns import aligned, show
from .threads import set_number

if TYPE_CHECKING:
    from ..images.data import Batches
    from ..images.training import run_folder

log = logging.getLogger(__name__)


def train(config: Settings, resume: Folder = None) -> None:
    """Train a network on images, record its routing, and test it once.

    Writes a run folder with config.json, metrics.csv, checkpoints, the routing of one test image per class (trace.npz)
    and, at the end, result.json. If you press Ctrl-C, the run is saved, and the command that continues it is printed.

    Args:
        config: settings of the run.
        resume: Continue the run in this folder, exactly from where it was saved. It keeps its settings, so only --data,
            --device, --no-capture and a larger --epochs may be given too.
    """
    check_data(config.data)
    if resume is None:
        config.check()
        set_number()
    from ..images.training.train import train

    flags, may_change = FLAGS.get(), ("epochs", *MACHINE_SETTINGS)
    if resume is not None:
        more = [f"--{flag}" for flag in flags if flag.removeprefix("no-") not in ("resume", *may_change)]
        wanted = "no flags but --data, --device, --no-capture and --epochs (a run keeps its settings)"
        expect(not more, "resume", wanted, ", ".join(more), "Drop them")
    result = train(config, resume=resume, overrides=[flag.replace("-", "_") for flag in flags])
    from ..viz.routing_trace import THRESHOLD
    from .tables import named_line

    low, high = result["test_interval_95"]
    total, count = result["test_images"], result["test_named"]
    named = "" if count is None else f"{named_line(count, total, THRESHOLD)}\n"
    show(
        f"\ntest accuracy {result['test_accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}), "
        f"{total - result['test_correct']} of {total} wrong\n{named}"
        f"weights of epoch {result['best_epoch']}, best on validation images ({result['val_accuracy']:.2%})\n"
        f"{result['parameters']:,} parameters ({result['parameters_without_decoder']:,} without the decoder), "
        f"{result['seconds']:.0f} s on {result['device']}\n"
        f"next: graphcaps {'viz' if result['engine'] else 'evaluate'} {shlex.quote(result['run'])}"
    )


def evaluate(run: Run = None, data: Data = None, device: Device = "auto", out: Out = Path("runs")) -> None:
    """Print the test accuracy, overall and per class, and draw the confusion matrix.

    The command also counts doubtful answers (see graphcaps predict --help). The matrix is written to the folder
    figures in the run folder. If images may show any number of classes (multi-label), there is none.
    """
    chosen = open_run(run, out)
    from ..images.analysis.accuracy import evaluate
    from ..progress import bar
    from .tables import accuracy_table, doubted_line, named_line

    model, batches = load_with_test(chosen, data, device)
    done = "" if chosen.result() else " (training has not finished)"
    show(f"{chosen}: {chosen.config.model} on {chosen.config.dataset_name}, weights best on validation images{done}")
    with bar("test images") as on_progress:
        result = evaluate(model, batches, on_progress)
    show(accuracy_table(result, model.class_names))
    if model.routes and model.objects:
        show(named_line(result.named(chosen.threshold), len(result.labels), chosen.threshold))
    if any(limit is not None for limit in model.limits):
        show(doubted_line(result, model.limits))
    if model.objects is None:  # a confusion matrix needs one true class per answer
        return
    from ..viz import confusion, save

    picture = chosen.results / "figures" / "confusion.png"
    unit = "images" if model.objects == 1 else "objects"
    save(confusion(result.confusion(len(model.class_names)).numpy(), model.class_names, unit), picture)
    show(f"confusion matrix: {picture}")


def load_with_test(run: run_folder.Run, data: Path | None, device: str) -> tuple[Any, Batches]:
    """Load a run's network, and the test images of its data set in batches.

    Raises:
        InputError: the data set isn't there, or no longer has the classes of the training.
    """
    from ..images.analysis.accuracy import EVALUATION_BATCH
    from ..images.data import Batches, load_images
    from ..images.training.hardware import pick_device
    from ..images.training.run_folder import load

    check_data(data)
    place = pick_device(device)
    model = load(run, device=place)
    splits = load_images(run.config.dataset, data or run.config.data, **run.config.of_images)
    wanted = f"the classes of its training, {', '.join(model.class_names)}"
    expect(splits.class_names == model.class_names, str(run), wanted, ", ".join(splits.class_names))
    return model, Batches(splits.test, EVALUATION_BATCH, device=place)


def predict(
    images: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN] IMAGE...", help_behavior_hint="")
    ],
    invert: Literal["auto", "yes", "no"] = "auto",
    top: int = 3,
    json: bool = False,
    save_inputs: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Classify image files, and print the classes with the longest capsules.

    A blank image gets no answer. An answer is called doubtful if no capsule is long, if more capsules are long than an
    image shows classes, or if the reconstruction differs much from the image. The limits are such that 99.3 % of the
    right answers to validation images are within them. If a file can't be read, its name is printed, and the other
    files are classified.

    Args:
        images: Image files of any size, folders of image files, or "-" to read file names from standard input, one per
            line. You may put a run folder before them; default: the newest one, or mnist if there is none. mnist and
            multimnist come with graphcaps. Images are prepared like those of the training: for MNIST, the drawing is
            cut out of its background and scaled to 20 of 28 pixels.
        invert: Whether to swap dark and light first. auto: swap drawings that are dark on light, and grey images with a
            light border, because MNIST is light on dark; but never swap for networks trained on your own images.
        top: How many classes to print for each image, starting with the longest capsule.
        json: Print one JSON object per line: image, answer, doubts, classes and inverted, or image and error.
        save_inputs: Save the images that the network gets, after scaling and inversion, in this folder: digit.png as
            digit-input.png.
    """
    named = len(images) > 0 and names_run(images[0], out)
    expect(len(images) > named, "images", "at least one file or folder", "none", "graphcaps predict IMAGE")
    check_whole("top", top)
    from ..images.data.listing import image_files
    from ..images.data.user_images import write_image
    from ..images.training.run_folder import load
    from .tables import input_names, prediction_line, prediction_of, read_for

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # names of files may be any bytes
    stdin = [Path(line) for line in sys.stdin.read().splitlines() if line] if Path("-") in images else []
    listed = [path for word in images[named:] for path in (stdin if word == Path("-") else [word])]
    files = [file for path in listed for file in image_files(path)]
    opened = open_run(images[0] if named else None, out)
    model, bad = load(opened), 0
    inputs = input_names(files, save_inputs) if save_inputs is not None else []
    for k, path in enumerate(files):
        try:
            image = read_for(opened, model, path, invert)
        except InputError as error:
            bad += 1
            show(f"graphcaps: {error}", file=sys.stderr)
            prediction = {"image": str(path), "error": str(error)}
        else:
            prediction = prediction_of(opened, model, path, image, top)
            if inputs:
                write_image(inputs[k], image.pixels)
        if json:
            show(dumps(prediction))
        elif "error" not in prediction:
            show(prediction_line(prediction, invert).replace("\n", "\\n"))
    if save_inputs is not None and not json and bad < len(files):
        show(f"what the network saw: {save_inputs}")
    if all(limit is None for limit in model.limits):
        show(f"note: only blank images are doubted: too few validation images were right in {opened}", file=sys.stderr)
    expect(not bad, "images", "files that can be read", f"{bad} of {len(files)} that can't")


def runs(out: Out = Path("runs")) -> None:
    """List the runs, newest first."""
    from ..images.training.run_folder import find_runs

    listed = find_runs(out)
    show(runs_table(listed) if listed else f"no runs in {out}. Train one: graphcaps train --dataset digits")


def runs_table(runs: list[run_folder.Run]) -> str:
    """A table with one line per run: data set, network, finished epochs, accuracies and time."""
    rows = [("run", "dataset", "model", "epochs", "validation", "test", "seconds")]
    for run in runs:
        config = run.config
        try:
            metrics, result = run.metrics(), run.result()
        except GraphcapsError as error:
            log.warning("%s", error)
            metrics, result = [], None
        done = f"{len(metrics)}/{config.epochs}"
        best = f"{max(row['val_accuracy'] for row in metrics):.2%}" if metrics else "-"
        test = f"{result['test_accuracy']:.2%}" if result else "-"
        seconds = f"{metrics[-1]['seconds']:.0f}" if metrics else "-"
        rows.append((str(run.path), config.dataset_name, config.model, done, best, test, seconds))
    return "\n".join(aligned(rows, left=range(len(rows[0]))))


def export(
    run: Run = None,
    to: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    out: Out = Path("runs"),
) -> None:
    """Write a trained network to an ONNX file for other programs, and check the file.

    The exported network takes one or more images and returns the lengths of the classes' capsules, the capsules and the
    couplings. The file also contains the class names, the range and size of its input, and the network's preset,
    routing and version. Writing it needs pip install -e ".[export]".

    The file is run on images of random pixels. If its scores differ from those of graphcaps by more than 1e-4, it isn't
    written.

    Args:
        to: The file to write; default: export/network.onnx in the run folder.
    """
    chosen = open_run(run, out)
    from ..images import export as exporting
    from ..images.training.run_folder import load

    network = load(chosen)
    written = exporting.export(network, to or chosen.results / "export" / "network.onnx", chosen.config.dataset)
    sizes = ", ".join(map(str, network.image_shape))
    outputs = [f"{name} ({', '.join(map(str, ('batch', *shape)))})" for name, shape in written.outputs.items()]
    show(f"{chosen}: {chosen.config.model} on {chosen.config.dataset_name}")
    show(f"images (batch, {sizes}) in [0, 1] -> {', '.join(outputs)}")
    show(f"{next(iter(written.outputs))} of random images are within {written.difference:.1e} of graphcaps' own")
    show(written.path)
