"""Plans, and a comparison that is stopped, shared and taken up again."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest
import torch

from graphcaps import GraphcapsError, InputError
from graphcaps.cli import main
from graphcaps.compare import work
from graphcaps.compare.plan import measured, plan_names, read_plan
from graphcaps.compare.work import compare
from graphcaps.data import to_float
from graphcaps.models import CNN
from graphcaps.training import loop
from graphcaps.training.run_folder import Run
from graphcaps.viz import compared

from . import small
from .test_training import stop_at

TINY = """
train: {dataset: digits, epochs: 1, batch_size: 40, precision: float32}
networks:
  dynamic: {model: compact}
  CNN: {model: cnn-small}
seeds: [0, 1]
"""


def written(tmp_path, text: str):
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    return read_plan(str(path))


# Plans


@pytest.mark.parametrize("name", plan_names())
def test_every_plan_that_comes_along_can_be_trained(name):
    plan = read_plan(name)
    assert len(plan.cells) == len(plan.rows) * len(plan.seeds) == len({cell.folder for cell in plan.cells})


def test_a_grid_has_each_network_with_each_value_and_the_first_seed_first(tmp_path):
    plan = written(tmp_path, TINY + "vary: {iterations: [1, 3]}\n")
    assert [cell.folder for cell in plan.cells[:4]] == [
        "dynamic-iterations-1-seed-0", "dynamic-iterations-3-seed-0", "cnn-iterations-1-seed-0",
        "cnn-iterations-3-seed-0",
    ]  # fmt: skip
    config = plan.config(plan.cells[5], tmp_path, tmp_path, "cpu")
    assert (config.iterations, config.seed, config.model, config.epochs) == (3, 1, "compact", 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- 1", "plan: expected entries train, networks"),
        ("{", "plan: expected a YAML file"),
        ("networks: {}", "networks: expected a name and settings for each, got {}"),
        (
            TINY + "sedes: [1]",
            "entry: expected one of train, networks, vary, seeds, test_on, against, got 'sedes'. Did you m",
        ),
        (TINY.replace("[0, 1]", "[0, 0]"), "seeds: expected a list of different integers >= 0, got [0, 0]"),
        (TINY.replace("epochs", "epoch"), "train: setting: expected one of dataset, model"),
        (TINY.replace("epochs: 1", "seed: 1"), "got 'seed'"),
        (TINY.replace("compact", "compatc"), "dynamic: model: expected one of parts, compact"),
        (TINY.replace("epochs: 1", "epochs: 0"), "dynamic: epochs: expected an integer >= 1, got 0"),
        (TINY + "test_on: [affnist]", "test_on: expected dataset mnist40 for affnist in dynamic, got digits"),
        (TINY + "test_on: [rotated]", "test_on: expected one of affnist, got 'rotated'"),
        (TINY + "against: CNM", "against: expected one of the rows dynamic; CNN, got CNM"),
        (
            TINY.replace("CNN:", "Dynamic:"),
            "networks: expected names that differ in letters or digits, got Dynamic; dyn",
        ),
        (TINY + "vary: {model: [compact]}", "dynamic: expected no settings that vary has, got model"),
        (TINY.replace("cnn-small", "compact"), "networks: expected rows with different settings, got dynamic; CNN"),
        (
            TINY.replace("cnn-small", "cnn-small, dataset: mnist"),
            "dataset: expected one for all networks, whose answers",
        ),
        (TINY.replace("CNN:", "dynamic:"), "dynamic stands twice in line 4"),
        (TINY + "vary: {iterations: 3}", "vary: iterations: expected a list of values, got 3"),
    ],
)
def test_a_plan_that_can_not_be_trained_is_refused_with_its_reason(tmp_path, text, wanted):
    with pytest.raises(InputError) as error:
        written(tmp_path, text)
    assert wanted in str(error.value) and "tiny.yaml" in str(error.value)


def test_no_such_plan_names_those_there_are():
    with pytest.raises(
        InputError, match="plan: expected a YAML file, or one of .*routings.*, got routing. Did you mean routings"
    ):
        read_plan("routing")


# Work


@pytest.fixture
def plan(tmp_path, monkeypatch):
    small.use(monkeypatch)
    monkeypatch.setattr("graphcaps.compare.work.load_images", lambda name, root: small.digits())
    return written(tmp_path, TINY)


def test_a_comparison_is_what_its_runs_say(plan, tmp_path):
    results = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    assert json.loads((tmp_path / "to" / "results.json").read_text()) == results
    assert (results["asked"], results["trained"]) == (4, 4)
    for row in results["rows"]:
        found = [Run.open(tmp_path / "to" / f"{row['name'].lower()}-seed-{seed}").result() for seed in (0, 1)]
        accuracies = [one["test_accuracy"] for one in found]
        assert row["images"]["test"]["mean"] == pytest.approx(np.mean(accuracies))
        assert row["images"]["test"]["sd"] == pytest.approx(np.std(accuracies, ddof=1))
        assert [seed["wrong"]["test"] for seed in row["seeds"]] == [41 - one["test_correct"] for one in found]
    dynamic, cnn = results["rows"]
    assert "difference" not in dynamic["images"]["test"] and len(cnn["images"]["test"]["mcnemar"]) == 2
    assert [layer["capsules"] for layer in dynamic["seeds"][0]["capsules"]] == [26] and cnn["seeds"][0][
        "capsules"
    ] is None
    assert (tmp_path / "to" / "table.md").read_text().count("\n") == 4
    assert (tmp_path / "to" / "accuracy.png").stat().st_size > 1000


def test_stopped_and_taken_up_it_gives_the_same(plan, tmp_path, monkeypatch):
    whole = compare(plan, tmp_path / "whole", tmp_path, "cpu", say=lambda line: None)
    stop_at(monkeypatch, 2, signal.SIGINT)
    with pytest.raises(GraphcapsError, match="Go on with: graphcaps compare .*tiny.yaml --data .* --to") as stopped:
        compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    assert stopped.value.signum == signal.SIGINT
    monkeypatch.undo()
    small.use(monkeypatch)
    monkeypatch.setattr("graphcaps.compare.work.load_images", lambda name, root: small.digits())
    again = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    for ours, theirs in zip(again["rows"], whole["rows"], strict=True):
        assert ours["images"] == theirs["images"]


def test_what_is_trained_and_measured_is_not_done_again(plan, tmp_path, monkeypatch):
    first = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)

    def never(*args, **kwargs):
        raise AssertionError

    for name in ("train", "load", "capsule_usage_of_layers"):
        monkeypatch.setattr(f"graphcaps.compare.work.{name}", never)
    assert compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None) == first


def test_a_run_that_another_process_trains_is_passed_over(plan, tmp_path):
    held = Run.create(plan.config(plan.cells[1], tmp_path / "to", tmp_path, "cpu"))
    lines = []
    with held.lock():
        results = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lines.append)
    assert results["trained"] == 3 and "1 of 4 are trained by another process" in lines[-1]
    started = [re.sub(r"about \d+ s left", "about so long left", line) for line in lines if line.startswith("[")]
    assert ["left" in line for line in started] == [False, True, True, True]  # one must have been trained to know
    assert started[3] == f"[4/4] {plan.cells[3].row.name}, seed {plan.cells[3].seed}, about so long left"
    dynamic, cnn = results["rows"]
    assert (len(dynamic["seeds"]), len(cnn["seeds"])) == (2, 1)
    (seed,) = cnn["seeds"]  # only the seed that both have is compared
    same = next(one for one in dynamic["seeds"] if one["seed"] == seed["seed"])
    apart = seed["accuracy"]["test"] - same["accuracy"]["test"]
    assert cnn["images"]["test"]["difference"] == pytest.approx(apart)


@pytest.mark.long
def test_a_run_that_another_process_is_about_to_make_is_passed_over(plan, tmp_path):
    config = plan.config(plan.cells[1], tmp_path / "to", tmp_path, "cpu")
    with work._claimed(config):
        results = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    assert results["trained"] == 3


def test_what_another_process_has_measured_is_in_the_table_at_once(plan, tmp_path, monkeypatch):
    whole = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    for cell in plan.cells[1:]:
        (tmp_path / "to" / cell.folder).rename(tmp_path / cell.folder)
    measure, seen = work._measured, []

    def meanwhile(*arguments):
        for cell in plan.cells[2:]:
            if (tmp_path / cell.folder).exists():
                (tmp_path / cell.folder).rename(tmp_path / "to" / cell.folder)
        return measure(*arguments)

    write = work._write
    monkeypatch.setattr(work, "_measured", meanwhile)
    monkeypatch.setattr(work, "_write", lambda *arguments: seen.append(write(*arguments)) or seen[-1])
    assert compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)["trained"] == 4
    assert seen[0]["trained"] == 4 and whole["trained"] == 4


@pytest.mark.parametrize("text", ["{", *(pytest.param(text, marks=pytest.mark.long) for text in ("", "[]", "{}"))])
def test_what_was_measured_and_is_damaged_is_measured_again(plan, tmp_path, text):
    whole = compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    (tmp_path / "to" / plan.cells[0].folder / work.MEASURED).write_text(text)
    assert compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None) == whole


def test_a_training_that_diverges_leaves_the_others_alone(plan, tmp_path, monkeypatch):
    step = loop.training_step

    def broken(learner, *batch):
        loss, output = step(learner, *batch)
        return (loss * float("nan") if isinstance(learner.network, CNN) and torch.initial_seed() == 0 else loss), output

    monkeypatch.setattr(loop, "training_step", broken)
    with pytest.raises(GraphcapsError, match="expected 4 trainings, these diverged: cnn-seed-0"):
        compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    assert json.loads((tmp_path / "to" / "results.json").read_text())["trained"] == 3


def test_a_run_with_other_settings_is_not_taken_for_the_plans(plan, tmp_path):
    compare(plan, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    other = written(tmp_path, TINY.replace("epochs: 1", "epochs: 2"))
    with pytest.raises(
        GraphcapsError, match="expected a training with epochs 2, as the plan says, got 1. Name another"
    ):
        compare(other, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)


@pytest.fixture
def affine(tmp_path, monkeypatch):
    """A plan of one network that is also tested on its validation images, of which the first 10 are called within."""
    images = small.digits(size=40)
    small.use(monkeypatch, images)
    for name, value in (
        ("load_images", lambda name, root: images),
        ("load_affnist", lambda root: (images.val, "other")),
        ("within", lambda images: torch.arange(len(images)) < 10),
    ):
        monkeypatch.setattr(f"graphcaps.compare.work.{name}", value)
    text = TINY.replace("digits", "mnist40").replace("[0, 1]", "[0]").replace("  dynamic: {model: compact}\n", "")
    return written(tmp_path, text + "test_on: [affnist]")


def test_affnist_is_measured_beside_the_test_images_whole_and_in_parts(affine, tmp_path):
    results = compare(affine, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    parts = {"affnist within": "other (within)", "affnist beyond": "other (beyond)"}
    assert results["images"] == {"test": "test", "affnist": "other", **parts}
    (row,) = results["rows"]
    found, (seed,) = row["images"], row["seeds"]
    assert [found[name]["count"] for name in ("affnist", *parts)] == [40, 10, 30] and found["affnist"]["sd"] is None
    # on the very validation images, whose accuracy training has written down
    assert found["affnist"]["mean"] == pytest.approx(seed["val_accuracy"])
    kept = json.loads((tmp_path / "to" / "cnn-seed-0" / work.MEASURED).read_text())["on"]["affnist"]["right"]
    assert [seed["accuracy"][name] for name in parts] == pytest.approx([np.mean(kept[:10]), np.mean(kept[10:])])
    assert seed["wrong"]["affnist within"] + seed["wrong"]["affnist beyond"] == seed["wrong"]["affnist"]
    table = (tmp_path / "to" / "table.md").read_text()
    assert "| other (within) accuracy (10) |" in table and "| other (beyond) accuracy (30) |" in table


def test_capsules_are_counted_on_the_images_that_chose_the_epoch(tmp_path, monkeypatch):
    images, seen = small.digits(), []
    small.use(monkeypatch)
    monkeypatch.setattr("graphcaps.compare.work.load_images", lambda name, root: images)
    count = work.capsule_usage_of_layers
    monkeypatch.setattr(
        work, "capsule_usage_of_layers", lambda model, part, told: seen.append(part) or count(model, part, told)
    )
    text = TINY.replace("digits", "mnist40").replace("[0, 1]", "[0]").replace("  CNN: {model: cnn-small}\n", "")
    compare(
        written(tmp_path, text.replace("compact", "compact, augment: anywhere")),
        tmp_path / "to", tmp_path, "cpu", say=lambda line: None,
    )  # fmt: skip
    (batches,) = seen
    counted = torch.cat([part for part, _ in batches.in_order()])
    assert torch.equal(counted, to_float(images.for_augment("anywhere").val.pixels))
    assert not torch.equal(counted, to_float(images.val.pixels))


@pytest.mark.long
def test_what_was_measured_before_there_were_parts_is_measured_again(affine, tmp_path):
    whole = compare(affine, tmp_path / "to", tmp_path, "cpu", say=lambda line: None)
    path = tmp_path / "to" / "cnn-seed-0" / work.MEASURED
    kept = json.loads(path.read_text())
    del kept["on"]["affnist"]["within"]
    path.write_text(json.dumps(kept))
    assert compare(affine, tmp_path / "to", tmp_path, "cpu", say=lambda line: None) == whole


def test_the_command_prints_the_table(plan, tmp_path, capsys):
    assert main(["compare", plan.source, "--to", str(tmp_path / "to"), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "4 of 4 trainings" in shown and shown.count("\n| ") == 3 and "table.md" in shown
    assert main(["compare", "routing"]) == 2


# The picture


def test_the_picture_has_a_dot_per_seed_and_the_mean():
    def row(name, values):
        seeds = [{"accuracy": {"test": value}} for value in values]
        return {
            "name": name, "settings": {}, "seeds": seeds,
            "images": {"test": {"mean": float(np.mean(values)), "sd": float(np.std(values))}},
        }  # fmt: skip

    rows = [row("a", [0.9, 0.95]), row("b", [0.8, 0.7])]
    figure = compared({"plan": "p", "against": "a", "images": {"test": "test"}, "rows": rows})
    (axes,) = figure.axes
    dots = [line.get_xdata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[0.9, 0.95], [0.8, 0.7]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_panels_stand_two_side_by_side_and_none_covers_another():
    results = measured("affnist")
    assert [*results["images"]] == ["test", "affnist", "affnist within", "affnist beyond"]
    boxes = [axes.get_position() for axes in compared(results).axes]
    assert len(boxes) == 4 and boxes[0].y0 == boxes[1].y0 > boxes[2].y1 and boxes[0].x0 == boxes[2].x0
    assert boxes[0].x1 < boxes[1].x0 and boxes[2].y0 == boxes[3].y0 > 0
