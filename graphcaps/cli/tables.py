"""What the command line prints about a network's answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from ..analysis.accuracy import Evaluation, wilson_interval
from ..analysis.capsule_usage import DEAD_AT_MOST, STARVED_AT_MOST, CapsuleUsage, relative_entropy
from ..analysis.equivariance import MIN_IMAGES
from ..data import DATASETS, read_image, write_image
from ..errors import InputError
from ..models import ImageNetwork, Limits, doubts
from ..models.limits import outside
from ..training.run_folder import Run

APART = 0.01  # of undecided: types of child whose entropies differ by more have a table
INVERT: dict[str, Literal["auto"] | bool] = {"auto": "auto", "yes": True, "no": False}


def accuracy_table(result: Evaluation, class_names: tuple[str, ...]) -> str:
    """Accuracy with its interval, and recall and precision per class."""
    low, high = result.interval
    total, wrong = len(result.labels), len(result.labels) - result.correct
    lines = [
        f"test accuracy {result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%})",
        f"error rate    {wrong / total:.2%} ({wrong} of {total} images wrong)",
        "",
    ]
    if result.labels.dim() > 1:
        exactly = " and no others" if result.labels.dtype == torch.bool else ""
        lines.insert(
            1, f"right is an image whose classes are all found{exactly}; the table counts each class by itself"
        )
    width = max(5, *(len(name) for name in class_names))
    lines.append(f"{'class':<{width}}  images   recall         95 % interval  precision")
    counts = torch.stack(result.per_class(len(class_names)), dim=1).tolist()
    for name, (images, hits, answers) in zip(class_names, counts, strict=True):
        bounds = "{:7.2%} to {:7.2%}".format(*wilson_interval(hits, images)) if images else "-"
        recall, precision = (f"{hits / count:7.2%}" if count else "-" for count in (images, answers))
        lines.append(f"{name:<{width}}  {images:>6}  {recall:>7}  {bounds:>20}  {precision:>9}")
    return "\n".join(lines)


def usage_tables(found: CapsuleUsage, class_names: tuple[str, ...]) -> str:
    """How capsules are used: what is dead or starved and how undecided children are, then tables if these say more.

    They don't where nothing is dead or starved and the types of child are about equally undecided.
    """
    by_type = zip(found.by_type(found.entropy), found.by_type(found.undecided), strict=True)
    shares = [relative_entropy(*pair) for pair in by_type]
    unused = _unused(found)
    lines = [f"{found.num_images:,} test images: {unused or 'no capsule is dead, none starved'}"]
    if (found.undecided > 0).any():
        share, ends = relative_entropy(found.entropy, found.undecided), [f"{end(shares):.1%}" for end in (min, max)]
        types = f"; by type of child {' to '.join(ends)}" if ends[0] != ends[1] else ""
        meaning = "100%: all couplings equal; 0%: each child has one parent"
        lines.append(f"coupling entropy: {share:.1%} ({meaning}){types}")
        lines.append(f"the same, each child weighted by its length: {found.weighted_entropy:.1%}")
    if unused or max(shares) - min(shares) > APART:
        lines += ["", *_usage_rows(found, class_names)]
    return "\n".join(lines)


def _unused(found: CapsuleUsage) -> str:
    """How many capsules are dead and how many starved, or "" where none is."""
    lines = []
    children, parents = (found.dead_children, found.starved_children), (found.dead_parents, found.starved_parents)
    for (dead, starved), name in ((children, "children"), (parents, "parents")):
        lines.append(f"of {len(dead):,} {name} {int(dead.sum()):,} dead, {int(starved.sum()):,} starved")
    return "; ".join(lines) if any(bool(where.any()) for where in (*children, *parents)) else ""


def _usage_rows(found: CapsuleUsage, class_names: tuple[str, ...]) -> list[str]:
    """What the columns are, then a row per type of child and one per parent."""
    measured = [found.child_length, found.child_relative_coupling, found.entropy, found.undecided]
    measured += [found.dead_children, found.starved_children]
    rows = [(str(t), *row) for t, row in enumerate(zip(*map(found.by_type, measured), strict=True))]
    lines = [
        f"dead: never longer than {DEAD_AT_MOST}",
        "relative coupling: the largest c * (edges of the child), 1 while undecided",
        f"starved: never above {STARVED_AT_MOST} of it",
        "entropy: in nat, the mean over images; undecided is a child with equal couplings",
        "",
        "child type  capsules  dead  starved  largest length  relative coupling  mean entropy  of undecided",
    ]
    for name, length, coupling, entropy, undecided, dead, starved in [*rows, ("all", *measured)]:
        mean = float(entropy.mean())
        share = f"{relative_entropy(entropy, undecided):.1%}" if undecided.any() else "-"
        counts = f"{len(length):>8}  {int(dead.sum()):>4}  {int(starved.sum()):>7}"
        numbers = f"{float(length.max()):>14.3f}  {float(coupling.max()):>17.2f}  {mean:>12.3f}  {share:>12}"
        lines.append(f"{name:>10}  {counts}  {numbers}")
    width = max(6, *(len(name) for name in class_names))
    lines += ["", f"{'parent':<{width}}  largest length  relative coupling"]
    for j, name in enumerate(class_names):
        states = ((found.dead_parents, "dead"), (found.starved_parents, "starved"))
        states_of = "".join(f"  {state}" for where, state in states if where[j])
        lines.append(
            f"{name:<{width}}  {found.parent_length[j]:>14.3f}  {found.parent_relative_coupling[j]:>17.2f}{states_of}"
        )
    return lines


def robustness_table(found: dict, class_names: tuple[str, ...]) -> str:
    """Accuracy and winning score of each version of the test images, and the class that each hurts most."""
    width = max(len("as they are"), *(len(row["name"]) for row in found["rows"]))
    lines = [
        f"{found['on']}: {found['says']}",
        f"{'':<{width}}  accuracy       95 % interval   wrong  images  winning score  hurt most (recall lost)",
    ]
    clean = found["rows"][found["clean"]]
    for row in (clean, *(row for row in found["rows"] if row is not clean)):
        name = "as they are" if row is clean else row["name"]
        low, high = row["interval_95"]
        counts = f"{row['images'] - row['correct']:>6,}  {row['images']:>6,}"
        numbers = f"{row['accuracy']:>8.2%}  {low:7.2%} to {high:7.2%}  {counts}  {row['winning_score']:>13.3f}"
        pairs = enumerate(zip(clean["recall"], row["recall"], strict=True))
        lost, k = max((before - after, -k) for k, (before, after) in pairs if None not in (before, after))
        hurt = f"  {class_names[-k]} ({100 * lost:.1f} points)" if lost > 0 else ""
        lines.append(f"{name:<{width}}  {numbers}{hurt}")
    return "\n".join(lines)


def equivariance_table(found: dict, class_names: tuple[str, ...]) -> str:
    """How well a line explains what capsules do, how well the parameter can be read off, and the latter per class."""
    numbers = found["parameters"]
    lines = [
        f"equivariance: the capsule of the class that wins on the clean image, of {found['images']:,} test images",
        "fit: share of the vector's change that a line in the parameter explains, mean (sd) over images",
        "read-out: R^2 of the parameter read linearly off the vector, held-out images, mean (sd) over classes",
        "moved: share of the vector's length, mean (sd) over images; permuted: the same with the values permuted",
        "",
        "parameter  from    to  steps         moved           fit      permuted      read-out      permuted",
    ]
    for name, part in numbers.items():
        first, last = (f"{value:g}" for value in (part["values"][0], part["values"][-1]))
        cells = (_mean_sd(part[key]) for key in ("moved", "fit", "fit_permuted", "readout", "readout_permuted"))
        swept = f"{name:<9}  {first:>4}  {last:>4}  {len(part['values']):>5}"
        lines.append(swept + "".join(f"  {cell:>12}" for cell in cells))
    width = max(len("read-out of"), *(len(name) for name in class_names))
    lines += ["", f"{'read-out of':<{width}}  images" + "".join(f"  {name:>8}" for name in numbers)]
    for k, name in enumerate(class_names):
        parts = [part["per_class"][k] for part in numbers.values()]
        cells = ("-" if part["readout"] is None else f"{part['readout']:.2f}" for part in parts)
        lines.append(f"{name:<{width}}  {parts[0]['images']:>6}" + "".join(f"  {cell:>8}" for cell in cells))
    few = any(part["readout"] is None for part in numbers["rotation"]["per_class"])
    return "\n".join(lines + [f"-: fewer than {MIN_IMAGES} images"] * few)


def _mean_sd(part: dict) -> str:
    return "-" if part["mean"] is None else f"{part['mean']:.2f} ({part['sd']:.2f})"


def predictions(
    run: Run, model: ImageNetwork, images: list[Path], invert: str, top: int, save: Path | None
) -> Iterator[dict]:
    """What the network says of each image file, as ``graphcaps predict --json`` prints it.

    A file that can't be read has an error. What the network sees of the others goes into the folder ``save``, if any.
    """
    spec = DATASETS.get(run.config.dataset)
    inverted = INVERT[invert] if spec or invert != "auto" else False  # a person's own images are taken as they are
    names = input_names(images, save) if save is not None else [None] * len(images)
    for path, name in zip(images, names, strict=True):
        try:
            image = read_image(path, model.image_shape, invert=inverted, ink=spec.ink if spec else None)
        except InputError as error:
            yield {"image": str(path), "error": str(error)}
            continue
        if name is not None:
            write_image(name, image.pixels)
        with torch.no_grad():
            output = model(image.pixels[None])
        found = doubts(model, image.pixels[None], output)[0]
        scores, order = output.scores[0].sort(descending=True, stable=True)  # (J,)
        classes = [model.class_names[k] for k in order]
        answer = classes[0] if model.objects == 1 else classes[: model.objects]
        yield {
            "image": str(path),
            "answer": None if any(doubt.kind == "blank" for doubt in found) else answer,
            "doubts": [doubt._asdict() for doubt in found],
            "classes": [{"class": k, "score": score} for k, score in zip(classes, scores.tolist(), strict=True)][:top],
            "inverted": image.inverted,
        }


def prediction_line(found: dict, invert: str) -> str:
    """Classes by score, such as a capsule's length, highest first, and what is doubtful."""
    why = "; ".join(doubt["text"] for doubt in found["doubts"])
    if found["answer"] is None:
        return f"{found['image']}: no answer: {why}"
    classes = ", ".join(f"{each['class']} {each['score']:.3f}" for each in found["classes"])
    note = " (inverted: its ground is light)" if found["inverted"] and invert == "auto" else ""
    return f"{found['image']}: {classes}{note}" + (f". Doubtful: {why}" if why else "")


def input_names(images: list[Path], folder: Path) -> list[Path]:
    """A file in the folder for each image, a.png to a-input.png; never one of the images, and each name once."""
    taken, names = {path.resolve() for path in images}, []
    for path in images:
        tries = (folder / f"{path.stem}-input{'' if k == 1 else f'-{k}'}.png" for k in itertools.count(1))
        names.append(next(name for name in tries if name.resolve() not in taken))
        taken.add(names[-1].resolve())
    return names


def doubted_line(result: Evaluation, limits: Limits) -> str:
    """How many right and how many wrong answers are doubted."""
    doubted, right = outside(result.evidence, limits).any(dim=1), result.right
    parts = []
    for where, name in ((right, "right"), (~right, "wrong")):
        count, total = int((doubted & where).sum()), int(where.sum())
        parts.append(f"{count} of {total} {name} answers" + (f" ({count / total:.1%})" if total else ""))
    return f"doubted       {', '.join(parts)}"
