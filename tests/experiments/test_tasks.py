"""Tasks on graphs: no training sees test labels, measures are right, and a table has all networks."""

import dataclasses
import json
from functools import partial

import pytest
import torch

from experiments.__main__ import main
from experiments.data.factors import factor_graph
from experiments.run import Place
from experiments.tasks import cora, factors, interests, known, molecules, relations

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.long]


@pytest.fixture
def place(data, tmp_path) -> Place:
    return Place(data, tmp_path / "cache", processes=1)


@pytest.fixture
def small_graphs(monkeypatch):
    """Graphs with latent factors, 96 nodes and 4 classes."""
    monkeypatch.setattr(factors, "factor_graph", partial(factor_graph, nodes=96, classes=4, degree=10.0))


CASES = [
    (cora.TASK, "Correct and Smooth", {}),
    (molecules.TASKS["mutag"], "capsules", {"data": "mutag"}),
    (factors.TASK, "BeliefConv", {"factors": 4}),
    (relations.TASK, "mutual", {"data": "HumanGO"}),
    (relations.TASK, "mutual", {"data": "UMLS"}),
    (relations.TASK, "linearized belief propagation", {"data": "HumanGO"}),
]


@pytest.mark.parametrize(("task", "network", "case"), CASES, ids=lambda part: getattr(part, "name", ""))
def test_training_sees_no_test_label(task, network, case, place, small_graphs, monkeypatch):
    settings = task.networks(**case)[network][0]
    first = task.fit(place, network, settings, 0, True, **case)

    def flipped(original, *arguments):
        data = original(*arguments)
        test = data.folds[0] if task is molecules.TASKS["mutag"] else data.test
        other = data.labels + 0
        other[test] = (other[test] + 1) % (int(other.max()) + 1)
        kinds = {"kinds": data.kinds[torch.randperm(len(data.kinds))]} if hasattr(data, "kinds") else {}
        return dataclasses.replace(data, labels=other, **kinds)

    for module, reader in ((cora, "load_cora"), (molecules, "load_graphs"), (factors, "factor_graph")):
        monkeypatch.setattr(module, reader, partial(flipped, getattr(module, reader)))
    for name, reader in relations.DATA.items():
        monkeypatch.setitem(relations.DATA, name, partial(flipped, reader))
    second = task.fit(place, network, settings, 0, True, **case)
    same = ("val_accuracy", "val_loss", "epoch", "parameters")
    assert [second.get(key) for key in same] == [first.get(key) for key in same] and second["test"] != first["test"]


def test_the_users_of_a_test_are_in_no_training_and_no_history_shows_what_comes_later(place, monkeypatch):
    folds = [interests.load(place, fold) for fold in range(3)]
    assert len(torch.cat([data.test for data in folds]).unique()) == 12
    for data in folds:
        assert torch.cat([data.train, data.val, data.test]).sort().values.tolist() == [*range(40)]
        at = data.start[data.test] + 3
        items, present = data.history(at)
        assert present.sum(1).tolist() == [3] * 4
        assert items[1, :3].tolist() == data.item[at[1] - 3 : at[1]].flip(0).tolist()
        first, seen, hidden = data.parts(data.test)
        assert not (seen & hidden).any() and data.user[first].tolist() == data.test.tolist()
    monkeypatch.setattr(interests, "BEST", 2)
    hidden = torch.tensor([[True, False, True, True], [False, True, False, False]])
    scores = torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 0.0]])
    assert interests.recall(scores, hidden) == pytest.approx(2 / 3)


@pytest.mark.parametrize("method", [*known.METHODS, *known.FITTED])
def test_no_method_sees_the_classes_that_it_is_to_find(place, monkeypatch, method):
    monkeypatch.setattr(known, "EPOCHS", 2)
    data = known.DATA["4 factors, published"](place.data, 0)
    labels = data.labels.index_fill(0, torch.arange(0, len(data.labels), 3), -1)
    results = []
    for order in (torch.arange(4), torch.arange(3, -1, -1)):  # the hidden classes, and others in their place
        torch.manual_seed(0)
        truth = torch.where(labels < 0, data.labels[:, order], data.labels)
        results.append((known.METHODS | known.FITTED)[method](dataclasses.replace(data, labels=truth), labels))
    assert results[0].shape == data.labels.shape and torch.equal(*results)


QUICK = {
    "mutag": ((), molecules.READOUTS),
    "factors": ((), [*factors.LAYERS, factors.BOUND]),
    "relations": (("--only", "UMLS"), [*relations.LAYERS, "unit votes", "R-GCN, told", *relations.FURTHER]),
    "planted": (("--only", "Cora"), ["all"]),
    "defaults": (("--only", "4 factors, published", "Cora"), ("uniform", "kappa from 0.1", "kappa from 0.5")),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_table_leaves_the_results_alone_and_has_all_networks(place, small_graphs, capsys, name):
    only, networks = QUICK[name]
    places = ["--data", str(place.data), "--cache", str(place.cache), "--to", str(place.cache / "to")]
    assert main([name, "--quick", "--seeds", "2", *only, *places]) == 0
    result, printed = json.loads((place.cache / f"{name}.json").read_text()), capsys.readouterr().out
    assert not (place.cache / "to").exists() and (place.cache / f"{name}.md").read_text() in printed
    assert {row["name"] for row in result[name]} >= {*networks}
    assert all(len(row["test"]) == 2 for row in result[name] if "test" in row)
