"""Attacks by kind."""

import contextlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import graphcaps
from graphcaps import CapsNet, GraphcapsError, InputError, RoutingTrace, dgl, engine, files, nn, route
from graphcaps.cli import main
from graphcaps.images.data.array_files import read_arrays
from graphcaps.images.models import capsnet_loss
from graphcaps.images.training import checkpoint
from graphcaps.images.training.run_folder import PRETRAINED
from graphcaps.names import ALLOW_CODE
from graphcaps.routing import Inverted
from graphcaps.second_derivative import SecondDerivativeError

from .. import small
from ..small import pyg

GRAPH, SPARSE = graphcaps.complete_graph(3, 2), graphcaps.bipartite_graph([0, 0, 1, 2, 2], [0, 1, 1, 0, 2], 3, 3)
RING = dgl.add_self_loop(dgl.graph(([0, 1, 2], [1, 2, 0])))
PAIRS = dgl.add_reverse_edges(dgl.remove_self_loop(RING))


@pytest.fixture
def run(here):
    shutil.copytree(PRETRAINED / "mnist", "run")
    return Path("run")


@pytest.mark.parametrize("link", ["figures/explorer.html", "figures", "trace.npz", "checkpoints/last.safetensors"])
def test_a_link_out_of_a_run_folder_is_named_and_never_followed(run, capsys, link):
    Path("victims").mkdir()
    victim = Path("victims/bashrc")
    victim.write_text("mine")
    (run / link).parent.mkdir(exist_ok=True)
    (run / link).unlink(missing_ok=True)
    (run / link).symlink_to(Path("victims" if link == "figures" else victim).absolute())
    for command in ("explore run --no-open", "viz run", "explain run", "evaluate run", "train --resume run"):
        assert main(command.split()) == 1 and f"graphcaps: run/{link}: expected no link out" in capsys.readouterr().err
    assert victim.read_text() == "mine" and os.listdir("victims") == ["bashrc"]


def test_results_behind_links_into_a_store_are_replaced_and_the_store_is_not(run):
    store = Path("store", "MD5E-s12--0123456789abcdef0123456789abcdef")
    store.parent.mkdir()
    store.write_bytes(b"old")
    for name in ("figures/entropy.png", "figures/explorer.html", "answers.npz"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(store.absolute())
    assert main(["viz", "run", "--format", "png", "--what", "entropy"]) == main(["explore", "run", "--no-open"]) == 0
    assert store.read_bytes() == b"old" and os.listdir("store") == [store.name]
    assert not (run / "figures/entropy.png").is_symlink()


BATCHED = {
    "complete": lambda x: route(GRAPH, x.reshape(6, 2, 4), "spherical").v,
    "any graph": lambda x: route(SPARSE, x.flatten()[:40].reshape(5, 2, 4)).v,
    "CapsuleConv": lambda x: nn.CapsuleConv(16, 3, 2)(RING, x.reshape(3, 16)),
    "mutual": lambda x: nn.CapsuleConv(16, 3, 2, mutual=True)(PAIRS, x.reshape(3, 16)),
    "CapsuleLayer": lambda x: nn.CapsuleLayer(3, 2)(x.reshape(3, 2, 8)),
}


@pytest.mark.parametrize(("call", "name"), [*((call, "auto") for call in BATCHED), ("any graph", "dgl")])
def test_a_batch_of_gradients_is_that_of_each(call, name):
    def seeded(x):
        torch.manual_seed(0)
        with engine(name):
            return BATCHED[call](x)

    x = torch.rand(48).requires_grad_()
    out = seeded(x)
    outer = torch.rand(3, *out.shape)
    wanted = torch.stack([torch.autograd.grad(out, x, each, retain_graph=True)[0] for each in outer])

    def backward(each, **options):
        return torch.autograd.grad(out, x, each, retain_graph=True, **options)[0]

    jacobian = torch.autograd.functional.jacobian(seeded, x.detach(), vectorize=True)
    twice = torch.vmap(torch.vmap(backward))(outer[None])[0]
    for got in (backward(outer, is_grads_batched=True), torch.vmap(backward)(outer), twice):
        torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.tensordot(outer, jacobian, out.dim()), wanted)
    with pytest.raises(SecondDerivativeError):
        torch.vmap(lambda each: backward(each, create_graph=True))(outer).sum().backward()


def test_names_that_look_like_flags_are_names_behind_two_dashes(here, capsys):
    for name in ("--allow-code", "--debug", "--top.png"):
        Image.new("L", (28, 28)).save(name, "png")
    assert main(["predict", "mnist", "--", "--allow-code", "--debug", "--top.png"]) == 0 and not ALLOW_CODE.get()
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [*sorted(os.listdir())]


def test_no_control_character_reaches_the_terminal(run, capsys, caplog):
    evil = "\x1b[31m\x9b\r\u202e"
    trace = RoutingTrace.load("run/trace.npz")
    names = {"class_names": (evil,) * trace.num_parents, "about": {"run": evil, "parent": evil}}
    with np.load("run/trace.npz") as stored:
        arrays = {**stored, "head": np.array(json.dumps(json.loads(str(stored["head"])) | names))}
    np.savez("run/trace.npz", **arrays)
    picture = Path(f"{evil}.png")
    Image.new("L", (28, 28)).save(picture)
    Path("run").rename(evil)
    for words in (["explain", evil], ["explain", evil, str(picture)], ["evaluate", f"{evil}x"], ["runs", "--out", "."]):
        main(words)
    main(["predict", evil, str(picture), f"{evil}.png\n"])
    printed = capsys.readouterr()
    assert not {*"\x1b\x9b\r\u202e"} & {*printed.out, *printed.err} and r"\x1b[31m" in printed.out


def test_a_table_of_millions_of_columns_is_refused_before_it_is_read(here):
    Path("x.csv").write_bytes(b"0," * (files.MOST_COLUMNS + 1))
    with pytest.raises(InputError, match=f"x.csv: expected .* {files.MOST_COLUMNS:,} columns"):
        read_arrays("csv", Path("x.csv"), None, None, "")


WRONG = {
    "float": lambda x: x.astype(float) + 0.5,
    "negative": lambda x: x * 0 - 1,
    "far": lambda x: np.full_like(x, 100 if x.dtype == np.uint8 else 9_999),
    "unsigned": lambda x: x.astype(np.uint64),
    "text": lambda x: x.astype("U8"),
    "half": lambda x: x[: len(x) // 2],
    "no dims": lambda x: np.array(1),
    "missing": lambda x: None,
}
HEAD = "num_children", "num_parents", "trained_iterations", "num_caps", "class_names", "about"
HEADS = None, -1, 10**9, 10**30, "x", [], [1], ["\ud800"], {"run": "\ud800"}, ["x" * 10**6] * 10, {"a": [1]}, 1.5


@pytest.mark.parametrize("field", ["src", "epochs", "b", "lengths", "labels", "images", "fields", "head"])
def test_a_forged_trace_is_read_or_refused_in_words(run, field):
    with np.load("run/trace.npz") as stored:
        arrays = dict(stored)
    if field == "head":
        head = json.loads(str(arrays["head"]))
        values = [np.array(json.dumps(head | {key: value})) for key in HEAD for value in HEADS]
    else:
        values = [change(arrays[field]) for change in WRONG.values()]
    for value in values:
        forged = arrays | {field: value}
        np.savez("forged.npz", **{name: x for name, x in forged.items() if x is not None})
        try:
            trace = RoutingTrace.load("forged.npz")
            trace.entropy(), trace.dead(), trace.dispatch(), trace.parent_names
        except GraphcapsError as error:
            assert "trace" in str(error)


@pytest.mark.parametrize("key", ["preset", "settings", "state", "limits", "class_names"])
def test_a_forged_checkpoint_is_refused_in_words(run, key):
    path = Path("run/checkpoints/best.safetensors")
    tensors, head = checkpoint.read(path)
    for value in (None, -1, "x", [], [[1]], {"routing": 1}):
        checkpoint.write(path, tensors, {**head, key: value})
        with contextlib.suppress(GraphcapsError):
            graphcaps.load("run")


KILLED = """
import os, sys
from graphcaps.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), 9)
"""


def test_a_killed_command_leaves_nothing_after_the_next_and_long_names_fit(run, capsys):
    small.python("-c", KILLED, "run/figures/entropy.svg")
    assert [name for name in os.listdir("run/figures") if name.startswith(".unfinished")]
    assert main(["viz", "run", "--format", "svg", "--what", "entropy"]) == 0
    assert {*os.listdir("run/figures")} == {"entropy.svg", files.MADE_HERE}
    picture = Path(f"{'ü' * 125}.png")
    Image.new("L", (28, 28), 255).save(picture)
    assert main(["explain", "run", str(picture)]) == 0
    assert main(["predict", "run", str(picture), "--save-inputs", "seen"]) == 0 and len(os.listdir("seen")) == 2


def per_sample():
    network = CapsNet.from_preset("compact", (1, 20, 20), 3).eval()

    def loss(weights, image, label):
        output = torch.func.functional_call(network, weights, (image[None],))
        return capsnet_loss(output, image[None], label[None])

    weights, images = dict(network.named_parameters()), torch.rand(2, 1, 20, 20)
    slopes = torch.vmap(torch.func.grad(loss), (None, 0, 0))(weights, images, torch.tensor([0, 2]))
    return slopes["decoder.layers.0.weight"]


def static(module, *inputs):
    result = module(torch.rand(5, 3, 4), *inputs)
    assert result.is_contiguous()
    return result


X, EDGES = torch.rand(3, 4), torch.tensor([[0, 1], [1, 2]])
EXTREMES = {
    "static graph": (lambda: static(pyg().CapsuleConv(4, 3, 2, concat=True), EDGES), None),
    "static readout": (lambda: static(pyg().CapsuleReadout(4, 3, 2), torch.tensor([0, 0, 1])), None),
    "per sample": (per_sample, None),
    "block": (lambda: nn.CapsuleConv(4, 3, 2)(dgl.to_block(RING, torch.tensor([0])), X), "graph: expected"),
    "dim": (lambda: route(GRAPH, torch.rand(6, 4), Inverted(dim=7)), "votes: expected D=7"),
    "prior": (lambda: route(GRAPH, torch.rand(6, 4), prior=10**400), "prior: expected"),
    "heads": (lambda: nn.CapsuleConv(4, 3, heads=2), "heads: expected one of in_feats, .* num_caps is the number"),
    "num_heads": (lambda: nn.CapsuleConv(4, 3, num_heads=2), "num_heads: .* Did you mean 'num_caps'"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_right_or_named(name):
    call, error = EXTREMES[name]
    if error is not None:
        with pytest.raises(GraphcapsError, match=f"^{error}"):
            call()
    else:
        assert call().isfinite().all()


def test_without_numbas_compiler_engine_torch_routes(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert graphcaps.choose_engine(GRAPH, torch.rand(6, 4)) == "torch"
