"""The examples choose fairly and without test labels, and their command runs on small data."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from graphcaps import viz
from graphcaps._dgl import dgl
from graphcaps.cli import main
from graphcaps.data.graphs import cora as citation
from graphcaps.data.graphs import tu
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.examples import cora, molecules, run, table, trials
from graphcaps.examples.trials import BestEpoch, Fit
from graphcaps.trace import RoutingTrace

from . import planetoid, rings

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="the real graphs aren't at ../shared/data")
pytestmark = pytest.mark.usefixtures("one_thread")


def quick_and_long(names, *quick) -> list:
    """Of these names all but the quick ones are long."""
    return [pytest.param(name, marks=[pytest.mark.long] * (name not in quick)) for name in names]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A folder with the small sets under the names of the real ones, which ``expected`` makes them fit."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "cora").mkdir()
    np.savez(folder / "cora" / "cora.npz", **planetoid.arrays())
    rings.write(folder / "tu" / "MUTAG")
    rings.write(folder / "tu" / "PROTEINS", "PROTEINS")
    return folder


@pytest.fixture(autouse=True)
def expected(monkeypatch):
    monkeypatch.setattr(citation, "CORA", planetoid.SPEC)
    for name in ("MUTAG", "PROTEINS"):
        monkeypatch.setitem(tu.SETS, name, rings.spec())


@pytest.fixture
def papers(data):
    return citation.load_cora(data)


@pytest.fixture
def graphs(data):
    return tu.load_graphs("MUTAG", data)


def silent(share: float) -> None:
    pass


def other_test_labels(papers):
    labels = papers.labels.clone()
    labels[papers.test] = (labels[papers.test] + 1) % papers.num_classes
    return dataclasses.replace(papers, labels=labels)


def seen(fit: Fit) -> tuple:
    """All of a training but how long it took."""
    return fit.val_accuracy, fit.val_loss, fit.epoch, fit.parameters, fit.predicted.tolist()


@pytest.mark.parametrize("name", cora.LAYERS)
def test_training_on_cora_sees_no_test_label(papers, name):
    settings = cora.SETTINGS[name][0]
    first, second = (cora.fit(some, name, settings, 0, 8) for some in (papers, other_test_labels(papers)))
    assert seen(first) == seen(second)


@pytest.mark.parametrize("readout", molecules.READOUTS)
def test_training_on_a_fold_sees_no_test_label(graphs, readout):
    labels = graphs.labels.copy()
    labels[graphs.folds[3]] = 1 - labels[graphs.folds[3]]
    other = dataclasses.replace(graphs, labels=labels)
    first, second = (molecules.fit(some, readout, molecules.SETTINGS[0], 3, 0, 4) for some in (graphs, other))
    assert seen(first) == seen(second)


def test_what_is_chosen_for_cora_does_not_depend_on_test_labels(papers):
    first, second = (cora.run(some, 2, True, silent)["rows"] for some in (papers, other_test_labels(papers)))
    for one, other in zip(first, second, strict=True):
        assert (one["chosen"], one["validation"]) == (other["chosen"], other["validation"])
        assert one["test"] != other["test"]  # else this test couldn't fail


@pytest.mark.parametrize("name", quick_and_long(cora.LAYERS, "GAT", "capsules"))
def test_each_layer_learns_papers_that_cite_their_class(papers, name):
    fit = cora.fit(papers, name, cora.SETTINGS[name][0], 0, 100)
    assert trials.accuracy(fit, papers.labels[papers.test]) > 0.8


@pytest.mark.parametrize("readout", quick_and_long(molecules.READOUTS, "attention", "capsules"))
def test_each_readout_learns_which_tag_a_graph_has(graphs, readout):
    fit = molecules.fit(graphs, readout, molecules.SETTINGS[0], 0, 0, 40)
    assert trials.accuracy(fit, torch.from_numpy(graphs.labels[graphs.folds[0]])) == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_parts_of_each_fold_are_disjoint_complete_and_stratified(graphs, seed):
    for fold in range(10):
        train, val, test = molecules.split(graphs, fold, seed)
        assert sorted([*train, *val, *test]) == list(range(len(graphs)))
        assert test.tolist() == graphs.folds[fold].tolist() and len(val) == round((64 - 6) / 10)
        shares = [graphs.labels[part].mean() for part in (np.concatenate([train, val]), val)]
        assert abs(shares[0] - shares[1]) * len(val) < 1


def test_another_seed_holds_out_other_graphs(graphs):
    assert molecules.split(graphs, 0, 0)[1].tolist() != molecules.split(graphs, 0, 1)[1].tolist()


def test_the_routing_of_graphs_is_that_of_the_network_at_its_trained_iterations(graphs):
    torch.manual_seed(0)
    model = molecules.GraphNet("capsules", 3, 2, 8, 0.5).eval()
    found = molecules.routings(model, graphs, [5, 0], 4)
    for number, trace in zip([5, 0], found, strict=True):
        nodes, edges = len(rings.graph(number)[1]), sum(len(ends) for _, ends in rings.graph(number)[1])
        c = trace.c[0, :, 0].reshape(4, nodes, 2)
        assert trace.trained_iterations == 3 and trace.bonds.shape == (edges // 2, 2)
        assert np.allclose(c.sum(axis=2), 1, atol=1e-3) and np.allclose(c[0], 0.5)
        assert not np.allclose(c[3], c[0], atol=1e-3)
        assert trace.labels.tolist() == [graphs.labels[number]]
        with torch.no_grad():
            assert torch.allclose(model(graphs.batch([number]))[0], torch.from_numpy(trace.lengths[0, 2, 0]))


class Recorded:
    """In the place of a training: says how good a setting is, and remembers who was trained how."""

    def __init__(self, goodness):
        self.goodness, self.calls = goodness, []

    def __call__(self, data, name, settings, *where, epochs):
        self.calls.append((name, table.said(settings), *where))
        items = len(data.test) if hasattr(data, "test") else len(data.folds[where[0]])
        return Fit(self.goodness(settings), 1.0, 1, 10, 0.5, torch.zeros(items, dtype=torch.int64))


@pytest.mark.parametrize("liked", range(cora.TRIALS))
def test_every_layer_of_cora_has_as_many_trials_and_the_best_is_trained_from_other_seeds(papers, monkeypatch, liked):
    best = [cora.SETTINGS[name][liked] for name in cora.LAYERS]
    recorded = Recorded(lambda settings: 0.9 if settings in best else 0.8)
    monkeypatch.setattr(cora, "fit", recorded)
    rows = cora.run(papers, 5, True, silent)["rows"]
    assert [list(row["chosen"]) for row in rows] == [[table.said(settings)] for settings in best]
    tried = recorded.calls[: -5 * len(cora.LAYERS)]
    assert set(Counter(name for name, *_ in tried).values()) == {cora.TRIALS * len(cora.TRIAL_SEEDS)}
    for name, settings in zip(cora.LAYERS, best, strict=True):
        final = [call for call in recorded.calls[len(tried) :] if call[0] == name]
        assert final == [(name, table.said(settings), seed) for seed in range(5)]
        assert {call[2] for call in tried}.isdisjoint(range(5))


def test_every_readout_has_as_many_trials_on_each_fold(graphs, monkeypatch):
    recorded = Recorded(lambda settings: settings["dropout"])
    monkeypatch.setattr(molecules, "fit", recorded)
    rows = molecules.run(graphs, 2, 9, True, silent)["rows"]
    counts = Counter((name, fold) for name, _, fold, _ in recorded.calls)
    assert counts == {(name, fold): 2 * len(molecules.SETTINGS) for name in molecules.READOUTS for fold in range(2)}
    assert all(row["chosen"] == {"width 16, dropout 0.5, lr 0.01": 2} for row in rows)
    assert [len(row["test"]) for row in rows] == [2] * len(rows)


@pytest.mark.parametrize("name", quick_and_long(["cora", "mutag", "proteins"], "cora", "mutag"))
def test_an_example_that_was_stopped_repeats_no_training(data, tmp_path, monkeypatch, capsys, name):
    module, asked, calls = cora if name == "cora" else molecules, ["--data", str(data), "--out", str(tmp_path)], []

    def breaking(data, model, settings, *where, epochs):
        if len(calls) == 30:
            raise KeyboardInterrupt
        calls.append((model, table.said(settings), *where))
        items = len(data.test) if name == "cora" else len(data.folds[where[0]])
        return Fit(0.5, 1.0, 1, 10, 0.5, torch.zeros(items, dtype=torch.int64))

    monkeypatch.setattr(module, "fit", breaking)
    monkeypatch.setattr(trials, "cores", lambda: 1)
    monkeypatch.setattr(molecules, "trace", lambda *given: (_ for _ in ()).throw(InputError("after the trainings")))
    assert main(["example", name, *asked]) == 130
    before, kept = [*calls], tmp_path / name / "trainings"
    assert len([*kept.iterdir()]) == 30
    calls.clear()
    for _ in range(8):
        if main(["example", name, *asked]) != 130:
            break
        before, calls[:] = before + calls, []
    before += calls
    assert "30 trainings kept in" in capsys.readouterr().out
    of_cora = 5 * (cora.TRIALS * len(cora.TRIAL_SEEDS) + 20)
    assert len(before) == len({*before}) == (of_cora if name == "cora" else 5 * 4 * 10)


def test_kept_trainings_are_those_of_the_same_data(papers, tmp_path, monkeypatch):
    monkeypatch.setattr(cora, "fit", Recorded(lambda settings: 0.5))
    monkeypatch.setattr(trials, "_plain", lambda function, job, about: {"job": [*job], "about": about})
    first = cora.rows(papers, ["GCN"], 2, silent, tmp_path, 1)
    assert cora.rows(papers, ["GCN"], 2, silent, tmp_path, 0) == first
    with pytest.raises(trials.NotKept, match="expected 3 trainings, got 2"):
        cora.rows(papers, ["GCN"], 3, silent, tmp_path, 0)
    job = ("GCN", {}, 0)
    monkeypatch.undo()
    known = [trials._key(trials._plain(cora.fit, job, about)) for about in (None, {"data": "cora"}, {"data": "other"})]
    assert len({*known}) == 3


def test_a_setting_is_chosen_by_mean_accuracy_and_then_by_loss():
    def fits(*scores):
        return [Fit(accuracy, loss, 1, 1, 0.0, torch.empty(0)) for accuracy, loss in scores]

    assert trials.best_setting([fits((0.8, 1), (0.8, 1)), fits((0.95, 1), (0.7, 1)), fits((0.6, 0.1), (0.6, 0.1))]) == 1
    assert trials.best_setting([fits((0.8, 0.3)), fits((0.8, 0.2)), fits((0.7, 0.1))]) == 1


def test_the_epoch_of_the_lowest_loss_is_kept_and_patience_ends():
    model = nn.Linear(1, 2)
    best = BestEpoch(model, patience=2)
    scores, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    went_on = []
    for epoch, loss in enumerate([3.0, 1.0, 2.0, 2.0], 1):
        nn.init.constant_(model.weight, epoch)
        went_on.append(best.update(epoch, scores, labels, torch.tensor(loss)))
    assert went_on == [True, True, True, False]
    fit = best.fit(lambda: model.weight.flatten())
    assert fit.predicted.tolist() == [2, 2] and (fit.epoch, fit.val_loss, fit.val_accuracy) == (2, 1.0, 0.5)


def test_a_training_that_diverges_is_an_error():
    best = BestEpoch(nn.Linear(1, 1), patience=2)
    with pytest.raises(GraphcapsError, match="epoch 4: expected a finite validation loss, got nan"):
        best.update(4, torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), torch.tensor(float("nan")))


def test_word_dropout_drops_words_and_nothing_else():
    words = torch.eye(3).repeat(200, 100)
    dropout = cora.WordDropout(words, 0.5)
    dropped = dropout().to_dense()
    assert set(dropped[words == 0].tolist()) == {0.0} and set(dropped[words == 1].tolist()) == {0.0, 2.0}
    assert abs(dropped[words == 1].mean() - 1) < 0.05
    assert not torch.equal(dropped, dropout().to_dense())
    assert torch.equal(dropout.eval()().to_dense(), words)


@pytest.mark.long
def test_several_processes_give_the_numbers_of_one(papers):
    from functools import partial

    jobs = [("GCN", cora.SETTINGS["GCN"][k], seed) for k in range(2) for seed in range(2)]
    shares = []
    one = trials.run_jobs(partial(cora.fit, papers, epochs=5), jobs, silent, 1)
    two = trials.run_jobs(partial(cora.fit, papers, epochs=5), jobs, shares.append, 2)
    assert [seen(fit) for fit in one] == [seen(fit) for fit in two] and shares == [0.25, 0.5, 0.75, 1]


@pytest.mark.long
def test_an_error_in_a_process_ends_the_others():
    with pytest.raises(TypeError):
        trials.run_jobs(cora.fit, [(1,), (2,), (3,)], silent, 2)


@pytest.mark.parametrize("name", quick_and_long(["cora", *run.EPOCHS], "mutag"))
def test_the_command_prints_a_row_per_model_and_writes_them_as_json(data, tmp_path, capsys, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "result.json"
    assert main(["example", name, "--data", str(data), "--quick", "--seeds", "2", "--json", str(file)]) == 0
    printed, result = capsys.readouterr().out, json.loads(file.read_text())
    models = cora.LAYERS if name == "cora" else molecules.READOUTS
    assert [row["name"] for row in result["rows"]] == list(models)
    assert result["command"] == f"graphcaps example {name} --seeds 2 --quick"
    for row in result["rows"]:
        assert len(row["test"]) == 2 and row["test_mean"] == pytest.approx(np.mean(row["test"]))
        assert row["test_sd"] == pytest.approx(np.std(row["test"], ddof=1))
        numbers = f"{row['test_mean'] * 100:.2f} +- {row['test_sd'] * 100:.2f}"
        assert any(line.split("  ")[0].strip() == row["name"] and numbers in line for line in printed.splitlines())


def test_mutags_command_writes_the_routing_of_test_graphs_of_both_classes(data, tmp_path, capsys, graphs):
    assert main(["example", "mutag", "--data", str(data), "--quick", "--out", str(tmp_path / "a b")]) == 0
    *_, drawn, last = capsys.readouterr().out.splitlines()
    files = sorted((tmp_path / "a b" / "mutag-quick").glob("graph-*.npz"))
    traces = {trace.about["graph"]: trace for trace in map(RoutingTrace.load, files)}
    assert {(trace.num_iterations, trace.trained_iterations) for trace in traces.values()} == {(10, 3)}
    assert set(traces) <= set(graphs.folds[0].tolist())
    assert {number: trace.labels.tolist() for number, trace in traces.items()} == {
        number: [graphs.labels[number]] for number in traces
    }
    assert {int(trace.labels[0]) for trace in traces.values()} == {0, 1}
    right = {number: trace.answer(0) == trace.labels[0] for number, trace in traces.items()}
    which = [int(part.split(" ")[0]) for part in drawn.removeprefix("test molecules to draw: ").split("; ")]
    assert (
        sorted(which) == sorted(traces)
        and last == f"next: graphcaps viz '{tmp_path}/a b/mutag-quick/graph-{which[0]}.npz'"
    )
    assert [right[number] for number in which] == sorted(right.values(), reverse=True)
    parts = (
        f"{number} {graphs.class_names[traces[number].labels[0]]}, answered {'right' if right[number] else 'wrong'}"
        for number in which
    )
    assert drawn == f"test molecules to draw: {'; '.join(parts)}"


@pytest.mark.parametrize(
    ("predicted", "drawn"),
    [
        ([1, 1, 0, 0, 1], [2, 4, 0, 3]),  # of both classes a right one, then a wrong one
        ([0, 0, 0, 0, 0], [0, 3]),  # all of one class right, all of the other wrong
        ([1, 1, 1, 0, 1], [4, 0, 3]),
        ([1, 1, 1, 0, 0], [0, 3]),  # all wrong
    ],
)
def test_molecules_of_both_classes_are_drawn_and_right_answers_come_first(predicted, drawn):
    assert molecules.worth_drawing(np.array([0, 0, 0, 1, 1]), np.array(predicted)) == drawn


@pytest.mark.long
def test_a_quick_look_says_first_that_it_is_one_and_claims_no_spread_of_one_seed(data, tmp_path, capsys):
    file = tmp_path / "result.json"
    assert main(["example", "cora", "--data", str(data), "--quick", "--json", str(file), "--out", str(tmp_path)]) == 0
    first, _, *rows, protocol, wrote = capsys.readouterr().out.splitlines()
    assert first.startswith("A quick look") and first.endswith("numbers that mean nothing.")
    assert not any("+-" in line for line in (*rows, protocol)) and "standard" not in "".join([*rows, protocol])
    assert protocol.startswith("1 seed. Settings") and protocol.endswith(" min in 1 process of one thread.")
    assert wrote == f"wrote {tmp_path}/cora-quick/degrees.png" and (tmp_path / "cora-quick" / "degrees.png").exists()
    result = json.loads(file.read_text())
    assert not {"entropy", "first"} & {*result, *result["rows"][-1]}  # a number per node
    assert [row["test_sd"] for row in result["rows"]] == [None] * 5
    assert [over["standard_error"] for over in result["margins"].values()] == [None] * 4


def test_the_entropy_of_a_nodes_couplings_is_the_mean_over_its_in_edges():
    graph = dgl.graph(([0, 1, 2, 2], [1, 1, 2, 0]))
    c = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.5, 0.5]])[:, None]
    found = cora.undecided(graph, c)
    mixed = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    assert found["degree"] == [1, 2, 1] and found["capsules"] == 2
    assert found["entropy"] == pytest.approx([np.log(2), np.log(2) / 2, mixed])


def test_the_picture_of_entropy_by_degree_shows_nodes_means_and_where_all_is_undecided():
    degree = np.repeat([1, 4, 16], [6, 6, 2])
    entropy = np.concatenate([np.linspace(0.8, 1.3, 6), np.linspace(0.4, 0.9, 6), [0.2, 0.3]])
    figure = viz.entropy_by_degree({"degree": degree, "entropy": entropy, "capsules": 4, "layer": 1, "seed": 0})
    (axes,) = figure.axes
    uniform, means = axes.lines
    assert uniform.get_ydata()[0] == pytest.approx(np.log(4))
    assert means.get_xydata() == pytest.approx(np.array([[1, 1.05], [4, 0.65]]))  # of two nodes there is no mean
    nodes = np.asarray(axes.collections[0].get_offsets())
    assert nodes[:, 1] == pytest.approx(entropy) and abs(nodes[:, 0] - degree).max() < 0.5
    said = " ".join(text.get_text() for text in figure.texts)
    eta2 = 1 - (6 * np.linspace(0.8, 1.3, 6).var() * 2 + 0.005) / (14 * entropy.var())
    assert f"eta² {eta2:.2f}" in said and f"rho {spearmanr(degree, entropy)[0]:.2f}" in said
    equal = {"degree": degree, "entropy": np.full(14, np.log(4)), "capsules": 4, "layer": 1, "seed": 0}
    assert "rho 0.00,  eta² 0.00" in " ".join(text.get_text() for text in viz.entropy_by_degree(equal).texts)


@pytest.mark.long
def test_mutag_leaves_a_training_run_of_its_name_alone(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(molecules, "run", None)  # the answer comes before any training
    (tmp_path / "mutag").mkdir()
    (tmp_path / "mutag" / "config.json").write_text("{}")
    assert main(["example", "mutag", "--data", str(data), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"graphcaps: out: expected no training run in {tmp_path}/mutag, where the molecules' routing goes, got one. "
        f"Name another folder than {tmp_path} with --out DIR\n"
    )
    assert [path.name for path in (tmp_path / "mutag").iterdir()] == ["config.json"]


def test_the_command_answers_mistakes_in_one_line(data, tmp_path, capsys, monkeypatch):
    assert main(["example", "cora", "--data", str(data), "--seeds", "0"]) == 2
    assert capsys.readouterr().err == "graphcaps: seeds: expected an integer >= 1, got 0\n"
    monkeypatch.setattr(citation, "URL", "http://127.0.0.1:9/")
    assert main(["example", "cora", "--data", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("graphcaps: cora: expected ind.cora.x, ") and said.count("\n") == 1


@needs_real
@pytest.mark.long
def test_gcn_on_the_real_cora_is_near_its_papers_number(monkeypatch):
    monkeypatch.undo()
    papers = citation.load_cora(REAL, download=False)
    fit = cora.fit(papers, "GCN", cora.SETTINGS["GCN"][0], 0)
    assert 0.80 < trials.accuracy(fit, papers.labels[papers.test]) < 0.84


@needs_real
@pytest.mark.long
@pytest.mark.parametrize("readout", molecules.READOUTS)
def test_each_readout_does_better_than_the_larger_class_on_a_fold_of_mutag(monkeypatch, readout):
    monkeypatch.undo()
    graphs = tu.load_graphs("MUTAG", REAL, download=False)
    fit = molecules.fit(graphs, readout, molecules.SETTINGS[0], 1, 0, 40)
    larger = graphs.labels[molecules.split(graphs, 1, 0)[1]].mean()
    assert fit.val_accuracy > larger


@pytest.mark.parametrize("name", ["cora", "molecules"])
def test_an_example_runs_where_it_is_copied_to(papers, graphs, tmp_path, name):
    own = {"cora": cora, "molecules": molecules}[name]
    path = shutil.copy(own.__file__, tmp_path / "mine.py")
    spec = importlib.util.spec_from_file_location("mine", path)
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    if name == "cora":
        fits = [module.fit(papers, "capsules", module.SETTINGS["capsules"][0], 0, 2) for module in (own, copied)]
    else:
        fits = [module.fit(graphs, "capsules", module.SETTINGS[0], 0, 0, 2) for module in (own, copied)]
    assert seen(fits[0]) == seen(fits[1])


def test_factors_of_graphs_that_have_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="factors: expected nothing: cora has none, only factors and motifs have, got"):
        run.example("cora", data=tmp_path, out=tmp_path, num_factors=(4,))
