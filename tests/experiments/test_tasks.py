"""Tasks on graphs: no training sees test labels, measures are right, and the command continues a stopped task."""

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import torch

from experiments.__main__ import main
from experiments.data import tu
from experiments.data.factors import factor_graph
from experiments.run import Place
from experiments.tasks import cora, defaults, factors, interests, known, labels, molecules, relations

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def place(data, tmp_path) -> Place:
    return Place(data, tmp_path / "cache", processes=1)


@pytest.fixture
def few(monkeypatch):
    """Graphs with latent factors, 96 nodes and 4 classes."""
    monkeypatch.setattr(factors, "factor_graph", partial(factor_graph, nodes=96, classes=4, degree=10.0))
    return factors.factor_graph


JOBS = {
    "cora": lambda place: cora.fit(place, "capsules", cora.SETTINGS["capsules"][0], 0, 8),
    "molecules": lambda place: molecules.fit(place, "mutag", "capsules", molecules.SETTINGS[0], 3, 0, 4),
    "factors": lambda place: factors.fit(place, "capsules", {"layers": 1, "heads": "own", "lr": 0.02}, 0, 2, 25),
    "HumanGO": lambda place: relations.fit(place, "mutual", relations.SETTINGS["mutual"][0], 0, "HumanGO", 3),
    "UMLS": lambda place: relations.fit(place, "mutual", relations.SETTINGS["mutual"][0], 0, "UMLS", 3),
    "beliefs": lambda place: labels.fit(place, "beliefs", labels._BELIEFS[0], 0, labels.DATA[0], "told", True),
    "labels": lambda place: labels.fit(place, "mutual", labels._OTHERS[0], 0, labels.DATA[0], "told", True),
}


@pytest.mark.parametrize("name", JOBS)
def test_training_sees_no_test_label(name, place, few, monkeypatch):
    first = JOBS[name](place)

    def flipped(original, *given):
        data = original(*given)
        array, test = data.labels, data.folds[3] if name == "molecules" else data.test
        other = array.clone() if isinstance(array, torch.Tensor) else array.copy()
        other[test] = (other[test] + 1) % (int(array.max()) + 1)
        kinds = {"kinds": data.kinds[torch.randperm(len(data.kinds))]} if hasattr(data, "kinds") else {}
        return dataclasses.replace(data, labels=other, **kinds)

    for module, reader in ((cora, "load_cora"), (molecules, "load_graphs"), (factors, "factor_graph")):
        monkeypatch.setattr(module, reader, partial(flipped, getattr(module, reader)))
    for each, reader in relations.DATA.items():
        monkeypatch.setitem(relations.DATA, each, partial(flipped, reader))
    second = JOBS[name](place)
    same = ("val_accuracy", "val_loss", "epoch", "parameters")
    assert [second[key] for key in same] == [first[key] for key in same] and second["test"] != first["test"]
    assert name != "factors" or first["test"] > 0.4  # 0.25 by chance


def test_the_parts_of_each_fold_are_disjoint_complete_and_stratified(place):
    graphs = tu.load_graphs("MUTAG", place.data)
    for fold in range(10):
        train, val, test = molecules.split(graphs, fold, 1)
        assert sorted([*train, *val, *test]) == list(range(len(graphs)))
        assert test.tolist() == graphs.folds[fold].tolist() and len(val) == round((64 - 6) / 10)
        shares = [graphs.labels[part].mean() for part in (np.concatenate([train, val]), val)]
        assert abs(shares[0] - shares[1]) * len(val) < 1


def test_the_users_of_a_test_are_in_no_training_and_no_history_shows_what_comes_later(place, monkeypatch):
    folds = [interests.load(place, fold) for fold in range(3)]
    assert len(torch.cat([each.test for each in folds]).unique()) == 12
    for data in folds:
        assert torch.cat([data.train, data.val, data.test]).sort().values.tolist() == [*range(40)]
        at = data.start[data.test] + 3
        items, known = data.history(at)
        assert known.sum(1).tolist() == [3] * 4
        assert items[1, :3].tolist() == data.item[at[1] - 3 : at[1]].flip(0).tolist()
        first, seen, hidden = data.parts(data.test)
        assert not (seen & hidden).any() and data.user[first].tolist() == data.test.tolist()
        assert ((seen | hidden).sum(1) == data.user.bincount()[data.test]).all()
    settings = {"network": "mean", "settings": {"lr": 0.01}, "seed": 0, "quick": True}
    before = interests.fit(place, **settings)
    other = torch.where(torch.isin(folds[0].user, folds[0].test), 79 - folds[0].item, folds[0].item)
    monkeypatch.setattr(interests, "load", lambda place, fold: dataclasses.replace(folds[0], item=other))
    after = interests.fit(place, **settings)
    assert after["val_accuracy"] == before["val_accuracy"] and after["test"] != before["test"]


# Measures


def test_recall_is_the_share_of_hidden_items_among_the_best(monkeypatch):
    monkeypatch.setattr(interests, "BEST", 2)
    hidden = torch.tensor([[True, False, True, True], [False, True, False, False]])
    assert interests.recall(torch.tensor([[4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 0.0]]), hidden) == pytest.approx(2 / 3)


def test_couplings_that_know_the_factors_score_one_under_any_numbering_of_the_capsules(few, data):
    drawn = few(0, 3)
    known = drawn.factors.float()[:, [2, 0, 1]] + 0.1
    found = factors.recovery(known, drawn)
    first, second, third = torch.bincount(drawn.single()[1]).tolist()
    assert found["score"] == pytest.approx(1)
    assert found["table"] == [[0, first, 0], [0, 0, second], [third, 0, 0]]
    torch.manual_seed(0)
    assert abs(factors.recovery(torch.rand(len(known), 3), drawn)["score"]) < 0.02
    proteins = relations.DATA["HumanGO"](data, 0)
    known = relations.recovery(proteins.kinds.float()[:, [2, 0, 1]], proteins)
    assert known["information"] == known["unseen"] == pytest.approx(1)


@pytest.mark.parametrize("method", [*known.METHODS, *known.FITTED])
def test_no_method_sees_the_classes_that_it_is_to_find(place, monkeypatch, method):
    monkeypatch.setattr(known, "EPOCHS", 2)
    monkeypatch.setattr(known, "LAYER_EPOCHS", 2)
    data = known.DATA["4 factors, published"](place.data, 0)
    labels = data.labels.index_fill(0, torch.arange(0, len(data.labels), 3), -1)
    found = []
    for order in (torch.arange(4), torch.arange(3, -1, -1)):  # the hidden classes, and others in their place
        torch.manual_seed(0)
        truth = torch.where(labels < 0, data.labels[:, order], data.labels)
        found.append((known.METHODS | known.FITTED)[method](dataclasses.replace(data, labels=truth), labels))
    assert found[0].shape == data.labels.shape and torch.equal(*found)


def test_the_trained_layer_is_one_whose_loss_was_compared(place, monkeypatch):
    data, seen = known.DATA["4 factors, published"](place.data, 0), []

    def evaluated(layer):
        seen.append(torch.nn.utils.parameters_to_vector(layer.parameters()).detach().clone())
        return layer.train(False)

    monkeypatch.setattr(known.Layer, "eval", evaluated)
    monkeypatch.setattr(known, "LAYER_EPOCHS", 2)
    known.trained("beliefs")(data, data.labels.index_fill(0, torch.arange(0, len(data.labels), 3), -1))
    assert any(torch.equal(seen[-1], each) for each in seen[:-1])


# The command


def words(place: Place, *more: str) -> list[str]:
    return [*more, "--data", str(place.data), "--cache", str(place.cache), "--to", str(place.cache / "to")]


QUICK = {
    "mutag": (),
    "factors": (),
    "relations": ("--only", "UMLS", "4 factors, published"),
    "labels": ("--only", "4 factors, published"),
    "defaults": ("--only", "4 factors, published", "Cora", "mutag"),
}


@pytest.mark.parametrize("name", ["mutag", *(pytest.param(name, marks=pytest.mark.long) for name in [*QUICK][1:])])
def test_a_quick_look_leaves_the_results_and_has_a_row_for_each_network(place, few, capsys, name):
    assert main(words(place, name, "--quick", "--seeds", "2", *QUICK[name])) == 0
    result, printed = json.loads((place.cache / f"{name}.json").read_text()), capsys.readouterr().out
    assert not (place.cache / "to").exists() and (place.cache / f"{name}.md").read_text() in printed
    rows = result["parts"][0]["rows"] if "parts" in result else result[name]
    networks = {
        "mutag": molecules.READOUTS,
        "factors": factors.LAYERS,
        "labels": labels.NETWORKS,
        "defaults": defaults.ROUTINGS,
    }
    known = networks.get(name, [*relations.NETWORKS, *relations.FLOORS])
    assert [*dict.fromkeys(row["name"] for row in rows)] == [*known]
    assert all(len(row["test"]) == 2 for row in rows if "test" in row)
    assert name != "factors" or (place.cache / "factors-4.png").is_file()
