"""Cora's two forms, on small files in the official formats and on the real one; and what is refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps.data.graphs import cora as citation
from graphcaps.data.graphs.cora import load_cora, read_npz
from graphcaps.errors import GraphcapsError, InputError

from . import planetoid
from .planetoid import SPEC

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_cora = pytest.mark.skipif(not (REAL / "cora").is_dir(), reason="real Cora isn't at ../shared/data/cora")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The data set that is expected is the small one, but where a test takes the real one."""
    monkeypatch.setattr(citation, "CORA", SPEC)


@pytest.fixture
def archive(tmp_path) -> Path:
    path = tmp_path / "npz" / "cora" / "cora.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **planetoid.arrays())
    return path


def same(one, other) -> None:
    """Two readings give the same graph, features, labels and split."""
    assert torch.equal(torch.stack(one.graph.edges()), torch.stack(other.graph.edges()))
    assert one.graph.num_nodes() == other.graph.num_nodes()
    for name in ("features", "labels", "train", "val", "test"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("dump", [planetoid.python2, planetoid.python3])
def test_planetoids_files_and_the_archive_give_the_same(tmp_path, archive, dump):
    if dump is planetoid.python3:
        pytest.importorskip("scipy")
    planetoid.write(tmp_path / "cora", planetoid.arrays(), dump)
    same(load_cora(tmp_path, download=False), load_cora(archive.parents[1], download=False))


def test_the_parts_are_disjoint_and_as_large_as_they_must_be(archive):
    data = read_npz(archive, SPEC)
    assert [len(part) for part in (data.train, data.val, data.test)] == [9, 12, 15]
    assert len({*data.train.tolist(), *data.val.tolist(), *data.test.tolist()}) == 36


def test_edges_go_both_ways_and_no_paper_cites_itself(archive):
    src, dst = (ends.tolist() for ends in read_npz(archive, SPEC).graph.edges())
    assert set(zip(src, dst, strict=True)) == set(zip(dst, src, strict=True))
    assert len(src) == 2 * SPEC.edges and all(i != j for i, j in zip(src, dst, strict=True))


def test_each_papers_words_sum_to_one_and_a_paper_without_words_is_zero(archive):
    found = planetoid.arrays()
    found["feature_indptr"][-2] = found["feature_indptr"][-1]  # the last paper's words become those of the one before
    np.savez(archive, **found)
    sums = read_npz(archive, SPEC).features.sum(dim=1)
    assert sums[-1] == 0 and torch.allclose(sums[:-1], torch.ones(59))


def changed(name: str, at, value) -> dict[str, np.ndarray]:
    found = planetoid.arrays()
    found[name][at] = value
    return found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (changed("labels", 3, 3), "labels: expected 0 to 2, got 0 to 3"),
        (changed("labels", slice(None), 0), "labels: expected 3 classes, got 1"),
        (changed("feature_indices", 0, 100), "feature_indices: expected 0 to 99, got 0 to 100"),
        (changed("feature_indptr", -1, 7), "feature_indptr: expected to rise from 0 to 180"),
        (changed("edges", 0, 60), "edges: expected 0 to 59, got 0 to 60"),
        (changed("edges", 0, 4), "edges: expected each pair once and no self-loops"),
        (changed("edges", 1, planetoid.arrays()["edges"][0, ::-1]), "edges: expected each pair once"),
        (changed("test", 0, 0), "train, val, test: expected no node twice"),
        (changed("val", 0, -1), "val: expected 0 to 59, got -1 to 20"),
        (planetoid.arrays() | {"train": np.arange(8)}, r"train: expected shape \(9,\), got \(8,\)"),
        (planetoid.arrays() | {"labels": np.zeros(60)}, "labels: expected integers with 1 dims, got float64"),
        ({"labels": np.arange(3)}, "expected arrays feature_indptr, .*, test, got labels"),
        (planetoid.arrays() | {"test": np.array([print])}, "expected a NumPy archive without objects"),
    ],
)
def test_an_archive_that_is_wrong_is_told_where(archive, found, said):
    np.savez(archive, **found)
    with pytest.raises(InputError, match=rf"cora\.npz: .*{said}|cora\.npz: {said}"):
        read_npz(archive, SPEC)


@pytest.mark.parametrize("content", [b"", b"<html>", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(archive, content):
    archive.write_bytes(content)
    with pytest.raises(InputError, match=r"cora\.npz: expected a NumPy archive without objects"):
        read_npz(archive, SPEC)


class Hostile:
    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("part", ["x", "ty", "graph"])
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path, part):
    planetoid.write(tmp_path / "cora", planetoid.arrays())
    path = tmp_path / "cora" / f"ind.cora.{part}"
    path.write_bytes(pickle.dumps(Hostile(tmp_path / "ran"), 2))
    pickle.loads(path.read_bytes())
    (tmp_path / "ran").rmdir()  # so it is hostile indeed
    with pytest.raises(InputError, match=rf"ind\.cora\.{part}: expected a pickle of plain data, got: .*mkdir"):
        load_cora(tmp_path, download=False)
    assert not (tmp_path / "ran").exists()


def pickled(value) -> bytes:
    return pickle.dumps(value, 2)


@pytest.mark.parametrize(
    ("part", "content", "said"),
    [
        ("x", b"", "expected a pickle of plain data"),
        ("graph", b"<html>no</html>", "expected a pickle of plain data"),
        ("graph", pickled([1]), "expected a dict of lists, got list"),
        ("graph", pickled({0: [1]}), "expected papers 0 to 59, got 1 other ones"),
        ("graph", pickled({k: [60] for k in range(60)}), "expected links to papers 0 to 59, got 0 to 60"),
        ("graph", pickled({k: ["1"] for k in range(60)}), "expected a dict of lists of integers"),
        ("tx", pickled({}), "expected a SciPy CSR matrix, got dict"),
        ("ty", pickled(np.eye(3)[[0] * 14]), "expected 15 rows, one per paper, got 14"),
        ("ty", pickled(np.ones((15, 3))), "expected one-hot rows"),
        ("y", pickled(np.eye(3)[[0] * 9]), "expected the first rows of allx and ally in x and y"),
        ("test.index", b"45\n46\n", "expected 15 numbers, 45 to 59 in any order, got 2 numbers"),
        ("test.index", b"45\nx\n", "expected one node number per line"),
        ("test.index", None, "got nothing there, and download=False"),
    ],
)
def test_a_planetoid_file_that_is_wrong_is_told_by_name(tmp_path, part, content, said):
    planetoid.write(tmp_path / "cora", planetoid.arrays())
    path = tmp_path / "cora" / f"ind.cora.{part}"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(GraphcapsError, match=rf"ind\.cora\..*{said}"):
        load_cora(tmp_path, download=False)


def test_missing_files_are_downloaded(tmp_path, monkeypatch):
    planetoid.write(tmp_path / "server", planetoid.arrays())
    monkeypatch.setattr(citation, "URL", (tmp_path / "server").as_uri() + "/")
    first = load_cora(tmp_path / "data")
    assert len(list((tmp_path / "data" / "cora").iterdir())) == 8
    same(first, load_cora(tmp_path / "data", download=False))


def test_a_download_that_stops_halfway_leaves_nothing(tmp_path, monkeypatch):
    planetoid.write(tmp_path / "server", planetoid.arrays())
    (tmp_path / "server" / "ind.cora.graph").unlink()
    monkeypatch.setattr(citation, "URL", (tmp_path / "server").as_uri() + "/")
    with pytest.raises(GraphcapsError, match=r"cora: expected ind\.cora\.x, ind\.cora\.y, \.\.\. in .* --data DIR"):
        load_cora(tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["server"]  # not even empty folders


def test_a_download_that_fails_leaves_files_that_were_there(tmp_path, monkeypatch):
    planetoid.write(tmp_path / "data" / "cora", planetoid.arrays())
    (tmp_path / "data" / "cora" / "ind.cora.graph").unlink()
    monkeypatch.setattr(citation, "URL", (tmp_path / "none").as_uri() + "/")
    with pytest.raises(GraphcapsError, match=r"Put them there, or name another data folder with --data DIR$"):
        load_cora(tmp_path / "data")
    assert len(list((tmp_path / "data" / "cora").iterdir())) == 7


@needs_cora
def test_the_real_cora_has_the_counts_of_the_papers(monkeypatch):
    monkeypatch.undo()
    data = load_cora(REAL, download=False)
    assert data.features.shape == (2708, 1433) and data.graph.num_edges() == 2 * 5278
    assert data.labels[data.train].bincount().tolist() == [20] * 7
    assert [len(part) for part in (data.train, data.val, data.test)] == [140, 500, 1000]


@needs_cora
def test_the_real_cora_with_one_edge_less_is_refused(tmp_path, monkeypatch):
    monkeypatch.undo()
    with np.load(REAL / "cora" / "cora.npz") as archive:
        found = dict(archive)
    (tmp_path / "cora").mkdir()
    np.savez(tmp_path / "cora" / "cora.npz", **found | {"edges": found["edges"][1:]})
    with pytest.raises(InputError, match=r"edges: expected shape \(5278, 2\), got \(5277, 2\)"):
        load_cora(tmp_path)
