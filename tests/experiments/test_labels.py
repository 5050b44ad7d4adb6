"""Networks that are given the classes of some nodes, and what a default costs: what they see, and what they print."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from experiments.__main__ import main
from experiments.run import Place
from experiments.tasks import defaults, labels, relations


@pytest.mark.parametrize("network", ["beliefs", "mutual"])
def test_a_network_is_given_training_classes_alone(data, tmp_path, monkeypatch, network):
    place, settings = Place(data, tmp_path), labels.NETWORKS[network][1][0]
    name, seen = "4 factors, published", []
    found = relations.DATA[name](data, 0)
    made = labels.NETWORKS[network][0]
    monkeypatch.setattr(
        made, "forward", lambda self, graph, given, as_is=made.forward: seen.append(given) or as_is(self, graph, given)
    )
    first = labels.fit(place, network, settings, 0, name, "told", True)
    rows = torch.stack(seen).sum((0, 2, 3)) > 0  # nodes of which a class was given
    assert not rows[found.val].any() and not rows[found.test].any() and rows[found.train].all()
    other = found.labels.clone()
    other[found.test] = (other[found.test] + 1) % 16
    monkeypatch.setitem(relations.DATA, name, lambda root, seed: dataclasses.replace(found, labels=other))
    second = labels.fit(place, network, settings, 0, name, "told", True)
    assert second["val_loss"] == first["val_loss"] and second["test"] != first["test"]


def test_classes_that_exclude_each_other_are_found_to_belong_together():
    torch.manual_seed(0)
    drawn = torch.randint(4, (200, 5))
    order = torch.randperm(20)
    has = F.one_hot(drawn, 4).flatten(1).float()[:, order]
    capsule = labels.exclusive(has, 5)
    factor = order // 4
    assert len(set(zip(capsule.tolist(), factor.tolist(), strict=True))) == 5 == len(capsule.unique())


@pytest.mark.long
def test_a_quick_look_at_labels_has_a_column_for_each_network(data, tmp_path, capsys):
    words = ["labels", "--quick", "--data", str(data), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--only", "4 factors, published"]) == 0
    found = json.loads((tmp_path / "cache" / "labels.json").read_text())["labels"]
    assert [(row["heads"], row["name"]) for row in found] == [
        (heads, name) for heads, names in labels.HEADS.items() for name in names
    ]
    assert "| 4 factors, published | found | " in capsys.readouterr().out


@pytest.mark.long
def test_a_quick_look_at_defaults_has_each_layout_and_reads_bloggers(data, tmp_path, capsys):
    draw = np.random.RandomState(0)
    starts = np.arange(61, dtype=np.int32)
    groups = {"groups_indptr": starts, "groups_indices": draw.randint(0, 39, 60).astype(np.int8)}
    np.savez(data / "graphs" / "blogcatalog.npz", edges=draw.randint(0, 60, (2, 300)).astype(np.int16), **groups)
    found = defaults.DATA["BlogCatalog"](data, 0)
    assert found.labels.sum(1).tolist() == [1] * 60 and len(torch.cat([found.train, found.val, found.test])) == 60
    words = ["defaults", "--quick", "--data", str(data), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--only", "4 factors, published", "Cora", "mutag"]) == 0
    rows = json.loads((tmp_path / "cache" / "defaults.json").read_text())["defaults"]
    where = dict.fromkeys((row["data"], row["layout"]) for row in rows)
    assert [*where] == [
        ("4 factors, published", "own"),
        ("4 factors, published", "joined"),
        ("Cora", "joined"),
        ("mutag", "readout"),
    ]
    assert "| mutag | readout | " in capsys.readouterr().out
