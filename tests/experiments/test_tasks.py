"""The tasks on graphs choose fairly and without test labels, count what they say, and their command goes on."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch

from experiments import run, table
from experiments.__main__ import main
from experiments.data.cora import load_cora
from experiments.data.factors import factor_graph
from experiments.data.motifs import motif_graphs
from experiments.data.tu import load_graphs
from experiments.run import Place
from experiments.tasks import cora, factors, molecules, motifs
from graphcaps.trace import RoutingTrace

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(data, tmp_path) -> Place:
    return Place(data, tmp_path / "cache", processes=1)


@pytest.fixture
def few(monkeypatch):
    """Sixty graphs of motifs, graphs of factors with 96 nodes of 4 classes, and few epochs."""
    shrunk = partial(factor_graph, nodes=96, classes=4, degree=10.0)
    monkeypatch.setattr(factors, "factor_graph", shrunk)
    monkeypatch.setattr(motifs, "GRAPHS", 60)
    monkeypatch.setattr(motifs, "BATCH", 21)
    return shrunk


def timeless(result: dict) -> dict:
    return {**result, "seconds": 0}


# No training sees a test label


def flipped(data, labels):
    """The data with other labels in the test part, which must not change what is trained and chosen."""
    return dataclasses.replace(data, labels=labels)


def test_training_on_cora_sees_no_test_label(place, monkeypatch):
    first = cora.fit(place, "capsules", cora.SETTINGS["capsules"][0], 0, 8)
    papers = load_cora(place.data)
    labels = papers.labels.clone()
    labels[papers.test] = (labels[papers.test] + 1) % papers.num_classes
    monkeypatch.setattr(cora, "load_cora", lambda root: flipped(papers, labels))
    assert timeless(cora.fit(place, "capsules", cora.SETTINGS["capsules"][0], 0, 8)) == timeless(first)


def test_training_on_a_fold_sees_no_test_label(place, monkeypatch):
    job = ("mutag", "capsules", molecules.SETTINGS[0], 3, 0, 4)
    first, graphs = molecules.fit(place, *job), load_graphs("MUTAG", place.data)
    labels = graphs.labels.copy()
    labels[graphs.folds[3]] = 1 - labels[graphs.folds[3]]
    monkeypatch.setattr(molecules, "load_graphs", lambda name, root: flipped(graphs, labels))
    assert timeless(molecules.fit(place, *job)) == timeless(first)


def test_training_on_factors_sees_no_test_label_and_learns(place, few, monkeypatch):
    settings, data = {"layers": 1, "heads": "own", "lr": 0.02}, few(0, 2)
    first = factors.fit(place, "capsules", settings, 0, 2, 25)
    assert run.accuracy(first, data.labels[data.test]) > 0.4  # 0.25 by chance
    labels = data.labels.clone()
    labels[data.test] = (labels[data.test] + 1) % data.num_classes
    monkeypatch.setattr(factors, "factor_graph", lambda seed, count: flipped(data, labels))
    assert timeless(factors.fit(place, "capsules", settings, 0, 2, 25)) == timeless(first)


def test_training_on_motifs_sees_no_test_label(place, few, monkeypatch):
    job = ("capsules", motifs.SETTINGS["capsules"][0], 0, 4, 3)
    first, data = motifs.fit(place, *job), motif_graphs(0, 4, 60)
    labels = data.labels.copy()
    labels[data.test] = 1 - labels[data.test]
    monkeypatch.setattr(motifs, "motif_graphs", lambda *given: flipped(data, labels))
    assert timeless(motifs.fit(place, *job)) == timeless(first)


def test_the_parts_of_each_fold_are_disjoint_complete_and_stratified(place):
    graphs = load_graphs("MUTAG", place.data)
    for fold in range(10):
        train, val, test = molecules.split(graphs, fold, 1)
        assert sorted([*train, *val, *test]) == list(range(len(graphs)))
        assert test.tolist() == graphs.folds[fold].tolist() and len(val) == round((64 - 6) / 10)
        shares = [graphs.labels[part].mean() for part in (np.concatenate([train, val]), val)]
        assert abs(shares[0] - shares[1]) * len(val) < 1


# What is counted


def test_couplings_that_know_the_factors_score_one_whatever_the_capsules_are_called(few):
    data = few(0, 3)
    known = data.factors.float()[:, [2, 0, 1]] + 0.1
    found = factors.recovery(known, data)
    which, factor = data.single()
    first, second, third = torch.bincount(factor).tolist()
    assert found["score"] == pytest.approx(1)
    assert found["table"] == [[0, first, 0], [0, 0, second], [third, 0, 0]]
    src, dst = (ends[which].tolist() for ends in data.graph.edges())
    wanted = [[u, f, [1, 2, 0][f]] for u, v, f in zip(src, dst, factor.tolist(), strict=True) if v == 0]
    assert found["edges"] == wanted
    torch.manual_seed(0)
    assert abs(factors.recovery(torch.rand(len(known), 3), data)["score"]) < 0.02


# The command


def words(place: Place, *more: str) -> list[str]:
    return [*more, "--data", str(place.data), "--cache", str(place.cache), "--to", str(place.cache / "to")]


@pytest.mark.parametrize("name", ["mutag", pytest.param("cora", marks=pytest.mark.long)])
def test_a_quick_look_leaves_the_results_and_writes_a_row_per_network(place, capsys, name):
    assert main(words(place, name, "--quick", "--seeds", "2")) == 0
    result, printed = json.loads((place.cache / f"{name}.json").read_text()), capsys.readouterr().out
    assert not (place.cache / "to").exists() and (place.cache / f"{name}.md").read_text() in printed
    (part,) = result["parts"]
    assert [row["name"] for row in part["rows"]] == list(cora.LAYERS if name == "cora" else molecules.READOUTS)
    for row in part["rows"]:
        assert row["test_sd"] == pytest.approx(np.std(row["test"], ddof=1)) and len(row["test"]) == 2
        assert f"| **{row['test_mean'] * 100:.2f}** +- {row['test_sd'] * 100:.2f} |" in printed
    if name == "mutag":
        traces = [RoutingTrace.load(path) for path in (place.cache / "mutag").glob("graph-*.npz")]
        assert {(trace.num_iterations, trace.trained_iterations) for trace in traces} == {(10, 3)}
        assert {int(trace.labels[0]) for trace in traces} == {0, 1}


def test_a_stopped_command_goes_on_and_gives_the_same(place, few, monkeypatch, capsys):
    settings = {network: [factors.SETTINGS[network][1]] for network in factors.LAYERS}
    small = {"SETTINGS": settings, "EPOCHS": 1, "SEEDS": 2, "NUMBERS": (2, 3), "TRIAL_SEEDS": (7,)}
    for name, value in small.items():
        monkeypatch.setattr(factors, name, value)
    monkeypatch.setattr(run, "cores", lambda: 1)
    fit, ended = run.fit, []

    def stopping(*given, **options):
        if len(ended) == 5:
            raise KeyboardInterrupt
        ended.append(fit(*given, **options))
        return ended[-1]

    monkeypatch.setattr(run, "fit", stopping)
    assert main(words(place, "factors")) == 130 and len([*place.cache.glob("*.json")]) == 5
    monkeypatch.setattr(run, "fit", fit)
    assert main(words(place, "factors")) == 0
    found = [json.loads((place.cache / "to" / "factors.json").read_text())]
    assert (
        place.cache / "to" / "factors-2.png"
    ).is_file() and "Told how the graphs were drawn" in capsys.readouterr().out
    other = dataclasses.replace(place, cache=place.cache / "other")
    assert main(words(other, "factors")) == 0
    found.append(json.loads((other.cache / "to" / "factors.json").read_text()))
    rows, again = ([row["test"] for part in each["parts"] for row in part["rows"]] for each in found)
    assert rows == again and len(rows) == 12


def test_mistakes_are_answered_in_one_line(capsys):
    assert main(["routing"]) == 2
    assert capsys.readouterr().err.startswith("experiments: plan: expected a YAML file, got routing: ")
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(
        f"  {name} " in listed for name in ("routings", "cora", "factors", "overview", "pruning RUN", "bench NAME")
    )


def test_a_table_is_the_one_of_its_results(tmp_path):
    found = table.read("motifs")
    assert (
        table.write("motifs", found, tmp_path) == table.graphs(found) == (tmp_path / "motifs.md").read_text().rstrip()
    )
    assert json.loads((tmp_path / "motifs.json").read_text()) == found
