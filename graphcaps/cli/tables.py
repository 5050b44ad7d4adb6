"""Tables and lines that the commands print."""

import itertools
from pathlib import Path
from typing import Literal

import torch

from ..files import file_name
from ..images.analysis.accuracy import Evaluation, wilson_interval
from ..images.analysis.capsule_usage import CapsuleUsage
from ..images.data import DATASETS, read_image
from ..images.data.user_images import ImageFile
from ..images.models import ImageNetwork, Limits, doubts
from ..images.models.evidence import Doubt, outside
from ..images.training.run_folder import Run
from .columns import aligned

INVERT: dict[str, Literal["auto"] | bool] = {"auto": "auto", "yes": True, "no": False}


def accuracy_table(result: Evaluation, class_names: tuple[str, ...]) -> str:
    """Accuracy with its confidence interval, then recall and precision per class."""
    low, high = result.interval
    total, wrong = len(result.labels), len(result.labels) - result.correct
    lines = [f"test accuracy {result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})"]
    if result.labels.dim() > 1:
        exactly = " and no others" if result.labels.dtype == torch.bool else ""
        lines.append(f"an image is right if all its classes are found{exactly}; the table counts each class separately")
    lines += [f"error rate    {wrong / total:.2%} ({wrong} of {total} images wrong)", ""]
    rows = [("class", "images", "recall", "95 % interval", "precision")]
    counts = torch.stack(result.per_class(len(class_names)), dim=1).tolist()
    for name, (images, hits, answers) in zip(class_names, counts, strict=True):
        bounds = "{:7.2%} to {:7.2%}".format(*wilson_interval(hits, images)) if images else "-"
        recall, precision = (f"{hits / count:.2%}" if count else "-" for count in (images, answers))
        rows.append((name, str(images), recall, bounds, precision))
    return "\n".join([*lines, *aligned(rows)])


def usage_lines(usage: CapsuleUsage) -> str:
    """The numbers of dead and starved capsules, and the coupling entropy of the children."""
    unused = "; ".join(
        f"of {len(side.dead):,} {name} {int(side.dead.sum()):,} dead, {int(side.starved.sum()):,} starved"
        for name, side in {"children": usage.children, "parents": usage.parents}.items()
    )
    lines = [f"{usage.num_images:,} test images: {unused}"]
    if (usage.undecided > 0).any():
        share = usage.relative_entropy
        lines.append(f"coupling entropy: {share:.1%} (100%: all couplings equal; 0%: each child has one parent)")
        lines.append(f"the same, weighted by the children's lengths: {usage.weighted_entropy:.1%}")
    return "\n".join(lines)


def prediction_of(run: Run, model: ImageNetwork, path: Path, image: ImageFile, top: int) -> dict:
    """The network's answer to an image file, in the format of ``graphcaps predict --json``."""
    with torch.no_grad():
        output = model(image.pixels[None])
    doubted = doubts(model, image.pixels[None], output)[0] + (Doubt("sheet", image.doubt),) * bool(image.doubt)
    blank = any(doubt.kind == "blank" for doubt in doubted)
    scores, order = output.scores[0].sort(descending=True, stable=True)  # (J,)
    classes = [model.class_names[k] for k in order]
    threshold = run.threshold if model.routes else -1.0  # a CNN answers with its highest score
    named = classes[: int((scores > threshold).sum())][: model.objects]
    return {
        "image": str(path),
        "answer": None if blank or not named else named[0] if model.objects == 1 else named,
        "threshold": threshold,
        "doubts": [doubt._asdict() for doubt in doubted],
        "classes": [{"class": k, "score": score} for k, score in zip(classes, scores.tolist(), strict=True)][:top],
        "inverted": image.inverted,
    }


def read_for(run: Run, model: ImageNetwork, path: Path, invert: str = "auto") -> ImageFile:
    """Read an image file as the images of a run's training."""
    spec = DATASETS.get(run.config.dataset)
    inverted = INVERT[invert] if spec or invert != "auto" else False  # by default, never invert your own data sets
    return read_image(path, model.image_shape, invert=inverted, ink=spec.ink if spec else None)


def prediction_line(prediction: dict, invert: str) -> str:
    """One line: the classes with their scores, highest first, and the doubts about the answer."""
    why = "; ".join(doubt["text"] for doubt in prediction["doubts"])
    if any(doubt["kind"] == "blank" for doubt in prediction["doubts"]):
        return f"{prediction['image']}: no answer: {why}"
    least, scores = prediction["threshold"], [(entry["score"], entry["class"]) for entry in prediction["classes"]]
    pairs = [[f"{name} {score:.3f}" for score, name in scores if (score > least) is above] for above in (True, False)]
    named, others = map(", ".join, pairs)
    classes = (named or "no answer") + f" ({others}, not above {least:.2f})" * bool(others)
    note = " (inverted: its background is light)" if prediction["inverted"] and invert == "auto" else ""
    return f"{prediction['image']}: {classes}{note}" + (f". Doubtful: {why}" if why else "")


def input_names(images: list[Path], folder: Path) -> list[Path]:
    """For each image, a path in the folder, such as a-input.png for a.png, that no other image has or gets."""
    taken, names = {path.resolve() for path in images}, []
    for path in images:
        tries = (folder / file_name(path.stem, f"-input{'' if k == 1 else f'-{k}'}.png") for k in itertools.count(1))
        names.append(next(name for name in tries if name.resolve() not in taken))
        taken.add(names[-1].resolve())
    return names


def named_line(count: int, total: int, threshold: float) -> str:
    """One line: how many answers are named, since accuracy is that of the longest capsules, however short."""
    return f"{count} of {total} answers are longer than {threshold:.2f}; graphcaps predict names no shorter class"


def doubted_line(result: Evaluation, limits: Limits) -> str:
    """One line: how many of the right answers and how many of the wrong answers are doubted."""
    doubted, right = outside(result.evidence, limits).any(dim=1), result.right
    parts = []
    for where, name in ((right, "right"), (~right, "wrong")):
        count, total = int((doubted & where).sum()), int(where.sum())
        parts.append(f"{count} of {total} {name} answers" + (f" ({count / total:.1%})" if total else ""))
    return f"doubted       {', '.join(parts)}"
