"""Sets of graphs in the GIN paper's text format, small ones and the real ones; and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps import dgl
from graphcaps.data.graphs import tu
from graphcaps.data.graphs.tu import load_graphs
from graphcaps.errors import GraphcapsError, InputError

from . import rings

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_real = pytest.mark.skipif(not (REAL / "tu").is_dir(), reason="the real graphs aren't at ../shared/data/tu")


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A folder with the small set under MUTAG's name."""
    monkeypatch.setitem(tu.SETS, "MUTAG", rings.spec())
    rings.write(tmp_path / "data" / "tu" / "MUTAG")
    return tmp_path / "data"


def plain(graph) -> tuple:
    """Tags and edges of a DGLGraph as lists."""
    return graph.ndata["tag"].tolist(), sorted(zip(*(ends.tolist() for ends in graph.edges()), strict=True))


def test_the_graphs_are_those_of_the_file(root):
    data = load_graphs("MUTAG", root)
    names = {1: 0, 3: 1, 5: 2}
    for number, graph in enumerate(dgl.unbatch(data.batch(np.arange(len(data))))):
        label, nodes = rings.graph(number)
        edges = sorted((i, j) for i, (_, neighbours) in enumerate(nodes) for j in neighbours)
        assert plain(graph) == ([names[tag] for tag, _ in nodes], edges)
        assert data.labels[number] == label // 2


def test_a_batch_is_its_graphs_in_the_order_asked_for(root):
    data = load_graphs("MUTAG", root)
    alone = [data.batch([number]) for number in (7, 0, 63, 7)]
    batch = data.batch([7, 0, 63, 7])
    assert [plain(graph) for graph in dgl.unbatch(batch)] == [plain(graph) for graph in alone]
    assert plain(batch) == plain(dgl.batch(alone))
    assert torch.equal(batch.batch_num_edges(), dgl.batch(alone).batch_num_edges())


def test_tags_become_one_hot_features(root):
    graph = load_graphs("MUTAG", root).batch([0, 1])
    assert graph.ndata["feat"].shape == (graph.num_nodes(), 3)
    assert torch.equal(graph.ndata["feat"].argmax(dim=1), graph.ndata["tag"])
    assert torch.equal(graph.ndata["feat"].sum(dim=1), torch.ones(graph.num_nodes()))


def test_the_repositorys_layout_is_read_too(root, tmp_path):
    folder = tmp_path / "other" / "dataset" / "MUTAG"
    rings.write(folder, folds=folder / "10fold_idx")
    here, there = load_graphs("MUTAG", root), load_graphs("MUTAG", tmp_path / "other")
    assert np.array_equal(here.edges, there.edges) and all(map(np.array_equal, here.folds, there.folds))


def test_attributes_after_the_neighbours_are_left_out(root):
    path = root / "tu" / "MUTAG" / "MUTAG.txt"
    before = load_graphs("MUTAG", root)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line + " 0.5 -1e3" * (len(line.split()) > 2) for line in lines))
    after = load_graphs("MUTAG", root)
    assert np.array_equal(before.edges, after.edges) and np.array_equal(before.tags, after.tags)


def test_folds_are_disjoint(root):
    folds = load_graphs("MUTAG", root).folds
    assert len(folds) == 10 and len(np.unique(np.concatenate(folds))) == 60


# The file starts: "64", "5 2", "1 3 3 1 4", "1 2 0 2", "1 2 1 3", "1 2 2 0", "5 1 0", "6 0"
@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (1, "no", r"MUTAG.txt, line 1: expected the number of graphs, got 'no'"),
        (1, "63", r"MUTAG.txt, line \d+: expected the end of the file, got '5 2'"),
        (1, "65", r"MUTAG.txt, line \d+: expected 'n label' of a graph, got the end of the file"),
        (2, "5", "MUTAG.txt, line 2: expected 'n label' of a graph, got '5'"),
        (2, "0 2", "MUTAG.txt, line 2: expected a graph of 1 node or more, got 0"),
        (2, "5 1", "MUTAG.txt: expected 2 classes, got 3"),
        (3, "1", "MUTAG.txt, line 3: expected 'tag degree neighbour...', got '1'"),
        (3, "1 3 3 1", "MUTAG.txt, line 3: expected 3 neighbours, got '1 3 3 1'"),
        (3, "1 3 3 1 5", "MUTAG.txt, line 3: expected neighbours 0 to 4, others, once, got '1 3 3 1 5'"),
        (3, "1 3 3 1 0", "MUTAG.txt, line 3: expected neighbours 0 to 4"),
        (3, "1 3 3 1 1", "MUTAG.txt, line 3: expected neighbours 0 to 4"),
        (4, "1 1 0 2", "MUTAG.txt, line 4: expected 0 numbers after the neighbours, as above, got 1"),
        (4, "1 2 0 2 x", "MUTAG.txt, line 4: expected numbers after the neighbours, got '1 2 0 2 x'"),
        (6, "1 1 2", "MUTAG.txt: expected neighbours named at both ends, got some"),
        (7, "9 1 0", "MUTAG.txt: expected 3 tags, got 4"),
        (7, "\xe9", "MUTAG.txt: expected a text file"),
    ],
)
def test_a_wrong_line_is_told_by_file_and_number(root, line, text, said):
    path = root / "tu" / "MUTAG" / "MUTAG.txt"
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        load_graphs("MUTAG", root)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: expected the number of a graph, got ''"),
        ("3\n64\n", "line 2: expected 0 to 63, each once, got 64"),
        ("3\n3\n", "line 2: expected 0 to 63, each once, got 3"),
        (None, "No such file"),
    ],
)
def test_a_wrong_fold_is_told_by_file_and_number(root, text, said):
    path = root / "tu" / "MUTAG" / "test_idx-2.txt"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError, match=f"test_idx-2.txt.*{said}"):
        load_graphs("MUTAG", root)


def test_a_graph_in_two_folds_is_refused(root):
    folder = root / "tu" / "MUTAG"
    (folder / "test_idx-2.txt").write_text((folder / "test_idx-1.txt").read_text())
    with pytest.raises(InputError, match=r"test_idx-\*.txt: expected no graph in two folds"):
        load_graphs("MUTAG", root)


def test_an_unknown_set_is_told_which_there_are(root):
    with pytest.raises(InputError, match="data set: expected one of MUTAG, PROTEINS, got 'mutag'"):
        load_graphs("mutag", root)


def test_the_needed_files_of_the_repositorys_archive_are_downloaded(root, tmp_path, monkeypatch):
    folder = root / "tu" / "MUTAG"
    with zipfile.ZipFile(tmp_path / "dataset.zip", "w") as archive:
        archive.write(folder / "MUTAG.txt", "dataset/MUTAG/MUTAG.txt")
        archive.writestr("dataset/COLLAB/COLLAB.txt", "not wanted")
        for k in range(1, 11):
            archive.write(folder / f"test_idx-{k}.txt", f"dataset/MUTAG/10fold_idx/test_idx-{k}.txt")
    monkeypatch.setattr(tu, "URL", (tmp_path / "dataset.zip").as_uri())
    data = load_graphs("MUTAG", tmp_path / "new")
    assert np.array_equal(data.edges, load_graphs("MUTAG", root).edges)
    there = {path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*.*")}
    assert there == {"tu/MUTAG/MUTAG.txt", *(f"tu/MUTAG/test_idx-{k}.txt" for k in range(1, 11))}


@pytest.mark.parametrize("members", [None, {"dataset/MUTAG/MUTAG.txt": "0"}])
def test_an_archive_that_is_none_or_lacks_a_file_leaves_nothing(tmp_path, monkeypatch, members):
    if members is None:
        (tmp_path / "dataset.zip").write_text("<html>")
    else:
        with zipfile.ZipFile(tmp_path / "dataset.zip", "w") as archive:
            for name, text in members.items():
                archive.writestr(name, text)
    monkeypatch.setattr(tu, "URL", (tmp_path / "dataset.zip").as_uri())
    with pytest.raises(
        GraphcapsError, match=r"MUTAG: expected MUTAG.txt, test_idx-1.txt, \.\.\. in .*the download failed"
    ):
        load_graphs("MUTAG", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_without_a_network_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(tu, "URL", "http://127.0.0.1:9/dataset.zip")
    with pytest.raises(GraphcapsError, match=r"the download failed \(.*refused.*\)\. Put them there, or .* --data DIR"):
        load_graphs("MUTAG", tmp_path)


@needs_real
@pytest.mark.parametrize(("name", "classes"), [("MUTAG", [63, 125]), ("PROTEINS", [663, 450])])
def test_the_real_sets_have_their_counts(name, classes):
    data = load_graphs(name, REAL, download=False)
    assert np.bincount(data.labels).tolist() == classes
    assert {len(fold) for fold in data.folds} == {len(data) // 10}


@needs_real
def test_mutags_tags_are_named_by_their_bonds():
    data = load_graphs("MUTAG", REAL, download=False)
    graph, names = data.batch(np.arange(len(data))), np.array(data.tag_names)
    element, degrees = names[graph.ndata["tag"].numpy()], graph.in_degrees().numpy()
    most = {name: degrees[element == name].max() for name in names}
    assert most == {"C": 4, "N": 3, "O": 2, "F": 1, "Cl": 1, "Br": 1, "I": 1}
    assert [int((element == name).sum()) for name in ("C", "O", "N", "Cl", "F", "Br", "I")] == [
        2395,
        593,
        345,
        23,
        12,
        2,
        1,
    ]
