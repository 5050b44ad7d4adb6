"""The benchmarks: only what is right is timed, in rounds, and each target is judged by its own number."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.bench import clock, contention, markdown, memory, nodes, targets, training, versus
from experiments.bench.__main__ import NAMES, run
from experiments.bench.formulations import DGL, EINSUM, TORCH, results, why_not
from experiments.bench.inputs import ORDERS, Setup, Sizes, case, random_graph
from experiments.bench.tables import Row, Table
from graphcaps import GraphcapsError

ROOT = Path(__file__).parents[2]
TINY = Sizes(
    images=3, children=12, parents=4, edges=300, growth=(300, 600), node_edges=(200, 400), batch=4,
    image_shape=(1, 17, 17), copied=2**16, square=16, seconds=0.01, rounds=(2, 3), epoch_images=10,
)  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["given", "linear"])
def test_einsum_equals_the_engines_in_float64(kind):
    own = case(kind, TINY).to("cpu", torch.float64)
    torch.testing.assert_close(results(EINSUM, own), results(DGL, own), rtol=1e-6, atol=1e-6)


def scaled(v):
    return v * 1.001


def wrong_gradient(v):
    return v.detach() + scaled(v - v.detach())


def not_finite(v):
    return v * float("nan")


@pytest.mark.parametrize(("change", "what"), [(scaled, "value"), (wrong_gradient, "gradient"), (not_finite, "value")])
def test_an_engine_with_wrong_numbers_is_named_and_not_timed(change, what):
    own = case("sparse", TINY)
    broken = TORCH._replace(route=lambda *arguments: change(TORCH.route(*arguments)))
    assert why_not(TORCH, own, results(DGL, own), "float32") == ""
    with pytest.raises(GraphcapsError, match=f"torch: expected the {what} of engine dgl, .* It is not timed"):
        why_not(broken, own, results(DGL, own), "float32")


def test_the_network_by_einsum_has_our_loss_and_gradient():
    images, labels, found = torch.rand(4, *TINY.image_shape), torch.tensor([0, 2, 1, 9]), []
    for network, _ in training.networks("paper", Setup("cpu", TINY, {})).values():
        loss = network.loss(network.train()(images, labels), images, labels)
        found.append([loss, *torch.autograd.grad(loss, list(network.parameters()))])
    for right, got in zip(found[0], found[1], strict=True):
        # float32 through two convolutions of 81 * 256 terms, and routing
        assert (got.flatten() - right.flatten()).abs().max() <= 1e-3 * right.abs().max()


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_of_the_same_edges(order):
    src, dst = (end.tolist() for end in random_graph(300, order).edges(order="eid"))
    others = (end.tolist() for end in random_graph(300, "random").edges(order="eid"))
    assert sorted(zip(src, dst, strict=True)) == sorted(zip(*others, strict=True))
    assert (dst == sorted(dst)) == (order == "parent-sorted") and (src == sorted(src)) == (order == "child-sorted")


@pytest.mark.parametrize(("seconds", "rounds"), [(1e-9, 2), (10.0, 5)])
def test_rounds_run_every_row_once_and_keep_to_their_bounds(monkeypatch, seconds, rounds):
    ran = []
    monkeypatch.setattr(clock, "SHORTEST", 0.0)  # one call per sample
    samples = clock.interleaved({n: lambda n=n: ran.append(n) for n in "abc"}, "cpu", seconds, (2, 5))
    assert "".join(ran) == "aabbcc" + "abc" * rounds  # warmed up one by one
    assert {len(values) for values in samples.values()} == {rounds}


def test_a_table_has_medians_quartiles_and_ratios():
    table = Table("t", "", "ms", [Row("a", ""), Row("b", ""), Row("c", "", note="why")], "a")
    table.fill({"a": [5.0, 1.0, 2.0, 4.0, 3.0], "b": [6.0]})
    assert table.rows[0].numbers == {"median": 3000, "low": 2000, "high": 4000, "ratio": 1}
    assert table.rows[1].numbers["ratio"] == 0.5 and table.rows[2].numbers == {} and "why" in table.text()


def test_targets_are_met_missed_or_not_measured():
    medians = {"dgl": 40.0, "fused": 10.0, "einsum, compiled": 20.0}
    rows = [Row(name, "", {"median": median}) for name, median in medians.items()]
    found = targets.judged("routing", "cpu", [Table("given votes, forward+backward", "", "ms", rows)])
    assert [(target["text"], target["met"]) for target in found] == [
        ("4.00", True), ("2.00", False), ("not measured", None), ("not measured", None),
    ]  # fmt: skip
    rows = [Row(name, "", {"median": median}) for name, median in (("a", 2.0), ("b", 12.0), ("c", 8.0))]
    target = targets.Target("routing", "cpu", "t", "a", 1, ("b", "c"))
    assert target.got([Table("t", "", "ms", rows)]) == 4  # of the fastest of the others
    assert target._replace(most=True).got([Table("t", "", "ms", rows)]) == 0.25


@pytest.mark.skipif(not memory._CLEAR.exists(), reason="needs Linux's /proc")
@pytest.mark.long
def test_peak_memory_of_a_known_tensor_is_its_size():
    numbers, note = memory.in_process(memory.measure, "given", memory.KNOWN, Sizes(), device="cpu")
    assert note == "" and numbers["total_per_votes"] == pytest.approx(1, abs=0.05)


def test_trainings_are_measured_alone_and_beside_a_loop_per_core_in_changing_orders(monkeypatch):
    calls, running = [], []

    def training_speed(device, environment):
        calls.append((len(running), environment.get("GOMP_SPINCOUNT") == "300000"))
        return 400.0 / (1 + len(running))

    def popen(command):
        running.append(command)
        return SimpleNamespace(kill=running.pop, wait=lambda: None)

    monkeypatch.setattr(contention, "training_speed", training_speed)
    monkeypatch.setattr(contention, "affinity", lambda: {0, 1, 2})
    monkeypatch.setattr(contention.subprocess, "Popen", popen)
    (table,) = contention.contention(Setup("cpu", TINY, {}))
    rounds = [tuple(calls[k : k + 4]) for k in range(0, len(calls), 4)]
    assert len(rounds) == contention.ROUNDS and len(set(rounds)) > 3 and not running
    assert all(sorted(each) == [(0, False), (0, True), (3, False), (3, True)] for each in rounds)
    assert [row.numbers["images_per_second"] for row in table.rows] == pytest.approx([400, 400, 100, 100])


@pytest.mark.long
def test_every_benchmark_makes_the_tables_of_the_docs(monkeypatch, tmp_path):
    for module in (memory, nodes):
        monkeypatch.setattr(module, "in_process", lambda call, *rest, device: (call(*rest, device), ""))
        monkeypatch.setattr(module, "peak", lambda call, device: (call(), 1000)[1])
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr("experiments.bench.machine._mallopt", lambda *settings: False)
    monkeypatch.setattr(contention, "training_speed", lambda device, environment: 100.0)
    monkeypatch.setattr(contention, "affinity", lambda: set())
    found = run((*NAMES, "epoch"), "cpu", tmp_path / "x.json", TINY, say=lambda line: None)
    assert json.loads((tmp_path / "x.json").read_text()) == json.loads(json.dumps(found))
    for made in (markdown.bench_tables, markdown.nodes_table, markdown.busy_table):
        assert "| " in made(found)


def test_two_checkouts_are_compared_by_their_bits():
    old = {"value": ["a" * 64, 2.0], "gradients": ["b" * 64, 3.0]}
    assert versus.same(old, old) == "unchanged to the bit"
    assert versus.same(old, old | {"value": ["c" * 64, 2.002]}) == "value differ (norms by 1e-03)"
