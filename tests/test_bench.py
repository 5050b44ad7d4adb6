"""The benchmark: it times only what is right, in rounds, and says of every target whether it was met."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import graphcaps
from graphcaps import CapsNet, GraphcapsError, InputError
from graphcaps.bench import baselines, busy, clock, gpu, machine, memory, networks, nodes, tables, targets, train
from graphcaps.bench import gate as gates
from graphcaps.bench.inputs import ORDERS, Sizes, case, random_graph
from graphcaps.bench.run import ALL, bench
from graphcaps.bench.tables import Row, Table
from graphcaps.bench.works import Setup
from graphcaps.routing.engines import choose_engine, run
from graphcaps.viz import bars

TINY = Sizes(
    images=3, children=12, parents=4, edges=300, growth=(300, 600), node_edges=(200, 400),
    batch=4, image_shape=(1, 17, 17), copied=2**16,
    square=16, seconds=0.01, rounds=(2, 3), epoch_images=10,
)  # fmt: skip
WAYS = {way.name: way for way in (*baselines.formulations(), baselines.READABLE)}


def use(monkeypatch) -> None:
    """No compiler, no process per row, and the allocator as the other tests have it."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(machine, "fix_allocator", lambda: "as it was")
    monkeypatch.setattr(memory, "give_back_at_once", lambda: None)
    monkeypatch.setattr(busy, "training", lambda device, environment: 100.0 + len(environment))
    monkeypatch.setattr(busy, "affinity", lambda: set())
    for module in (memory, nodes):
        monkeypatch.setattr(module, "alone", lambda measure, *arguments, device: measure(*arguments, device))


@pytest.fixture(autouse=True)
def alone(monkeypatch, one_thread):
    use(monkeypatch)


def admitted(way, kind: str) -> gates.Entry:
    return gates.Gate(case(kind, TINY)).admit(way)


# What fused computes is in the table of facts; here it would be compiled for these sizes too.
@pytest.mark.parametrize("kind", ["given", "linear", "sparse"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name == "fused")) for name, way in WAYS.items() if way.same],
)
def test_a_formulation_equals_naive_or_is_not_for_this_graph(name, kind):
    if name == "pyg":
        pytest.importorskip("torch_geometric")
    way = WAYS[name]
    entry = admitted(way, kind)
    assert entry.note == ("" if way.any_graph or kind != "sparse" else "complete graphs only")
    if not entry.note:
        own = case(kind, TINY)
        assert entry.forward().shape == own.cotangent.shape
        assert [x.numel() for x in entry.forward_backward()] == [x.numel() for x in own.tensors]
        assert all(x.is_contiguous() for x in entry.tensors)


def test_the_tutorial_is_another_algorithm_with_images_and_the_papers_without():
    way = WAYS["tutorial"]._replace(same=True)
    assert admitted(way, "sparse").note == ""
    with pytest.raises(GraphcapsError, match="tutorial: expected the value of naive in float64 on 15 edges"):
        admitted(way, "given")


def replace_torch(monkeypatch, broken) -> None:
    """Put this in the place of the engine ``torch``."""

    def run_or_break(routing, engine, *rest):
        return broken(*rest) if engine == "torch" else run(routing, engine, *rest)

    monkeypatch.setattr("graphcaps.routing.api.run", run_or_break)


def wrong_value(graph, u_hat, *rest):
    v, activation = run("dynamic", "naive", graph, u_hat, *rest)
    return v * (1 + 1e-6), activation


def wrong_gradient(graph, u_hat, *rest):
    v, activation = run("dynamic", "naive", graph, u_hat, *rest)
    return v.detach() + (v - v.detach()) * (1 + 1e-6), activation


def wrong_in_float32_only(graph, u_hat, *rest):
    v, activation = run("dynamic", "dgl", graph, u_hat, *rest)
    return v * (1 if v.dtype == torch.float64 else 1.001), activation


def not_finite(graph, u_hat, *rest):
    v, activation = run("dynamic", "naive", graph, u_hat, *rest)
    return v * float("nan"), activation


BROKEN = {
    "value": (wrong_value, "value of naive in float64 on 15 edges"),
    "gradient": (wrong_gradient, "gradient of u_hat of naive in float64 on 15 edges"),
    "own_input": (wrong_in_float32_only, "value of engine dgl on 48 edges"),
    "not_finite": (not_finite, "value of naive in float64 on 15 edges"),
}


@pytest.mark.fact(12)
@pytest.mark.parametrize("kind", BROKEN)
def test_an_engine_with_wrong_numbers_is_named_and_not_timed(monkeypatch, tmp_path, kind):
    broken, what = BROKEN[kind]
    refused = "nothing"
    replace_torch(monkeypatch, broken)
    try:
        bench("routing", device="cpu", to=tmp_path, sizes=TINY, say=lambda line: None)
    except GraphcapsError as error:
        refused = str(error)
    assert refused.startswith(f"torch: expected the {what}, got one that is off by ")
    assert refused.endswith("It is not timed")


def test_what_cannot_run_here_says_why_in_its_row(monkeypatch, tmp_path):
    def no_compiler(function, **options):
        raise RuntimeError("\nno C++ compiler\nand more")

    monkeypatch.setattr(torch, "compile", no_compiler)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    monkeypatch.setitem(sys.modules, "torch_geometric.utils", None)
    said = []
    found = bench("routing", device="cpu", to=tmp_path, sizes=TINY, say=said.append)["works"]["routing"]
    for table in found["tables"]:
        rows = {row["name"]: row for row in table["rows"]}
        assert rows["einsum, compiled"]["note"] == "does not run here: RuntimeError: no C++ compiler"
        assert rows["pyg"]["note"] == "torch_geometric is not installed"
        assert {name for name, row in rows.items() if not row["numbers"]} == {"einsum, compiled", "pyg"}
    assert "\n".join(said).count("einsum, compiled  does not run here") == 4
    unmeasured = [target for target in found["targets"] if target["met"] is None]
    assert [target["says"] for target in unmeasured] == ["given votes, forward+backward: fused over compiled einsum"]
    assert "not measured  given votes, forward+backward: fused over compiled einsum" in "\n".join(said)


def test_an_engine_that_fails_is_no_note(monkeypatch):
    def fails(*args):
        raise RuntimeError("broken")

    replace_torch(monkeypatch, fails)
    with pytest.raises(RuntimeError, match="broken"):
        admitted(WAYS["torch"], "given")


TABLES = {
    "routing": ["given votes, forward", "given votes, forward+backward", "linear votes, forward",
                "linear votes, forward+backward"],
    "sparse": ["sparse graph, forward", "sparse graph, forward+backward"],
    "train": ["training step"],
    "memory": ["given votes", "linear votes", "sparse graph"],
    "growth": ["time per edge, engine fused"],
    "nodes": [f"full-graph training step, {edges} edges" for edges in (200, 400)],
    "busy": ["training beside busy programs"],
}  # fmt: skip


@pytest.fixture(scope="module")
def everything(tmp_path_factory, one_thread):
    """All works at tiny sizes: what was returned, what was printed, and the folder that was written."""
    folder, said = tmp_path_factory.mktemp("bench"), []
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        found = bench(device="cpu", threads=1, to=folder, json_file=folder / "x.json", sizes=TINY, say=said.append)
    return found, "\n".join(said), folder


@pytest.mark.long
def test_every_work_makes_its_tables_and_judges_its_targets(everything):
    found, said, _ = everything
    assert {work: [table["name"] for table in part["tables"]] for work, part in found["works"].items()} == TABLES
    for work, part in found["works"].items():
        wanted = [target.says for target in targets.TARGETS if (target.work, target.device) == (work, "cpu")]
        assert wanted and [target["says"] for target in part["targets"]] == wanted
        for target in part["targets"]:
            assert f"{targets.verdict(target):<12}  {target['says']}: {target['said']}" in said
        for table in part["tables"]:
            assert table["name"] in said and table["about"] in said
            assert all(row["numbers"] or row["note"] for row in table["rows"])
            assert all(row["name"] in said for row in table["rows"])


@pytest.mark.long
def test_times_have_quartiles_ratios_and_shares(everything):
    works_found = everything[0]["works"]
    for table in [*works_found["routing"]["tables"], *works_found["sparse"]["tables"]]:
        rows = {row["name"]: row["numbers"] for row in table["rows"] if row["numbers"]}
        assert {"dgl", "torch", "fused"} <= rows.keys() and table["reference"] == "dgl" and 2 <= table["rounds"] <= 3
        for numbers in rows.values():
            assert 0 < numbers["low"] <= numbers["median"] <= numbers["high"]
            assert numbers["ratio"] == pytest.approx(rows["dgl"]["median"] / numbers["median"])
            assert numbers["floor_share"] > 0


@pytest.mark.long
def test_the_json_holds_all_that_was_printed(everything):
    found, said, folder = everything
    written = json.loads((folder / "x.json").read_text())
    assert written == json.loads(json.dumps(found))
    assert written["command"] == "graphcaps bench all --device cpu --threads 1" and written["format_version"] == 1
    assert written["machine"].keys() >= {
        "torch",
        "dgl",
        "numba",
        "python",
        "processor",
        "cores",
        "threads",
        "allocator",
    }
    assert written["sizes"] == json.loads(json.dumps(dataclasses.asdict(TINY))) and written["seed"] == 0
    assert written["ceilings"].keys() == {"copy_gb_s", "float32_gflop_s", "bfloat16_gflop_s"}
    assert all(value > 0 for value in written["ceilings"].values())
    assert written["how"] in said and all(str(value) in said for value in written["machine"].values())


@pytest.mark.long
def test_each_work_is_drawn(everything):
    found, _, folder = everything
    assert {path.name for path in folder.iterdir()} == {"x.json", *(f"{work}.png" for work in ALL)}
    figure = bars("routing", found)
    assert [axes.get_label() for axes in figure.axes] == TABLES["routing"]
    for axes, table in zip(figure.axes, found["works"]["routing"]["tables"], strict=True):
        names = [row["name"] + " *" * row["another_algorithm"] for row in table["rows"]]
        assert [label.get_text() for label in axes.get_yticklabels()] == names
        widths = [bar.get_width() for bar in axes.patches]
        assert widths == [row["numbers"]["median"] for row in table["rows"] if row["numbers"]]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert any("dgl)" in text for text in texts)


def test_a_row_that_was_not_measured_is_drawn_with_its_reason():
    rows = [Row("a", "", {"median": 2.0, "low": 1.0, "high": 3.0}), Row("b", "", note="no compiler")]
    plain = tables.plain(Table("t", "", "median", "ms", rows))
    about = {"processor": "p", "device": "cpu", "threads": 1, "torch": "2"}
    axes = bars("w", {"machine": about, "works": {"w": {"tables": [plain]}}}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["2", "no compiler"] and len(axes.patches) == 1


def judged_one(found: list[dict], says: str) -> dict:
    return next(target for target in found if says in target["says"])


def test_targets_are_met_missed_or_not_measured():
    def table(**medians: float) -> Table:
        rows = [Row(name.replace("_", ", "), "", {"median": median}) for name, median in medians.items()]
        return Table("given votes, forward+backward", "", "median", "ms", rows, "dgl", auto="fused")

    fast = targets.judged("routing", "cpu", [table(dgl=40.0, fused=10.0, einsum_compiled=20.0)])
    assert judged_one(fast, "over dgl")["met"] is True and judged_one(fast, "over dgl")["said"] == "4.0x"
    assert judged_one(fast, "over compiled")["met"] is False and judged_one(fast, "over compiled")["got"] == 2.0
    assert judged_one(fast, "share of the floor")["met"] is None
    assert judged_one(fast, "linear votes")["met"] is None and judged_one(fast, "auto takes")["met"] is True
    slow = targets.judged("routing", "cpu", [table(dgl=8.0, fused=10.0, einsum_compiled=20.0)])
    assert judged_one(slow, "over dgl")["met"] is False
    assert judged_one(slow, "auto takes")["got"] == 1.25 and judged_one(slow, "auto takes")["met"] is False
    assert [targets.verdict(target) for target in (fast[0], slow[0], fast[2])] == ["met", "MISSED", "not measured"]
    assert targets.judged("routing", "mps", [table(dgl=1.0)]) == []


def test_a_limit_from_above_is_met_below_it():
    def rows(per_edge: list[float]) -> list[Row]:
        return [Row(f"random, {k} edges", "", {"median": value}) for k, value in enumerate(per_edge)]

    for last, met in ((13.0, True), (13.1, False)):
        table = Table("time per edge, engine fused", "", "median", "ns/edge", rows([12.0, 10.0, last]))
        assert judged_one(targets.judged("growth", "cpu", [table]), "random")["met"] is met


def test_the_best_of_several_others_counts():
    of = targets.times("t", "a", "b", "c")
    rows = [Row(name, "", {"median": median}) for name, median in (("a", 2.0), ("b", 12.0), ("c", 8.0))]
    assert of({"t": Table("t", "", "median", "ms", rows)}) == 4.0
    assert of({"t": Table("t", "", "median", "ms", rows[:2])}) is None and of({}) is None


@pytest.mark.parametrize(("seconds", "rounds"), [(1e-9, 2), (10.0, 5)])
def test_rounds_run_every_row_once_and_keep_to_their_bounds(monkeypatch, seconds, rounds):
    ran = []
    monkeypatch.setattr(clock, "SHORTEST", 0.0)  # one call per sample
    timings = clock.interleaved({n: lambda n=n: ran.append(n) for n in "abc"}, "cpu", seconds, (2, 5))
    assert "".join(ran) == "aabbcc" + "abc" * rounds  # warmed up one by one
    assert {timing.rounds for timing in timings.values()} == {rounds}


def test_a_timing_is_median_and_quartiles():
    assert clock.timing_of([5.0, 1.0, 2.0, 4.0, 3.0]) == clock.Timing(3.0, 2.0, 4.0, 5)
    assert clock.timing_of([7.0]) == clock.Timing(7.0, 7.0, 7.0, 1)


def test_a_quick_call_is_repeated_within_a_sample(monkeypatch):
    calls = []
    monkeypatch.setattr(clock, "seconds_of", lambda call, times, device: (calls.append(times), times * 0.001)[1])
    timing = clock.interleaved({"a": lambda: None}, "cpu", 1e-9, (2, 2))["a"]
    assert calls == [1, 1, 10, 10, 10] and timing.median == pytest.approx(0.001)


@pytest.mark.parametrize("name", ["broadcast", "tutorial", "einsum"])
def test_a_baseline_network_has_the_loss_and_gradient_of_ours(name):
    torch.manual_seed(0)
    own = CapsNet.from_preset("paper", TINY.image_shape, 3)
    way, separate, _ = train.BASELINES[name]
    images, labels = torch.rand(3, *TINY.image_shape), torch.tensor([0, 2, 1])
    network = networks.baseline_network(own, way, separate)
    assert train.why_not(network, own, way, images, labels) == ""
    if way.same:
        with torch.no_grad():
            network.capsules.weight[0] *= 1.5
        with pytest.raises(GraphcapsError, match=f"{name}: expected the (loss|gradient)"):
            train.why_not(network, own, way, images, labels)


def test_the_operations_of_a_step_are_those_that_torch_counts():
    own = CapsNet.from_preset("paper", TINY.image_shape, 3, iterations=1)
    network = networks.baseline_network(own, baselines.EINSUM, separate=False)
    images, labels = torch.rand(2, *TINY.image_shape), torch.tensor([0, 1])
    with FlopCounterMode(display=False) as counter:
        train.capsnet_loss(network.train()(images, labels), images, labels).backward()
    # torch also counts routing's own product, s = sum of c u_hat, forward and backward: 2 * B * E * D each
    routing = 2 * 2 * 2 * own.capsules.weight.shape[0] * 16
    assert train.step_operations(own, batch=2) == counter.get_total_flops() - routing


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_of_the_same_edges(order):
    graph, other = random_graph(300, order), random_graph(300, "random")
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    assert sorted(zip(src, dst, strict=True)) == sorted(zip(*map(torch.Tensor.tolist, other.edges()), strict=True))
    assert (dst == sorted(dst)) == (order == "parent-sorted") and (src == sorted(src)) == (order == "child-sorted")


@pytest.mark.skipif(not memory._CLEAR.exists(), reason="needs Linux's /proc")
@pytest.mark.long
def test_peak_memory_of_a_known_tensor_is_its_size(monkeypatch):
    monkeypatch.undo()  # a process of its own
    numbers = memory.alone(memory.measure, "given", memory.KNOWN, Sizes(), device="cpu")
    assert numbers["total_per_votes"] == pytest.approx(1, abs=0.05) and numbers["gradients"] == 0
    assert numbers["total"] == pytest.approx(23.59, abs=1.2)


@pytest.mark.long
def test_memory_counts_the_gradients_apart(everything):
    votes = {"given": 4 * 48 * 3 * 16, "linear": 4 * (12 * 3 * 8 + 48 * 8 * 16), "sparse": 4 * 300 * 16}
    for table, gradients in zip(everything[0]["works"]["memory"]["tables"], votes.values(), strict=True):
        for row in table["rows"][:-1]:
            if row["numbers"]:
                assert row["numbers"]["gradients"] * 1e6 == pytest.approx(gradients)
                assert row["numbers"]["scratch"] == pytest.approx(row["numbers"]["total"] - gradients / 1e6)


@pytest.mark.long
def test_a_full_graph_step_is_timed_and_weighed(everything):
    for table in everything[0]["works"]["nodes"]["tables"]:
        assert [row["name"] for row in table["rows"]] == list(nodes.LAYERS)
        for row in table["rows"]:
            assert row["numbers"]["median"] > 0 and row["numbers"]["total"] >= 0 and not row["note"]


@pytest.fixture
def trainings(monkeypatch):
    """Speeds by how many loops run and whose threads it is; the calls, in order; and the table."""
    speeds = {(0, "own"): 400.0, (0, "torch's"): 380.0, (3, "own"): 200.0, (3, "torch's"): 50.0}
    calls, running = [], []

    class Loop:
        def __init__(self, command):
            assert compile(command[-1], "loop", "exec")
            running.append(self)

        def kill(self):
            running.remove(self)

        def wait(self):
            assert self not in running

    def training(device, environment):
        assert device == "cpu" and environment["OMP_DYNAMIC"] == "false"  # the user's own
        calls.append((len(running), "torch's" if environment.get("GOMP_SPINCOUNT") == "300000" else "own"))
        if calls[-1][1] == "own":
            assert "OMP_NUM_THREADS" not in environment  # what graphcaps bench has set isn't the user's
        else:
            assert environment["OMP_NUM_THREADS"] == "5"
        return speeds[calls[-1]]

    def now():  # 9 seconds a look, in which this process and all others have worked for 2 and 11
        now.looks += 1
        return busy.Clock(9.0 * now.looks, 2.0 * now.looks, 11.0 * now.looks)

    now.looks = 0
    monkeypatch.setattr(busy, "training", training)
    monkeypatch.setattr(busy, "affinity", lambda: {0, 1, 2})
    monkeypatch.setattr(busy, "physical_cores", lambda: 5)
    monkeypatch.setattr(busy, "users_environment", lambda: {"OMP_DYNAMIC": "false"})
    monkeypatch.setattr(busy.subprocess, "Popen", Loop)
    monkeypatch.setattr(busy.Clock, "now", now)
    (table,) = busy.busy(Setup("cpu", TINY, {}))
    assert not running
    return calls, table


def test_trainings_are_measured_alone_and_beside_a_loop_per_core_in_changing_orders(trainings):
    calls, table = trainings
    rounds = [tuple(calls[k : k + 4]) for k in range(0, len(calls), 4)]
    assert len(rounds) == busy.ROUNDS and len(set(rounds)) > 3
    for each in rounds:
        assert sorted(each) == [(0, "own"), (0, "torch's"), (3, "own"), (3, "torch's")]
    assert [row.numbers["speed"] for row in table.rows] == pytest.approx([400, 380, 200, 50])
    assert table.row("alone").numbers["median"] == pytest.approx(1e3 * 64 / 400)
    assert "other programs kept 1.0 of 3 cores busy" in table.about


def test_training_beside_busy_programs_is_judged_against_alone(trainings):
    found = targets.judged("busy", "cpu", [trainings[1]])
    slower, idle = judged_one(found, "times as long as alone"), judged_one(found, "torch's own threads")
    assert slower["got"] == pytest.approx(2) and slower["met"] is True
    assert idle["got"] == pytest.approx(400 / 380) and idle["met"] is True


def test_loops_end_with_the_block_also_after_an_error(monkeypatch):
    started, popen = [], busy.subprocess.Popen
    monkeypatch.setattr(busy.subprocess, "Popen", lambda command: started.append(popen(command)) or started[-1])
    with pytest.raises(KeyError), busy.loops(2):
        assert [process.poll() for process in started] == [None, None]
        raise KeyError
    assert [process.returncode is not None for process in started] == [True, True]


@pytest.mark.long
def test_a_training_of_its_own_says_its_speed(monkeypatch):
    monkeypatch.undo()
    assert busy.training("cpu", {**os.environ, "PYTHONPATH": str(Path(graphcaps.__file__).parents[1])}) > 1
    with pytest.raises(GraphcapsError, match="graphcaps train: expected it to end well, got 2: "):
        busy.training("abacus", dict(os.environ))


GPU_TABLES = [
    "given votes, forward", "given votes, forward+backward", "linear votes, forward", "linear votes, forward+backward",
    "linear votes in tf32, forward", "linear votes in tf32, forward+backward", "linear votes in bfloat16, forward",
    "linear votes in bfloat16, forward+backward", "training epoch",
]  # fmt: skip


def check_epochs(epoch: Table) -> None:
    assert [row.name for row in epoch.rows] == ["readable", "graphcaps, float32", "graphcaps"]
    for row in epoch.rows:
        assert row.numbers["speed"] == pytest.approx(10 / row.numbers["median"]) and not row.note
        assert row.numbers["ratio"] == pytest.approx(epoch.number("readable", "median") / row.numbers["median"])
    assert judged_one(targets.judged("gpu", "cuda", [epoch]), "epoch")["got"] == epoch.number("graphcaps", "median")


@pytest.mark.long
def test_epochs_are_timed_beside_a_baselines():
    check_epochs(gpu.epochs(Setup("cpu", TINY, {})))


@pytest.mark.long
def test_what_a_gpu_would_be_asked_for_can_be_measured():
    """On the CPU, at tiny sizes: every target finds its number."""
    ceilings = {"copy_gb_s": 1.0} | {f"{kind}_gflop_s": 1.0 for kind in ("float32", "tf32", "bfloat16")}
    found = list(gpu.measured(Setup("cpu", TINY, ceilings)))
    assert [table.name for table in found] == GPU_TABLES
    assert not [row.note for table in found for row in table.rows if row.note]
    judged = targets.judged("gpu", "cuda", found)
    assert len(judged) == 5 and all(target["got"] > 0 for target in judged)
    check_epochs(found[-1])


def test_an_epoch_of_a_second_is_met_and_a_longer_one_missed():
    for seconds, met in ((1.0, True), (1.01, False)):
        rows = [Row("graphcaps", "", {"median": seconds})]
        found = targets.judged("gpu", "cuda", [Table("training epoch", "", "median", "s", rows)])
        assert judged_one(found, "epoch")["met"] is met and judged_one(found, "epoch")["said"] == f"{seconds:.2f} s"


def test_on_a_cpu_the_targets_of_a_gpu_say_what_they_need(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "measured", lambda setup: pytest.fail("it measured"))
    said = []
    found = bench("gpu", device="cpu", to=tmp_path, sizes=TINY, say=said.append)["works"]["gpu"]
    assert {target["met"] for target in found["targets"]} == {None} and len(found["targets"]) == 5
    text = "\n".join(said)
    assert text.count("needs a GPU; there it ") == 3 and "nothing was measured: this is a CPU" in text
    assert text.count("there it routes ") == 2 and text.count("there it trains ") == 1
    assert ".png" not in text and not list(tmp_path.rglob("*.png"))
    assert text.count("not measured  ") == 5 and "wanted at most 1.00 s" in text and "wanted at least 10.0x" in text


@pytest.mark.long
def test_auto_is_what_the_tables_say(everything):
    for table in everything[0]["works"]["routing"]["tables"]:
        own = case(table["name"].split()[0], TINY)
        assert table["auto"] == choose_engine(own.graph, own.votes)


def test_wrong_arguments_are_refused_in_words(tmp_path):
    with pytest.raises(InputError, match="work: expected one of all, routing, .* got 'rooting'"):
        bench("rooting", to=tmp_path)
    with pytest.raises(InputError, match="threads: expected an integer >= 1, got 0"):
        bench("routing", threads=0, to=tmp_path)


def test_bfloat16_and_tf32_pass_the_gate_and_leave_no_setting_behind():
    before = torch.get_float32_matmul_precision()
    for precision, dtype in (("bfloat16", torch.bfloat16), ("tf32", torch.float32)):
        with machine.matmul(precision):
            entry = gates.Gate(case("linear", TINY, dtype=dtype), precision).admit(baselines.EINSUM)
        assert entry.note == "" and entry.forward().dtype == dtype
    assert torch.get_float32_matmul_precision() == before


def test_files_that_cant_be_written_are_said_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ceilings", lambda *args: pytest.fail("it measured"))
    (tmp_path / "taken").write_text("")
    old = tmp_path / "old.json"
    old.write_text("{}")
    for wrong in ({"json_file": tmp_path}, {"json_file": tmp_path / "taken" / "a.json"}, {"to": tmp_path / "taken"}):
        with pytest.raises(GraphcapsError, match="taken|folder"):
            bench("routing", device="cpu", sizes=TINY, **{"to": tmp_path} | wrong)
    with pytest.raises(BaseException, match="it measured"):
        bench("routing", device="cpu", sizes=TINY, to=tmp_path, json_file=old)
    assert old.read_text() == "{}" and sorted(path.name for path in tmp_path.iterdir()) == ["old.json", "taken"]
