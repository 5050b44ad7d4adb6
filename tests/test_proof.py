"""The fused engine is taken on a GPU where it proved itself there: right engines pass, others don't, verdicts are kept.

The engine tried here is the fused one of the CPU, or a stand-in that is wrong in some way: what a trial does depends on
neither device nor engine. test_fused_gpu.py tries the Triton kernels, on CUDA or in Triton's interpreter.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import warnings
from contextlib import nullcontext

import pytest
import torch

from graphcaps import LinearVotes, choose_engine, complete_graph
from graphcaps.routing import engines, fused, proof
from graphcaps.routing.fused import user_cache
from graphcaps.routing.proof import Question, holds, sizes, small, tried_apart

pytestmark = pytest.mark.usefixtures("one_thread")

GIVEN = Question("dynamic", "given", "float32", "float32", 3, 5, 0, 7, 4)
HERE = {"device": "a GPU", "torch": "2.15.0", "triton": "3.9.0"}
EXACT = functools.partial(engines.run, "dynamic", "torch")
right = engines.ROUTINGS["dynamic"].fused
trial = functools.partial(proof.trial, as_large=nullcontext)


@pytest.mark.parametrize(
    ("kind", "num_parents", "dtype"),
    [
        pytest.param("given", 0, "float64", marks=pytest.mark.long),
        ("given", 3, "bfloat16"),
        pytest.param("per edge", 3, "float32", marks=pytest.mark.long),
        ("per type", 3, "float16"),
        pytest.param("shared", 3, "bfloat16", marks=pytest.mark.long),
    ],
)
def test_a_right_engine_passes(kind, num_parents, dtype):
    most = 4 if kind == "given" else 0
    assert trial(Question("dynamic", kind, dtype, dtype, num_parents, 5, 4, 7, most), "cpu", right, EXACT) == ""


def test_a_right_engine_passes_where_the_priors_gradient_is_zero():
    assert trial(GIVEN._replace(num_parents=1), "cpu", right, EXACT) == ""


def test_a_trial_routes_each_graph_once_more_as_a_large_one_is_cut():
    cut, calls = [], []

    class AsLarge:
        def __enter__(self):
            cut.append(True)

        def __exit__(self, *error):
            cut.pop()

    def engine(graph, votes, activation, b, iterations, on_iteration, *rest):
        calls.append((graph.num_edges(), bool(cut), b.requires_grad, on_iteration is not None))
        v, length = right(graph, votes, activation, b, iterations, on_iteration, *rest)
        return (1.1 * v if cut else v), length

    found = proof.trial(GIVEN, "cpu", engine, EXACT, AsLarge)
    assert found.startswith("the parents with few programs: off by 0.1") and not cut
    assert calls == [(3, False, True, False)] * 2 + [(3, False, False, True), (3, True, True, False)]
    assert proof.trial(GIVEN, "cpu", right, EXACT, AsLarge) == "" and not cut


def test_a_trial_leaves_torchs_random_numbers_and_precision_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.get_float32_matmul_precision()
    assert trial(GIVEN._replace(products="tf32"), "cpu", right, EXACT) == ""
    assert torch.equal(torch.get_rng_state(), before[0]) and torch.get_float32_matmul_precision() == before[1]


class Slope(torch.autograd.Function):
    """The same numbers, with a slope that is ``factor`` times too steep."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return ctx.factor * slope, None


def raising(*arguments):
    raise RuntimeError("out of resource: shared memory\n  needed 196608")


def changed(change):
    """The right engine, whose parents ``change`` changes."""

    def engine(graph, votes, activation, b, *rest):
        v, length = right(graph, votes, activation, b, *rest)
        return change(v), length

    return engine


def jitter(v, calls=[0]):  # noqa: B006
    calls[0] += 1
    return v * (1 + 1e-6 * calls[0])


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (changed(lambda v: v * 1.01), "the parents: off by 0.01 of the largest number, where 0.001 is let through"),
        (changed(lambda v: v.roll(1, 0)), "the parents: off by"),
        (changed(lambda v: torch.where(v == v.max(), torch.nan, v)), "the parents: off by nan"),
        (changed(lambda v: Slope.apply(v, 1.1)), "the gradient of the votes: off by 0.1"),
        (changed(jitter), "a second run gives other numbers"),
        (raising, "RuntimeError: out of resource: shared memory needed 196608"),
    ],
    ids=["wrong number", "wrong order", "not finite", "wrong gradient", "other bits", "raising"],
)
def test_an_engine_that_is_wrong_does_not_pass(engine, said):
    found = trial(GIVEN, "cpu", engine, EXACT)
    assert said in found or ("nan" in said and "other numbers" in found)


def test_where_memory_is_out_nothing_is_said_of_the_engine():
    def full(*arguments):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        trial(GIVEN, "cpu", full, EXACT)


@pytest.mark.parametrize("size", [1, 4])
def test_a_small_graph_has_all_that_kernels_can_stumble_over(size):
    graph, (votes, prior) = small(GIVEN._replace(num_parents=0), size, "cpu")
    src, dst = graph.edges()
    assert (graph.in_degrees() == 0).any() and (graph.out_degrees() == 0).any()
    assert len(set(zip(src.tolist(), dst.tolist(), strict=True))) < graph.num_edges()
    assert graph.in_degrees().max() > max(8, 2 * size) < graph.out_degrees().max()
    assert graph.num_edges() == size * graph.num_dst_nodes() == size * graph.num_src_nodes()
    assert votes.shape == (32, 7, 5) and prior.shape == (32, 7)


def test_graphs_are_tried_up_to_the_largest_block_of_edges_and_complete_ones_up_to_two():
    assert sizes(GIVEN._replace(num_parents=0)) == [1, 2, 4] and sizes(GIVEN) == [1, 2, 4, 8]
    assert sizes(GIVEN._replace(votes="shared", child_dim=4, most_edges=0)) == [24]


class Asked:
    """Answers every question alike, and keeps count."""

    def __init__(self, verdict):
        self.verdict, self.times = verdict, 0

    def __call__(self, question):
        self.times += 1
        return self.verdict


@pytest.mark.parametrize("verdict", ["", "the parents: off by 1"])
def test_a_verdict_is_kept_until_what_it_depends_on_changes(tmp_path, verdict):
    ask = Asked(verdict)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            assert holds(GIVEN, HERE, ask, tmp_path / "new") is (verdict == "")
        assert ask.times == 1
        others = [(GIVEN, HERE | {name: "other"}) for name in HERE] + [(GIVEN._replace(dtype="float16"), HERE)]
        for question, here in others:
            holds(question, here, ask, tmp_path / "new")
    assert ask.times == 1 + len(others) == len(list((tmp_path / "new").iterdir()))
    assert len(said) == (0 if verdict == "" else 3 + len(others))


def test_a_failure_is_said_with_its_reason_and_how_to_ask_again(tmp_path):
    with pytest.warns(
        RuntimeWarning, match=r"did not pass its trial .* a GPU \(off by 1\); 'torch' routes. Remove "
    ) as said:
        assert not holds(GIVEN, HERE, Asked("off by 1"), tmp_path)
    (file,) = tmp_path.iterdir()
    assert str(file) in str(said[0].message)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[]", b'{"asked": 1}', b'{"verdict": ""}', b'{"asked": {}, "verdict": ""}']
)
def test_a_file_that_does_not_answer_is_asked_anew(tmp_path, content):
    ask = Asked("")
    assert holds(GIVEN, HERE, ask, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert holds(GIVEN, HERE, ask, tmp_path) and ask.times == 2
    assert json.loads(file.read_text())["verdict"] == ""


def test_what_could_not_be_asked_is_not_kept(tmp_path):
    with pytest.warns(RuntimeWarning, match="it could not be tried"):
        assert not holds(GIVEN, HERE, Asked(None), tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_folder_to_write_it_is_asked_each_time(tmp_path):
    (tmp_path / "file").write_text("")
    ask = Asked("")
    for folder in (None, tmp_path / "file" / "below"):
        assert holds(GIVEN, HERE, ask, folder)
    assert ask.times == 2


def test_a_trial_apart_answers_for_the_engine_of_that_process():
    assert tried_apart(GIVEN, torch.device("cpu")) == ""


def test_a_process_that_dies_is_a_failure(monkeypatch):
    monkeypatch.setattr(proof, "__name__", "no_such_module")
    assert "the trial ended with 1: ModuleNotFoundError" in tried_apart(GIVEN, torch.device("cpu"))


def test_what_a_process_says_need_not_be_text(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf '\\377\\376' >&2\nprintf '\\377'\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert tried_apart(GIVEN, torch.device("cpu")) == "the trial ended with 3: \ufffd\ufffd"


def test_a_process_that_hangs_is_a_failure(monkeypatch):
    monkeypatch.setattr(proof, "PATIENCE", 0.01)
    assert tried_apart(GIVEN, torch.device("cpu")) == "no answer in 0.01 seconds"


@pytest.mark.long
def test_a_device_that_is_not_there_is_no_fault_of_the_engine():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert tried_apart(GIVEN, torch.device("cuda:0")) is None


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_a_place_is_a_device_and_all_programs_between_it_and_a_kernel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"a GPU, {device}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    found = proof.place(torch.device("cuda:1"))
    assert found == json.loads(json.dumps(found))
    assert found["device"] == "a GPU, cuda:1" and found["torch"] == torch.__version__ and len(found["kernels"]) == 64
    assert {"capability", "cuda", "triton", "graphcaps"} < set(found)


class OnCuda(torch.Tensor):
    """A tensor that says that it is on CUDA."""

    device = torch.device("cuda:0")


@pytest.mark.parametrize("verdict", ["", "wrong"])
def test_auto_takes_the_engine_by_its_verdict(monkeypatch, tmp_path, verdict):
    ask = Asked(verdict)
    monkeypatch.setattr(fused, "without_triton", lambda device: "")
    monkeypatch.setattr(proof, "tried_apart", lambda question, device: ask(question))
    monkeypatch.setattr(proof, "place", lambda device: HERE)
    monkeypatch.setattr(proof, "question_of", lambda *arguments: GIVEN)
    monkeypatch.setattr(user_cache.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    proof._proven.cache_clear()
    votes = LinearVotes(torch.zeros(3, 4).as_subclass(OnCuda), torch.zeros(6, 4, 4))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        engines_taken = {choose_engine(complete_graph(3, 2), votes) for _ in range(3)}
    proof._proven.cache_clear()
    assert engines_taken == {"fused" if verdict == "" else "torch"}
    assert (ask.times, len(said)) == (1, 0 if verdict == "" else 1)
    assert [file.parent.parent.name for file in tmp_path.rglob("proof-*.json")] == ["graphcaps"]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not proof.proven("dynamic", votes, 2, True)
