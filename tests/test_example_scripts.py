"""The scripts of examples/ run when copied, and are short."""

import contextlib
import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphcaps import dgl

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPTS = Path(__file__).parents[1] / "examples"
TINY = {
    "node_classification": "--seeds 2 --epochs 2 --data .",
    "graph_classification": "--folds 2 --epochs 2 --data .",
    "heterogeneous": "--users 100 --epochs 1 --seeds 2",
    "link_prediction": "--nodes 300 --epochs 2 --seeds 2",
    "explanation": "--nodes 300 --epochs 2",
    "karate_club": "--epochs 2 --seeds 2",
    "interests": "--users 300 --dim 16 --steps 10",
    "mixture_of_experts": "--epochs 1 --to gate.png",
    "attention": "--epochs 1 --data .",
}
QUICK = "karate_club", "mixture_of_experts"
MADE = {"graph_classification": "molecule.png", "explanation": "explanation.png", "karate_club": "karate.html"}
MADE |= {"mixture_of_experts": "gate.png", "interests": "interests.gif", "attention": "attention.png"}


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A folder with copies of the scripts, which import nothing of the checkout, and small data sets for downloads."""
    for path in SCRIPTS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(from|import) (experiments|examples|tests)", text), path.name
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(dgl.data, "CoraGraphDataset", lambda *folder, verbose: [papers()])
    with contextlib.suppress(ImportError):
        from torch_geometric import datasets

        monkeypatch.setattr(datasets, "Planetoid", lambda *names, transform: [in_pyg(papers())])
        monkeypatch.setattr(datasets, "TUDataset", lambda *names: [in_pyg(papers(), n % 2) for n in range(30)])
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def papers():
    """60 papers of three classes. Papers of one class share a word and cite each other in a ring."""
    number, label = torch.arange(60), torch.arange(60) % 3
    graph = dgl.to_bidirected(dgl.graph((number, (number + 3) % 60)))
    graph.ndata.update(feat=torch.rand(60, 20).index_put((number, label), torch.ones(())), label=label)
    for part, name in enumerate(("train", "val", "test")):
        graph.ndata[f"{name}_mask"] = number // 20 == part
    return graph


def in_pyg(graph, label=None):
    from torch_geometric.data import Data

    masks = {name: graph.ndata[name] for name in ("train_mask", "val_mask", "test_mask")}
    labels = graph.ndata["label"] if label is None else torch.tensor([label])
    return Data(graph.ndata["feat"], torch.stack(graph.edges()), y=labels, **masks)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in QUICK)) for n in TINY])
def test_a_script_runs_when_copied(copied, monkeypatch, capsys, name):
    if name == "attention":
        pytest.importorskip("torch_geometric", reason='needs pip install -e ".[pyg]"')
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *TINY[name].split()])
    runpy.run_path(f"{name}.py", run_name="__main__")
    said = capsys.readouterr().out
    if name == "attention":
        assert len(re.findall(r"entropy \d+\.\d%", said)) == 4  # of two layers, at two epochs
    elif name != "mixture_of_experts":  # it compares no routings
        check(name, said)
    if name == "interests":
        assert float(re.search(r"alone and among all users differ by (\S+)", said)[1]) < 1e-5
    if name in MADE:
        assert (copied / MADE[name]).stat().st_size > 5_000


@pytest.mark.long
def test_the_script_of_mini_batches_runs_when_copied_in_processes_of_its_own(copied):
    options = "--nodes 500 --edges 3000 --epochs 1 --batch-size 20"
    command = [sys.executable, "mini_batches.py", *options.split()]
    said = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr[-2000:]
    check("mini_batches", said.stdout)


def check(name: str, text: str) -> None:
    rows = [line for line in text.splitlines() if re.search(r"\d\.\d", line)]
    for layer in ("uniform", "capsules"):
        assert any(line.startswith(layer) for line in rows), f"{name}: {text}"


def test_the_network_on_users_and_items_sees_nothing_that_it_is_asked_for(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("heterogeneous")
    bought = script.draw(100, 0)[0]
    shown, calls = bought.shape[1] - 2 * (bought.shape[1] // 10), []
    forward = script.Net.forward

    def checked(net, graph, nodes, true, false):
        def numbers(users, items):
            return 100 * nodes["user"][users] + nodes["item"][items]

        known = bought[:, :shown] if graph.is_block else bought
        there = numbers(*graph.edges(etype="buys")), numbers(*graph.edges(etype="bought by")[::-1])
        leaks = torch.isin(numbers(*true), torch.cat(there)), torch.isin(numbers(*false), 100 * known[0] + known[1])
        calls.append((graph.is_block, bool(torch.cat(leaks).any())))
        return forward(net, graph, nodes, true, false)

    monkeypatch.setattr(script.Net, "forward", checked)
    script.train(script.LAYERS["uniform"], 100, 1, 0)
    assert {of_batch for of_batch, _ in calls} == {True, False} and not any(leaks for _, leaks in calls)
