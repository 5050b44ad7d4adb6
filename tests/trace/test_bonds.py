"""The trace of graphs: what it takes, what it refuses, and that a file gives back what was saved, or an error."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

from graphcaps.errors import GraphcapsError, InputError
from graphcaps.trace.graph_trace import GraphTrace, TracedGraph

from .molecules import BONDS, couplings, make_trace, molecule


def same(left, right):
    names = [field.name for field in dataclasses.fields(GraphTrace) if field.name != "graphs"]
    assert [getattr(left, name) for name in names] == [getattr(right, name) for name in names]
    for one, other in zip(left.graphs, right.graphs, strict=True):
        for field in dataclasses.fields(TracedGraph):
            a, b = getattr(one, field.name), getattr(other, field.name)
            assert type(a) is type(b) and (a == b if a is None or isinstance(a, int) else np.array_equal(a, b))
            assert not isinstance(a, np.ndarray) or a.dtype == b.dtype


def test_a_file_gives_back_what_was_saved(tmp_path):
    alone = molecule(tags=[0], bonds=[], c=couplings(nodes=1), lengths=None, label=None)
    trace = make_trace(molecule(), alone, molecule(label=0))
    trace.save(tmp_path / "graphs.npz")
    same(GraphTrace.load(tmp_path / "graphs.npz"), trace)
    assert [path.name for path in tmp_path.iterdir()] == ["graphs.npz"]


def test_tensors_and_lists_make_the_same_trace():
    plain = molecule(c=couplings().tolist())
    tensors = {
        "tags": torch.tensor(plain["tags"]),
        "bonds": torch.tensor(BONDS),
        "c": torch.tensor(plain["c"]),
        "lengths": torch.tensor(plain["lengths"]),
        "label": torch.tensor(1),
    }
    same(make_trace(plain), make_trace(tensors))


def test_one_graph_needs_no_list_and_training_is_all_iterations_unless_said():
    trace = GraphTrace.of(molecule(), ["safe", "mutagenic"])
    assert (len(trace.graphs), trace.num_iterations, trace.num_classes, trace.trained_iterations) == (1, 4, 2, 4)
    assert trace.tag_names == () and trace.about == {}


def test_a_bond_in_both_directions_is_one_and_loops_are_none():
    graph = TracedGraph.of([0, 0, 0], [(1, 0), (0, 1), (2, 2), (2, 1), (1, 2), (0, 1)], couplings(nodes=3))
    assert graph.bonds.tolist() == [[0, 1], [1, 2]] and graph.bonds.dtype == np.int32


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"bonds": [(0, 9)]}, "bonds: expected nodes in [0, N=9), got others"),
        ({"bonds": [(0, -1)]}, "bonds: expected nodes in [0, N=9), got others"),
        ({"bonds": [0, 1]}, "bonds: expected (M, 2) integers, got (2,) int64"),
        ({"bonds": [(0.5, 1)]}, "bonds: expected (M, 2) integers, got (1, 2) float64"),
        ({"tags": [0.5] * 9}, "tags: expected (N,) integers, got (9,) float64"),
        ({"tags": [-1] * 9}, "tags: expected integers >= 0, got -1"),
        ({"tags": [[0]] * 9}, "tags: expected (N,), N >= 1, got (9, 1)"),
        ({"tags": [3] * 9}, "tag_names: expected a name for tag 3, got 3"),
        ({"c": couplings(nodes=8)}, "c: expected (R, N=9, C), R and C >= 1, got (4, 8, 2)"),
        ({"c": couplings() * np.nan, "lengths": None}, "c: expected couplings in [0, 1], got others"),
        ({"c": couplings() * 3}, "c: expected couplings in [0, 1], got others"),
        ({"c": couplings(classes=3)}, "class_names: expected C=3 names, got 2"),
        ({"lengths": np.ones((3, 2))}, "lengths: expected (R=4, C=2), got (3, 2)"),
        ({"lengths": np.full((4, 2), np.nan)}, "lengths: expected finite numbers >= 0, got others"),
        ({"label": 2}, "label: expected a class in [0, C=2), or None, got 2"),
    ],
)
def test_a_graph_that_does_not_fit_is_named(fields, text):
    with pytest.raises(InputError) as caught:
        make_trace(molecule(**fields))
    assert str(caught.value) == text


def test_graphs_of_other_iterations_or_classes_are_named():
    other = molecule(c=couplings(iterations=5))
    with pytest.raises(InputError) as caught:
        make_trace(molecule(), other)
    assert str(caught.value) == "c of graph 1: expected (R=4, N, C=2), got (5, 9, 2)"
    with pytest.raises(InputError, match="graphs: expected at least one, got none"):
        GraphTrace.of([], ["a"])
    with pytest.raises(InputError, match="trained_iterations: expected an integer >= 1, got 0"):
        make_trace(trained_iterations=0)


def stored(path, **changes):
    """The file with a part of its head or an array replaced, or dropped where the change is None."""
    make_trace().save(path)
    with np.load(path) as file:
        arrays = dict(file)
    head = json.loads(str(arrays["head"]))
    for name, value in changes.items():
        part = arrays if name in arrays else head
        part[name] = value
        if value is None:
            del part[name]
    np.savez(path, **arrays | {"head": np.array(json.dumps(head))})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format_version": 2}, "trace: expected format 1 in {path}, got 2. Update graphcaps"),
        ({"format_version": None}, "trace: expected format 1 in {path}, got None. Update graphcaps"),
        ({"class_names": None}, "trace: expected the routing of graphs at {path}, got one with 'class_names'"),
        ({"labels": [1, 0]}, "trace: expected the routing of graphs at {path}, got one with bonds: expected (M"),
        ({"c_0": None}, "trace: expected the routing of graphs at {path}, got one with c: expected (R, N=9, C), R and"),
        ({"tags_0": np.zeros(3, int)}, "trace: expected the routing of graphs at {path}, got one with bonds: expected"),
    ],
)  # fmt: skip
def test_a_file_of_other_content_is_a_clear_error(tmp_path, changes, text):
    path = tmp_path / "graphs.npz"
    stored(path, **changes)
    with pytest.raises(GraphcapsError) as caught:
        GraphTrace.load(path)
    assert str(caught.value).startswith(text.format(path=path))


def test_a_missing_cut_or_foreign_file_is_a_clear_error(tmp_path):
    path = tmp_path / "graphs.npz"
    with pytest.raises(GraphcapsError) as caught:
        GraphTrace.load(path)
    assert str(caught.value) == f"trace: expected a file at {path}, got none"
    make_trace().save(path)
    whole = path.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(GraphcapsError, match="trace: expected the routing of graphs at"):
            GraphTrace.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("head.npy", b"")
    with pytest.raises(GraphcapsError, match="trace: expected the routing of graphs at"):
        GraphTrace.load(path)


def test_pickled_objects_in_a_file_are_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise AssertionError('run')",))

    path = tmp_path / "graphs.npz"
    np.savez(path, head=np.array([Trap()], dtype=object))
    with pytest.raises(GraphcapsError, match="Object arrays cannot be loaded"):
        GraphTrace.load(path)


def test_a_trace_that_does_not_fit_is_not_saved(tmp_path):
    trace = dataclasses.replace(make_trace(), class_names=("one",))
    with pytest.raises(InputError):
        trace.save(tmp_path / "graphs.npz")
    assert not list(tmp_path.iterdir())


def test_it_needs_neither_torch_nor_dgl():
    code = "import sys, graphcaps.trace.graph_trace; print(sorted({'torch', 'dgl'} & set(sys.modules)))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert seen.stdout.strip() == "[]", seen.stderr
