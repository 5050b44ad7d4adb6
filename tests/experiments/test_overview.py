"""``graphcaps matters``: stopped and taken up again, honest while it is partial, and each cell what its source says."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from graphcaps.cli import main
from graphcaps.compare import plan as plans
from graphcaps.compare.plan import read_plan
from graphcaps.compare.statistics import paired
from graphcaps.data.graphs import cora as citation
from graphcaps.data.graphs import tu
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.examples import cora, factors, molecules, motifs, trials
from graphcaps.examples.trials import Fit
from graphcaps.matters import work
from graphcaps.matters.table import as_markdown, of_graphs, of_images
from graphcaps.matters.tasks import COLUMNS, TASKS, tasks
from graphcaps.training.run_folder import Run

from . import planetoid, rings, small
from .test_training import stop_at

pytestmark = pytest.mark.usefixtures("one_thread")

MNIST = """
train: {dataset: digits, epochs: 1, batch_size: 40, precision: float32}
networks:
  uniform: {model: compact, routing: uniform}
  dynamic: {model: compact}
seeds: [0, 1]
"""


def cell(row: str, column: int) -> str:
    return row.split("|")[3 + column].strip()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Tasks mnist, cora and mutag, small and quick; what was trained on graphs; and words for the command."""
    data = tmp_path / "data"
    for folder in ("plans", "data", "data/cora"):
        (tmp_path / folder).mkdir()
    np.savez(data / "cora" / "cora.npz", **planetoid.arrays())
    rings.write(data / "tu" / "MUTAG")
    monkeypatch.setattr(citation, "CORA", planetoid.SPEC)
    monkeypatch.setitem(tu.SETS, "MUTAG", rings.spec())
    (tmp_path / "plans" / "matters-mnist.yaml").write_text(MNIST)
    monkeypatch.setattr(plans, "PLANS", tmp_path / "plans")
    small.use(monkeypatch)
    monkeypatch.setattr("graphcaps.compare.work.load_images", lambda name, root: small.digits())
    monkeypatch.setattr(work, "TASKS", tasks(["mnist", "cora", "mutag"]))
    monkeypatch.setattr(work, "tasks", lambda only: [t for t in work.TASKS if not only or t.name in only])
    monkeypatch.setattr(trials, "cores", lambda: 1)
    calls: list = []

    def fit(data, name, settings, *where, epochs):
        calls.append((name, *where))
        truth = data.labels[data.test].numpy() if hasattr(data, "test") else data.labels[data.folds[where[0]]]
        random = np.random.RandomState(sum(map(ord, name)) + where[-1] + 10 * where[0])
        right = random.rand(len(truth)) < 0.7
        return Fit(0.5, 1.0, 1, 10, 0.5, torch.from_numpy(np.where(right, truth, 1 - truth)))

    monkeypatch.setattr(cora, "fit", fit)
    monkeypatch.setattr(molecules, "fit", fit)
    words = ["matters", "--data", str(data), "--device", "cpu", "--to", str(tmp_path / "to")]
    return calls, words, tmp_path / "to"


def test_every_task_has_a_control_and_its_plans_have_the_networks_of_its_columns():
    assert len({title for task in TASKS for title in task.rows}) == len([title for t in TASKS for title in t.rows])
    for task in TASKS:
        assert "uniform" in task.columns and set(task.columns) <= set(COLUMNS)
        names = [name for some in task.columns.values() for name in some]
        if task.plan:
            plan = read_plan(task.plan)
            assert [row.name for row in plan.rows] == names and plan.against == "uniform"
            assert ("affnist" in plan.on) == any(images.startswith("affnist") for images in task.rows.values())
        else:
            others = {"cora": cora.LAYERS, "factors": factors.LAYERS, "motifs": motifs.SETTINGS}
            layers = others.get(task.example, molecules.READOUTS)
            assert sorted(names) == sorted(layers)


def test_a_stopped_table_is_partial_and_goes_on(tiny, tmp_path, monkeypatch, capsys):
    calls, words, folder = tiny
    with monkeypatch.context() as patched:
        stop_at(patched, 4, signal.SIGINT)  # in the second training
        assert main([*words, "--only", "mnist", "cora"]) == 130
    assert f"Go on with: graphcaps {' '.join(words)} --only mnist cora" in capsys.readouterr().err
    small.use(monkeypatch)
    table = (folder / "matters.md").read_text().splitlines()
    mnist, papers, _ = table[2:]
    assert cell(mnist, 0).endswith(", 1 of 2") and [cell(mnist, k) for k in range(1, 7)] == [""] * 6 and not calls
    assert [cell(papers, k) for k in range(7)] == ["", "", "-", "", "-", "-", ""]

    assert main([*words, "--rounds", "1"]) == 0
    results = json.loads((folder / "matters.json").read_text())
    counts = [[[len(one["each"]) for one in some or []] for some in row["cells"].values()] for row in results["rows"]]
    assert counts[0] == [[1], [1], [], [], [], [], []]
    assert counts[1:] == [[[n], [n], [], [n], [], [], [n, n]] for n in (7, 10)]
    assert len([*folder.glob("mnist/*/result.json")]) == 2  # first seeds alone
    before = len(calls)

    assert main(words) == 0
    assert len(calls) - before == 5 * 13  # five networks, the seeds 7 to 19 on Cora
    table = (folder / "matters.md").read_text()
    assert table in capsys.readouterr().out and not re.search(r"\d of \d", table)
    done = len(calls)
    assert main(words) == 0 and len(calls) == done and (folder / "matters.md").read_text() == table
    assert len([*folder.glob("mnist/*/result.json")]) == 4


def test_cells_are_what_the_runs_say(tiny):
    calls, words, folder = tiny
    assert main([*words, "--only", "mnist", "cora"]) == 0
    mnist, papers, molecules_ = json.loads((folder / "matters.json").read_text())["rows"]
    reached = [Run.open(folder / "mnist" / f"dynamic-seed-{k}").result()["test_accuracy"] for k in range(2)]
    (dynamic,) = mnist["cells"]["dynamic"]
    assert dynamic["each"] == pytest.approx(reached) and dynamic["sd"] == pytest.approx(np.std(reached, ddof=1))
    (uniform,) = mnist["cells"]["uniform"]
    assert dynamic["difference"] == pytest.approx(dynamic["mean"] - uniform["mean"]) and "difference" not in uniform
    gat, (uniform,) = papers["cells"]["no capsules"][1], papers["cells"]["uniform"]
    low, high = ttest_rel(gat["each"], uniform["each"]).confidence_interval()
    assert gat["name"] == "GAT" and gat["interval"] == pytest.approx([low, high])
    assert set(map(str, molecules_["cells"].values())) == {"[]", "None"}


def test_a_task_that_fails_does_not_stop_the_others(tiny, monkeypatch, capsys):
    calls, words, folder = tiny

    def no_papers(data):
        raise GraphcapsError("cora: expected files")

    monkeypatch.setattr(work, "load_cora", no_papers)
    assert main([*words, "--only", "cora", "mutag"]) == 1
    assert capsys.readouterr().err == "graphcaps: cora: cora: expected files\n"
    rows = json.loads((folder / "matters.json").read_text())["rows"]
    assert [len(row["cells"]["uniform"]) for row in rows] == [0, 0, 1]


def test_wrong_names_and_rounds_are_answered_in_one_line(tmp_path, capsys):
    assert main(["matters", "--only", "factor-4", "--to", str(tmp_path / "to")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("graphcaps: only: expected one of mnist, pairs, places, anywhere,") and said.count("\n") == 1
    assert "got 'factor-4'" in said and "Did you mean factors-4?" in said
    assert main(["matters", "--rounds", "0", "--to", str(tmp_path / "to")]) == 2
    assert "rounds: expected an integer >= 1, got 0" in capsys.readouterr().err and not (tmp_path / "to").exists()
    with pytest.raises(InputError, match="got 'mnits'. Did you mean mnist"):
        tasks(["mnist", "mnits"])


def test_an_empty_table_has_all_tasks_and_says_what_can_not_be():
    rows = [row for t in TASKS for row in (of_images(t, None, 3) if t.plan else of_graphs(t, {}, 10))]
    lines = as_markdown({"columns": COLUMNS, "rows": rows}).splitlines()
    assert len(lines) == 2 + sum(len(task.rows) for task in TASKS)
    assert all({cell(line, k) for k in range(7)} <= {"", "-"} and line.count("|") == 10 for line in lines[2:])
    assert [cell(lines[3], k) for k in range(7)] == [*[""] * 6, "-"]  # two digits: no CNN


def test_folds_that_share_their_training_graphs_have_a_wider_interval():
    ours, theirs = [0.8, 0.7, 0.9, 0.75], [0.7, 0.7, 0.8, 0.8]
    low, high = ttest_rel(ours, theirs).confidence_interval()
    assert paired([*ours, 0.1], theirs) == pytest.approx((0.0375, low, high))
    apart, wide_low, wide_high = paired(ours, theirs, 0.25)
    assert wide_high - wide_low == pytest.approx((high - low) * 2**0.5) and apart == pytest.approx(0.0375)
    assert paired([0.8], theirs) is None
