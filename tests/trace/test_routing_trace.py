"""The routing trace: what it holds, what it refuses to read; and files that are written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from graphcaps import GraphcapsError, LinearVotes, RoutingTrace, bipartite_graph, complete_graph, route
from graphcaps.atomic import replacing, write_text
from graphcaps.errors import InputError
from graphcaps.trace.image_trace import FORMAT_VERSION, observe


@pytest.fixture
def trace(draw) -> RoutingTrace:
    """Two images on a sparse graph of 4 children and 2 parents, three iterations, everything filled in."""
    graph = bipartite_graph([0, 0, 2, 2, 2], [1, 0, 1, 1, 0], 4, 2)
    rng = np.random.default_rng(0)
    return RoutingTrace.of(
        graph,
        draw(5, 2, 3),
        iterations=3,
        trained_iterations=2,
        class_names=("cat", "dog"),
        images=rng.integers(0, 256, (2, 1, 5, 6), dtype=np.uint8),
        labels=np.array([1, 0]),
        fields=np.arange(16, dtype=np.int32).reshape(4, 4),
        saliency=rng.random((2, 4, 5, 6)).astype(np.float16),
        reconstructions=rng.integers(0, 256, (2, 1, 5, 6), dtype=np.uint8),
        perturbed=rng.integers(0, 256, (2, 3, 11, 1, 5, 6), dtype=np.uint8),
        steps=np.linspace(-0.25, 0.25, 11, dtype=np.float32),
        history={"epoch": [1.0, 2.0], "val_accuracy": [0.5, 0.75]},
        about={"dataset": "digits", "seed": 0},
    )


def assert_equal(got: RoutingTrace, wanted: RoutingTrace):
    for field in dataclasses.fields(RoutingTrace):
        one, other = getattr(got, field.name), getattr(wanted, field.name)
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype, field.name
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        else:
            assert one == other, field.name


def test_a_trace_holds_what_an_observer_saw(draw):
    graph, votes = complete_graph(4, 3), draw(12, 2, 5)
    seen = []
    route(graph, votes, iterations=4, on_iteration=lambda r, *state: seen.append(state))
    trace = RoutingTrace.of(graph, votes, iterations=4)
    assert (trace.num_edges, trace.num_iterations, trace.num_images) == (12, 4, 2)
    assert (trace.num_children, trace.num_parents, trace.trained_iterations) == (4, 3, 4)
    assert trace.src.tolist() == [i for i in range(4) for _ in range(3)] and trace.dst.tolist() == [0, 1, 2] * 4
    for r, (b, c, v, agreement) in enumerate(seen):
        for got, wanted in ((trace.b, b), (trace.c, c), (trace.agreement, agreement)):
            np.testing.assert_array_equal(got[0, r], wanted.T.numpy().astype(np.float16))
        np.testing.assert_array_equal(trace.lengths[0, r], v.norm(dim=-1).T.numpy().astype(np.float32))


def test_votes_without_images_are_one_image(draw):
    votes = draw(12, 5)
    trace = RoutingTrace.of(complete_graph(4, 3), votes, iterations=2)
    assert_equal(trace, RoutingTrace.of(complete_graph(4, 3), votes.unsqueeze(1), iterations=2))
    assert trace.c.shape == (1, 2, 1, 12)


def test_a_trace_takes_linear_votes_a_prior_and_an_engine(draw):
    graph, votes, prior = complete_graph(4, 3), LinearVotes(draw(4, 2, 5), draw(12, 5, 6)), draw(12)
    trace = RoutingTrace.of(graph, votes, 2, prior=prior, engine="naive")
    np.testing.assert_allclose(trace.b[0, 0], prior.expand(2, 12).numpy(), rtol=2**-10)

    with pytest.raises(InputError, match="engine: expected one of auto, naive, dgl, torch, fused, got 'nave'"):
        RoutingTrace.of(graph, votes, 2, engine="nave")


def test_votes_that_need_a_gradient_can_be_observed(draw):
    votes = draw(12, 2, 5)
    states = observe(complete_graph(4, 3), votes.clone().requires_grad_(), 2)
    for name, wanted in observe(complete_graph(4, 3), votes, 2).items():
        np.testing.assert_array_equal(states[name], wanted)


def test_votes_with_heads_are_refused(draw):
    with pytest.raises(InputError) as caught:
        RoutingTrace.of(complete_graph(4, 3), draw(12, 2, 2, 5))
    assert str(caught.value) == "votes: expected (E, N, D) or (E, D), got 3 dims before D"


def test_an_epoch_is_added_and_later_ones_are_dropped(trace, draw):
    graph = bipartite_graph(trace.src, trace.dst, 4, 2)
    states = [observe(graph, draw(5, 2, 3), 3) for _ in range(3)]
    grown = trace.with_epoch(1, states[0]).with_epoch(4, states[1])
    assert grown.epochs.tolist() == [0, 1, 4] and grown.epochs.dtype == np.int32
    again = grown.with_epoch(2, states[2], labels=np.array([0, 0]))
    assert again.epochs.tolist() == [0, 1, 2] and again.labels.tolist() == [0, 0]
    for name in ("b", "c", "agreement", "lengths"):
        np.testing.assert_array_equal(
            getattr(again, name), np.stack([getattr(trace, name)[0], states[0][name], states[2][name]])
        )
    again.check()


# Saving and loading


def test_loading_gives_what_was_saved(trace, tmp_path):
    trace.save(tmp_path / "runs" / "trace.npz")
    assert_equal(RoutingTrace.load(tmp_path / "runs" / "trace.npz"), trace)


def test_a_bare_trace_is_saved_and_loaded(tmp_path, draw):
    bare = RoutingTrace.of(complete_graph(4, 3), draw(12, 5), iterations=1)
    bare.save(tmp_path / "bare.npz")
    assert_equal(RoutingTrace.load(tmp_path / "bare.npz"), bare)


def test_loading_needs_no_torch(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    code = "import sys; sys.modules['torch'] = sys.modules['dgl'] = None; from graphcaps import RoutingTrace as T; "
    code += f"print(T.load({str(tmp_path / 'trace.npz')!r}).c.shape)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert seen.stdout.strip() == "(1, 3, 2, 5)", seen.stderr


def parts_of(trace, tmp_path):
    """The arrays of a saved trace and its head, to be changed and written again."""
    trace.save(tmp_path / "whole.npz")
    with np.load(tmp_path / "whole.npz") as stored:
        parts = {name: stored[name] for name in stored}
    return parts, json.loads(str(parts.pop("head")))


def assert_refused(path, text):
    with pytest.raises(GraphcapsError) as caught:
        RoutingTrace.load(path)
    assert text in str(caught.value)


def test_a_missing_trace_says_how_to_make_one(tmp_path):
    wanted = f"trace: expected a file at {tmp_path / 'no.npz'}, got none. Make one with: graphcaps train"
    assert_refused(tmp_path / "no.npz", wanted)


def test_a_truncated_trace_is_refused_wherever_it_ends(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    whole, path = (tmp_path / "trace.npz").read_bytes(), tmp_path / "cut.npz"
    for length in [0, 1, 10, *range(50, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert_refused(path, f"trace: expected a routing trace at {path}, got")


def test_a_trace_with_flipped_bits_is_refused_or_whole(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    whole, path = (tmp_path / "trace.npz").read_bytes(), tmp_path / "flipped.npz"
    refused = 0
    for k in range(0, len(whole), len(whole) // 100):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 0b0100_0001]) + whole[k + 1 :])
        try:
            assert_equal(RoutingTrace.load(path), trace)
        except GraphcapsError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("content", [b"not a zip", b"", "array", "folder"])
def test_what_is_not_a_trace_is_refused(tmp_path, content):
    path = tmp_path / "odd.npz"
    if content == "folder":
        path.mkdir()
    elif content == "array":
        with open(path, "wb") as file:
            np.save(file, np.zeros(3))
    else:
        path.write_bytes(content)
    assert_refused(path, f"trace: expected a routing trace at {path}, got")


class Hostile:
    """Unpickling it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["c", "head", "images"])
def test_a_pickle_in_a_trace_is_never_run(trace, tmp_path, name):
    made = tmp_path / "made"
    pickle.loads(pickle.dumps(Hostile(made)))
    assert made.exists()  # it would work
    made.unlink()
    arrays, head = parts_of(trace, tmp_path)
    parts = {**arrays, "head": np.array(json.dumps(head)), name: np.array([Hostile(made)], dtype=object)}
    np.savez(tmp_path / "hostile.npz", **parts)
    assert_refused(tmp_path / "hostile.npz", "Object arrays cannot be loaded when allow_pickle=False")
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Hostile(made)))
    assert_refused(tmp_path / "bare.npz", "trace: expected a routing trace at")
    assert not made.exists()


def test_a_trace_is_written_without_pickle(trace, tmp_path):
    arrays, _ = parts_of(trace, tmp_path)
    assert all(array.dtype != object for array in arrays.values())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format_version": FORMAT_VERSION + 1}, f"trace: expected format {FORMAT_VERSION} in"),
        ({"format_version": None}, f"trace: expected format {FORMAT_VERSION} in"),
        ({"num_parents": 3}, "trace: lengths: expected (K=1, R=3, N=2, J=3), got (1, 3, 2, 2)"),
        ({"num_children": 2}, "trace: fields: expected (I=2, 4), got (4, 4)"),
        ({"num_children": "4"}, "trace: fields: expected (I=4, 4), got (4, 4)"),
        ({"class_names": ["cat"]}, "trace: class_names: expected none or 2, got 1"),
        ({"class_names": 2}, "trace: expected a routing trace at"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(trace, tmp_path, change, text):
    arrays, head = parts_of(trace, tmp_path)
    np.savez(tmp_path / "changed.npz", head=np.array(json.dumps({**head, **change})), **arrays)
    assert_refused(tmp_path / "changed.npz", text)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("c", lambda c: c[:, :2], "trace: c: expected (K=1, R=3, N=2, E=5), got (1, 2, 2, 5)"),
        ("src", lambda src: src[:4], "trace: dst: expected (E=4), got (5,)"),
        ("dst", lambda dst: dst + 1, "trace: dst: expected indices in [0, 2), got others"),
        ("src", lambda src: -src, "trace: src: expected indices in [0, 4), got others"),
        ("labels", lambda labels: labels[:1], "trace: labels: expected (N=2), got (1,)"),
        ("steps", lambda steps: steps[1:], "trace: steps: expected (S=11), got (10,)"),
        ("lengths", lambda lengths: lengths[0], "trace: lengths: expected (K=1, R=3, N=2, J=2), got (3, 2, 2)"),
        ("dst", lambda dst: dst.astype(str), "trace: expected a routing trace at"),
        ("b", None, "missing 1 required positional argument: 'b'"),
        ("head", None, "head is not a file in the archive"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(trace, tmp_path, name, change, text):
    arrays, head = parts_of(trace, tmp_path)
    arrays["head"] = np.array(json.dumps(head))
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    np.savez(tmp_path / "changed.npz", **arrays)
    assert_refused(tmp_path / "changed.npz", text)


def test_a_trace_made_with_wrong_parts_says_so(trace):
    with pytest.raises(InputError) as caught:
        dataclasses.replace(trace, src=None).check()
    assert str(caught.value) == "trace: src: expected (E), got none"


# Files


def test_a_crash_while_writing_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="crash"), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("crash")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_crash_before_the_first_file_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "new" / "file.txt") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path / "new") == []


def test_a_file_is_replaced_when_the_block_ends_well(tmp_path):
    path = tmp_path / "a" / "b" / "file.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent and temporary.suffix == ".txt"
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["file.txt"]


def test_a_file_is_on_the_disk_before_it_takes_the_old_ones_place(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *arguments: (order.append("fsync"), fsync(*arguments)))
    monkeypatch.setattr(os, "replace", lambda *arguments: (order.append("replace"), replace(*arguments)))
    write_text(tmp_path / "file.txt", "text")
    assert order == ["fsync", "replace"]


def test_a_file_may_be_read_by_others_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "file.txt", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o644


def test_text_is_utf_8_wherever_it_is_written(tmp_path):
    write_text(tmp_path / "file.txt", "2 × 3 → ü")
    assert (tmp_path / "file.txt").read_bytes() == "2 × 3 → ü".encode()


def test_a_path_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphcapsError) as caught:
        write_text(tmp_path / "file" / "inside.txt", "text")
    wanted = f"{tmp_path / 'file' / 'inside.txt'}: expected to be able to write it, got: "
    assert str(caught.value).startswith(wanted)
    (tmp_path / "folder").mkdir()
    with pytest.raises(GraphcapsError, match="folder: expected to be able to write it, got: Is a directory"):
        write_text(tmp_path / "folder", "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "file.txt", "old")
    with pytest.raises(GraphcapsError, match="got: No space left on device"), replacing(tmp_path / "file.txt") as new:
        new.write_text("half")
        raise OSError(28, "No space left on device")
    assert (tmp_path / "file.txt").read_text() == "old" and os.listdir(tmp_path) == ["file.txt"]


def test_a_trace_that_can_not_be_saved_leaves_the_old_one(trace, tmp_path):
    path = tmp_path / "trace.npz"
    trace.save(path)
    with pytest.raises(TypeError):
        dataclasses.replace(trace, about={"not json": torch.zeros(1)}).save(path)
    assert_equal(RoutingTrace.load(path), trace)
    assert os.listdir(tmp_path) == ["trace.npz"]
