"""The routing trace: its epochs, its files, and files that can't be read."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from graphcaps import GraphcapsError, RoutingTrace, bipartite_graph, route, watch
from graphcaps.viz.routing_trace import FORMAT_VERSION


def routed(votes) -> RoutingTrace:
    """Two images on a sparse graph of 4 children and 2 parents, three iterations."""
    with watch() as seen:
        route(bipartite_graph([0, 0, 2, 2, 2], [1, 0, 1, 1, 0], 4, 2), votes)
    return seen["route"]


@pytest.fixture
def trace(draw) -> RoutingTrace:
    """A trace that has all fields."""
    rng = np.random.default_rng(0)
    return dataclasses.replace(
        routed(draw(5, 2, 3)),
        trained_iterations=2,
        class_names=("cat", "dog"),
        images=rng.integers(0, 256, (2, 1, 5, 6), dtype=np.uint8),
        labels=np.array([1, 0]),
        fields=np.arange(16, dtype=np.int32).reshape(4, 4),
        nodes=np.array([[0, 1], [0, 0], [1, 1], [1, 1], [1, 0]], np.int32),
        positions=np.eye(2, dtype=np.float32),
        node_names=("a", "b"),
        about={"dataset": "digits", "seed": 0},
    )


def test_an_epoch_is_added_and_later_ones_are_dropped(trace, draw):
    more = [routed(draw(5, 2, 3)) for _ in range(3)]
    grown = trace.with_epoch(1, more[0]).with_epoch(4, more[1])
    assert grown.epochs.tolist() == [0, 1, 4] and grown.epochs.dtype == np.int32
    again = grown.with_epoch(2, more[2], labels=np.array([0, 0]))
    assert again.epochs.tolist() == [0, 1, 2] and again.labels.tolist() == [0, 0]
    for name in ("b", "c", "agreement", "lengths"):
        wanted = np.concatenate([getattr(one, name) for one in (trace, more[0], more[2])])
        np.testing.assert_array_equal(getattr(again, name), wanted)
    again.check()
    with pytest.raises(GraphcapsError, match=r"trace: c: expected \(K, R, N, E\), got none"):
        dataclasses.replace(trace, c=None).check()


def test_loading_gives_what_was_saved(trace, tmp_path, draw):
    path = tmp_path / "runs" / "trace.npz"
    for saved in (routed(draw(5, 3)), trace):
        saved.save(path)
        read = RoutingTrace.load(path)
        for field in dataclasses.fields(RoutingTrace):
            one, other = getattr(read, field.name), getattr(saved, field.name)
            assert getattr(one, "dtype", None) == getattr(other, "dtype", None), field.name
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def parts_of(trace, tmp_path):
    """The arrays of a saved trace, and its head."""
    trace.save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as stored:
        parts = {name: stored[name] for name in stored}
    return parts, json.loads(str(parts.pop("head")))


def assert_refused(path, text):
    with pytest.raises(GraphcapsError) as caught:
        RoutingTrace.load(path)
    assert text in str(caught.value)


def test_a_file_of_an_earlier_version_with_bonds_and_tags_is_read(trace, tmp_path):
    arrays, head = parts_of(trace, tmp_path)
    del head["node_names"]
    earlier = head | {"tag_names": ["C", "N"], "history": {"epoch": [1.0]}}
    np.savez(tmp_path / "old.npz", head=np.array(json.dumps(earlier)), bonds=np.int32([[0, 1]]), **arrays)
    np.testing.assert_array_equal(RoutingTrace.load(tmp_path / "old.npz").c, trace.c)


def test_a_missing_a_cut_and_a_foreign_file_and_one_with_a_pickle_are_refused(trace, tmp_path):
    path = tmp_path / "no.npz"
    assert_refused(path, f"trace: expected a routing trace at {path}, got: [Errno 2] No such file")
    trace.save(tmp_path / "trace.npz")
    whole = (tmp_path / "trace.npz").read_bytes()
    for content in (b"", b"not a zip", *(whole[:k] for k in range(50, len(whole), len(whole) // 10)), whole[:-1]):
        path.write_bytes(content)
        assert_refused(path, f"trace: expected a routing trace at {path}, got")
    arrays, _ = parts_of(trace, tmp_path)
    np.savez(path, head=np.array([Path("x")], dtype=object), **arrays)
    assert_refused(path, "Object arrays cannot be loaded when allow_pickle=False")


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("format_version", 1, f"got: format 1, and this version reads format {FORMAT_VERSION}. Make one with"),
        ("images", lambda images: images / 255, "trace: images: expected uint8, got float64. 0 is black, 255 white"),
        ("c", lambda c: c[:, :2], "trace: c: expected (K=1, R=3, N=2, E=5), got (1, 2, 2, 5)"),
        ("dst", lambda dst: dst + 1, "trace: dst: expected numbers from 0 to 1, got others"),
        ("src", lambda src: src.astype(float), "trace: src: expected signed integers, got float64"),
        ("epochs", lambda epochs: epochs.astype(str), "trace: epochs: expected signed integers, got <U"),
        ("c", lambda c: -c, "trace: c: expected numbers from 0 to 1.01, got others"),
        ("trained_iterations", 0, "trace: trained_iterations: expected an integer from 1"),
    ],
)
def test_a_file_whose_parts_do_not_fit_together_is_refused(trace, tmp_path, name, change, text):
    arrays, head = parts_of(trace, tmp_path)
    if callable(change):
        arrays[name] = change(arrays[name])
    else:
        head[name] = change
    np.savez(tmp_path / "changed.npz", head=np.array(json.dumps(head)), **arrays)
    assert_refused(tmp_path / "changed.npz", text)
