"""Commands that train networks and use them: train, evaluate, predict, runs, export."""

from __future__ import annotations

import logging
import shlex
import sys
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ..config import MACHINE_SETTINGS
from ..errors import GraphcapsError, check_whole, expect
from .arguments import FLAGS, Data, Device, Folder, Out, Run, Settings, names_run, open_run
from .columns import aligned
from .evaluate_on import evaluate_on, names_of
from .threads import set_number

if TYPE_CHECKING:
    from ..data import Batches
    from ..models import CapsNet
    from ..training import run_folder

log = logging.getLogger(__name__)


def train(config: Settings, resume: Folder = None) -> None:
    """Train a network on images, record its routing, and test it once.

    Writes a run folder: config.json, metrics.csv, checkpoints, the routing of one test image per class (trace.npz), and
    result.json at the end. Ctrl-C saves and says how to go on.

    Args:
        config: settings of the run.
        resume: Go on with the run in this folder, exactly where it was saved. It keeps its settings: only --data and
            --device may be given with it.
    """
    if resume is None:
        config.check()
        if fewer := set_number(leave_busy=not config.deterministic):
            print(fewer, file=sys.stderr)
    from ..training.train import train

    given = FLAGS.get()
    if resume is not None:
        more = [f"--{flag}" for flag in given if flag not in ("resume", *MACHINE_SETTINGS)]
        wanted = "no flags but --data and --device (a run keeps its settings)"
        expect(not more, "resume", wanted, ", ".join(more), "Drop them")
    result = train(config, resume=resume, overrides=[key for key in MACHINE_SETTINGS if key in given])
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
        f"next: graphcaps {'viz' if result['engine'] else 'evaluate'} {shlex.quote(result['run'])}"
    )


def evaluate(
    run: Run = None,
    on: Annotated[str | None, tyro.conf.arg(metavar="NAME,NAME,...", help_behavior_hint="")] = None,
    data: Data = None,
    device: Device = "auto",
    out: Out = Path("runs"),
) -> None:
    """Print test accuracy in all and per class, and draw the confusion matrix.

    Also counts doubtful answers, as in graphcaps predict. For multimnist, a second picture shows which pixels belong to
    which digit; if images show any number of classes, there is no picture. Pictures go into the run's folder figures.
    With --on: accuracy on transformed test images, and equivariance, as tables, JSON and pictures in the run's folder
    evaluate.

    Args:
        on: Transforms of the test images, one or several. rotated, shifted, noisy, scrambled: accuracy, mean winning
            score and each class's recall at several severities. affnist: the same on affNIST, for a run trained on
            mnist40: on all images, on those within the moves of mnist40, and on those beyond. equivariance: how the
            winning class's capsule moves as digits turn and shift.
    """
    names = () if on is None else names_of(on)
    chosen = open_run(run, out)
    import torch

    from ..analysis.accuracy import EVALUATION_BATCH, evaluate
    from ..data import Batches, load_images
    from ..training.hardware import pick_device
    from ..training.run_folder import load
    from .tables import accuracy_table, doubted_line

    place = pick_device(device)
    model = load(chosen, device=place)
    splits = load_images(chosen.config.dataset, data or chosen.config.data, **chosen.config.of_images)
    wanted = f"the classes of its training, {', '.join(model.class_names)}"
    expect(splits.class_names == model.class_names, str(chosen), wanted, ", ".join(splits.class_names))
    done = "" if chosen.result() else " (training has not finished)"
    print(f"{chosen}: {chosen.config.model} on {chosen.config.dataset_name}, weights best on validation images{done}")
    batches = Batches(splits.test, EVALUATION_BATCH, device=place)
    if names:
        return evaluate_on(chosen, names, model, batches, data or chosen.config.data)
    from ..progress import bar

    with bar("test images") as on_progress:
        result = evaluate(model, batches, on_progress)
    print(accuracy_table(result, splits.class_names))
    if any(limit is not None for limit in model.limits):
        print(doubted_line(result, model.limits))
    if model.objects is None:  # a confusion matrix needs one true class per answer
        return
    from ..viz import confusion, save, segmentation

    picture = chosen.results / "figures" / "confusion.png"
    save(confusion(result.confusion(splits.num_classes).numpy(), splits.class_names), picture)
    print(f"confusion matrix: {picture}")
    if model.objects > 1:
        from ..analysis.ink import examples, sees_parts
        from ..models import from_config

        if sees_parts(model):
            torch.manual_seed(chosen.config.seed)
            untrained: Any = from_config(chosen.config, splits).to(place)
            print(_ink_line(model, untrained, batches))
        picture = chosen.results / "figures" / "segmentation.png"
        save(segmentation(**examples(model, batches, result), class_names=splits.class_names), picture)
        print(f"segmentation: {picture}")


def _ink_line(model: CapsNet, untrained: CapsNet, batches: Batches) -> str:
    """The shares of ink that couplings, decoder and saliency assign to the right object."""
    from ..analysis.ink import ink_assigned
    from ..progress import bar

    with bar("whose ink is whose") as on_share:
        ink = ink_assigned(model, batches, on_share)
    with bar("the same, untrained") as on_share:
        start = ink_assigned(untrained, batches, on_share)
    return (
        f"ink assigned: {ink.couplings:.1%} by couplings (untrained {start.couplings:.1%}, equal couplings 50%), "
        f"{ink.decoder:.1%} by the decoder, {ink.saliency:.1%} by saliency\n"
        f"of {ink.counted:,} children over ink of one object alone, weighted by length"
    )


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
    """Classify image files, and print the lengths of their classes' capsules.

    A blank image has no answer. An answer is called doubtful if no capsule is long, if more are long than an image
    shows classes, or if the reconstruction is unlike the image, by limits that 99.3 % of the right answers to
    validation images keep to. A file that can't be read is named, and the others are answered.

    Args:
        images: Image files of any size, folders of them, or - for a list of files on standard input, a line each.
            Before them a run folder; default: the newest one. mnist and multimnist come with graphcaps; mnist is the
            default without runs. Images are made like those that the network was trained on: for MNIST the drawing is
            cut from its ground and fills 20 of 28 pixels.
        invert: Whether dark and light are swapped first. auto: for drawings that are dark on light, and grey images
            with a light border, since MNIST is light on dark; never for networks trained on your own images.
        top: How many classes to print for each image, the longest capsules first.
        json: Print an object per line: image, answer, doubts, classes and whether it was inverted; or image and error.
        save_inputs: Folder for the network's inputs, framed and inverted; digit.png becomes digit-input.png.
    """
    named = len(images) > 0 and names_run(images[0])
    expect(len(images) > named, "images", "at least one file or folder", "none", "graphcaps predict IMAGE")
    check_whole("top", top)
    from ..data.user_images import image_files
    from ..training.run_folder import load
    from .tables import prediction_line, predictions

    stdin = [Path(line) for line in sys.stdin.read().splitlines() if line] if Path("-") in images else []
    listed = [path for word in images[named:] for path in (stdin if word == Path("-") else [word])]
    files = [file for path in listed for file in image_files(path)]
    opened = open_run(images[0] if named else None, out)
    model, bad = load(opened), 0
    for prediction in predictions(opened, model, files, invert, top, save_inputs):
        if "error" in prediction:
            bad += 1
            print(f"graphcaps: {prediction['error']}", file=sys.stderr)
        if json:
            print(dumps(prediction))
        elif "error" not in prediction:
            print(prediction_line(prediction, invert))
    if save_inputs is not None and not json:
        print(f"what the network saw: {save_inputs}")
    if all(limit is None for limit in model.limits):
        print(f"note: too few validation images are right in {opened} to doubt more than blank images", file=sys.stderr)
    expect(not bad, "images", "files that can be read", f"{bad} of {len(files)} that can't")


def runs(out: Out = Path("runs")) -> None:
    """List the runs, newest first."""
    from ..training.run_folder import find_runs

    listed = find_runs(out)
    print(runs_table(listed) if listed else f"no runs in {out}. Train one: graphcaps train --dataset digits")


def runs_table(runs: list[run_folder.Run]) -> str:
    """A table with one line per run: data set, network, finished epochs and accuracy."""
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
    format: Literal["onnx", "pt2"] = "onnx",
    to: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    check: int = 256,
    data: Data = None,
    out: Out = Path("runs"),
) -> None:
    """Write a trained network to a file for other programs, and check the file.

    The file takes one or more images and gives the classes' lengths, their capsules and the couplings. It also holds
    class names, input range and size, preset, routing and version.

    Args:
        format: onnx: for onnxruntime and others; needs: pip install -e ".[export]". pt2: for torch.export.load.
        to: The file; default: export/network.onnx or network.pt2 in the run folder.
        check: The number of validation images that the file is run on; 0: none. A file whose scores differ by more than
            1e-4 isn't written. onnxruntime runs an ONNX file, if it is installed.
    """
    check_whole("check", check, 0)
    chosen = open_run(run, out)
    from .. import export as exporting
    from ..data import Batches, load_images
    from ..models.answers import overlaid
    from ..training.run_folder import load

    path = to or chosen.results / "export" / f"network.{format}"
    exporting.check_installed(format)
    network, images = load(chosen), None
    if check:
        try:
            splits = load_images(chosen.config.dataset, data or chosen.config.data, **chosen.config.of_images)
        except GraphcapsError as error:
            then = "Without the data set: --check 0, which writes a file that isn't checked"
            raise type(error)(f"{error}. {then}") from error
        val = splits.for_augment(chosen.config.augment).val
        images = overlaid(next(Batches(val, check).in_order())[0])
    written = exporting.export(network, path, format, chosen.config.dataset, images)
    sizes = ", ".join(map(str, network.image_shape))
    outputs = [f"{name} ({', '.join(map(str, ('batch', *shape)))})" for name, shape in written.outputs.items()]
    print(f"{chosen}: {chosen.config.model} on {chosen.config.dataset_name}")
    print(f"images (batch, {sizes}) in [0, 1] -> {', '.join(outputs)}")
    if images is None:
        print("not checked: --check 0")
    elif written.difference is None:
        print("not checked: onnxruntime isn't installed. Run: pip install onnxruntime")
    else:
        first = next(iter(written.outputs))
        print(f"{first} of {len(images)} validation images are within {written.difference:.1e} of graphcaps' own")
    print(path)
