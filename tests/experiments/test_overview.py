"""The table of all tasks: stopped and taken up again, honest while it is partial, each cell what its source says."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy.stats import ttest_rel

from experiments import plan as plans
from experiments import run
from experiments.__main__ import main
from experiments.data.cora import load_cora
from experiments.data.tu import load_graphs
from experiments.tasks import cora, images, molecules, overview
from experiments.tasks.overview import COLUMNS, TASKS

from .. import small

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
def tiny(data, tmp_path, monkeypatch):
    """Tasks mnist, cora and mutag, small and quick; what was trained on graphs; and words for the command."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "mnist.yaml").write_text(MNIST)
    monkeypatch.setattr(plans, "PLANS", tmp_path / "plans")
    small.use(monkeypatch)
    monkeypatch.setattr(images, "load_images", lambda name, root: small.digits())
    monkeypatch.setattr(overview, "TASKS", {name: TASKS[name] for name in ("mnist", "cora", "mutag")})
    monkeypatch.setattr(run, "cores", lambda: 1)
    calls: list = []

    def fitted(network: str, truth, *where: int) -> dict:
        calls.append((network, *where))
        random = np.random.RandomState(sum(map(ord, network)) + where[-1] + 10 * where[0])
        predicted = np.where(random.rand(len(truth)) < 0.7, truth, 1 - truth).tolist()
        fit = {"val_accuracy": 0.5, "val_loss": 1.0, "epoch": 1, "parameters": 10, "seconds": 0.5}
        return fit | {"predicted": predicted}

    def paper_fit(place, network, settings, seed, epochs):
        papers = load_cora(place.data)
        return fitted(network, papers.labels[papers.test].numpy(), seed)

    def molecule_fit(place, data, network, settings, fold, seed, epochs):
        graphs = load_graphs("MUTAG", place.data)
        return fitted(network, graphs.labels[graphs.folds[fold]], fold, seed)

    monkeypatch.setattr(cora, "fit", paper_fit)
    monkeypatch.setattr(molecules, "fit", molecule_fit)
    words = ["overview", "--data", str(data), "--device", "cpu", "--cache", str(tmp_path / "cache")]
    return calls, [*words, "--to", str(tmp_path / "to")], tmp_path / "cache", tmp_path / "to"


def test_a_stopped_table_is_partial_and_goes_on(tiny, monkeypatch, capsys):
    calls, words, cache, to = tiny
    with monkeypatch.context() as patched:
        patched.setattr(images, "_usage", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*words, "--only", "mnist", "cora"]) == 130
    assert main([*words, "--only", "cora"]) == 0 and not to.exists()
    lines = (cache / "overview.md").read_text().splitlines()
    mnist, papers, graphs = lines[2:]
    assert {cell(mnist, k) for k in range(7)} == {cell(graphs, 0)} == {""} and cell(papers, 2) == "-"
    rows = json.loads((cache / "overview.json").read_text())["rows"]
    assert [len(one["each"]) for some in rows[1]["cells"].values() for one in some or []] == [20] * 5
    monkeypatch.setattr(overview, "COLUMNS", COLUMNS[:2])  # else the columns of mnist have no networks here
    before = len(calls)
    assert main(words) == 0
    assert len(calls) - before == 5 * 4 * 10  # five readouts, four settings, ten folds
    text = (cache / "overview.md").read_text()
    assert text in capsys.readouterr().out and not re.search(r"\d of \d", text)
    done = len(calls)
    assert main(words) == 0 and len(calls) == done


def test_cells_are_what_the_trainings_say(tiny):
    calls, words, cache, _ = tiny
    assert main([*words, "--only", "mnist", "cora"]) == 0
    mnist, papers, graphs = json.loads((cache / "overview.json").read_text())["rows"]
    (dynamic,), (uniform,) = mnist["cells"]["dynamic"], mnist["cells"]["uniform"]
    reached = [json.loads(path.read_text()) for path in cache.glob("runs/*/result.json")]
    wanted = [each["test_accuracy"] for each in reached if "uniform" not in each["command"]]
    assert sorted(dynamic["each"]) == pytest.approx(sorted(wanted))
    assert dynamic["difference"] == pytest.approx(dynamic["mean"] - uniform["mean"]) and "difference" not in uniform
    gat, (uniform,) = papers["cells"]["no capsules"][1], papers["cells"]["uniform"]
    low, high = ttest_rel(gat["each"], uniform["each"]).confidence_interval()
    assert gat["name"] == "GAT" and gat["interval"] == pytest.approx([low, high])
    assert set(map(str, graphs["cells"].values())) == {"[]", "None"}
