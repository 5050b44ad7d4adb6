"""A routing of the user's own: the code of docs/routings.md runs wherever the routings of the package do."""

import copy
import pickle
import re
import sys
import tempfile
from pathlib import Path

import pytest
import small
import torch

from graphcaps import (
    CapsNet,
    bipartite_graph,
    choose_engine,
    complete_graph,
    dgl,
    engine,
    load,
    nn,
    route,
    squash,
    train,
    watch,
)
from graphcaps.algorithms.by_name import ROUTINGS, from_json
from graphcaps.errors import GraphcapsError, InputError
from graphcaps.graph import links_of_graph
from graphcaps.images.export import Exportable
from graphcaps.images.models import Limits, MatrixCapsNet, for_other_classes
from graphcaps.images.training import checkpoint
from graphcaps.names import ALLOW_CODE
from graphcaps.routing import Dynamic, Routing, squashed
from graphcaps.trace import RoutingTrace

PAGE = (Path(__file__).parent.parent / "docs" / "routings.md").read_text(encoding="utf-8")
RING, PAIR = dgl.graph((list(range(6)), [1, 2, 3, 4, 5, 0])), dgl.graph(([0, 1], [1, 0]))


@pytest.fixture
def nobody(tmp_path, monkeypatch):
    """The page's class, in a file of the user's that Python can import."""
    (code,) = re.findall(r"<!-- my_routing.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "my_routing.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_routing", raising=False)
    import my_routing

    yield my_routing.Nobody
    sys.modules.pop("my_routing", None)


def by_hand(votes, children, parents, iterations):
    """The page's procedure on dense arrays: votes (E, D), source-major -> v (J, D)."""
    votes, b = votes.reshape(children, parents, -1), torch.zeros(children, parents, dtype=votes.dtype)
    for _ in range(iterations):
        c = torch.cat([b, torch.zeros(children, 1, dtype=votes.dtype)], 1).softmax(1)[:, :-1]
        v = squash(torch.einsum("ij,ijd->jd", c, votes))
        b = b + torch.einsum("ijd,jd->ij", votes, v)
    return v


@pytest.mark.parametrize("name", ["auto", "dgl", "torch"])
@pytest.mark.parametrize("length", [1, 300], ids=["usual", "long"])  # exp of logits of long votes overflows
def test_it_routes_on_every_engine_that_is_not_fused(nobody, draw, name, length):
    votes = (length * draw(18, 4)).requires_grad_()
    with engine(name):
        v = route(complete_graph(6, 3), votes, nobody(iterations=2)).v
    wanted = by_hand(votes, 6, 3, 2)
    torch.testing.assert_close(v, wanted)
    (gradient,), (right,) = (torch.autograd.grad(x.square().sum(), votes) for x in (v, wanted))
    torch.testing.assert_close(gradient, right)


class SumsAlone(Routing):
    def forward(self, edges, votes, prior, activation=None):
        return edges.weighted_sum(edges.child_softmax(prior), votes)


def test_one_without_couplings_or_observer_is_named_where_they_are_asked_for():
    graph, votes = complete_graph(6, 3), torch.rand(18, 4)
    parents = route(graph, votes, SumsAlone())
    assert parents.v.shape == (3, 4) and parents.coupling is None
    with pytest.raises(GraphcapsError, match=r"^SumsAlone: expected edges.observe\(r, b, c, v, votes\) in each"):
        route(graph, votes, SumsAlone(), on_iteration=print)
    conv, x = nn.CapsuleConv(5, 4, num_caps=3, routing=SumsAlone()), torch.rand(6, 5)
    assert conv(RING, x).shape == (6, 3, 4)
    with pytest.raises(GraphcapsError, match=r"^SumsAlone: expected forward to give Parents with couplings"):
        conv(RING, x, get_coupling=True)


class Longer(Dynamic):
    """Dynamic routing with another setting and the same algorithm."""

    def __init__(self, iterations=3, note=""):
        super().__init__(iterations)
        self.note = note


class Halved(Dynamic):
    """Dynamic routing with another algorithm, which inherits the rule."""

    def forward(self, edges, votes, prior, activation=None):
        return super().forward(edges, votes, prior / 2, activation)


def test_a_subclass_keeps_the_fast_engine_unless_it_changes_the_algorithm(draw):
    graph, votes, prior = complete_graph(6, 3), draw(18, 4), draw(18)
    assert choose_engine(graph, votes, Longer()) == "fused" and choose_engine(graph, votes, Halved()) == "torch"
    assert torch.equal(route(graph, votes, Longer(note="a"), prior=prior).v, route(graph, votes, prior=prior).v)
    torch.testing.assert_close(route(graph, votes, Halved(), prior=prior).v, route(graph, votes, prior=prior / 2).v)


class Ran(Exception):
    """The code of a subclass was run."""


def raise_ran(self, edges, votes, prior, activation=None):
    raise Ran


def init(self, note="", **settings):
    super(type(self), self).__init__(**settings)
    self.note = note


MINE = {name: type(f"My{name}", (kind,), {"forward": raise_ran, "__init__": init, "__module__": __name__})
        for name, kind in ROUTINGS.items()}  # fmt: skip
globals().update({kind.__name__: kind for kind in MINE.values()})  # for pickle
U, POSES, EDGES = torch.rand(4, 2, 8), nn.Poses(torch.rand(8, 2, 16), torch.rand(8, 2)), torch.tensor([[0, 1], [1, 2]])


def on_image(routing, preset="compact", kind=CapsNet):
    return kind.from_preset(preset, (1, 28, 28), 3, routing).eval()


def through_a_file(routing):
    """A network whose weights are written and read again."""
    network, path = on_image(routing), Path(tempfile.mkdtemp(), "x.safetensors")
    head = {"preset": network.preset, "class_names": ["a", "b", "c"], "limits": Limits()}
    checkpoint.write(path, checkpoint.model_tensors(network), head)
    return checkpoint.read_model(path)[0]


def convolve(routing, **options):
    return nn.CapsuleConv(4, 3, routing=routing, **{"num_caps": 2} | options)(dgl.add_self_loop(RING), torch.rand(6, 4))


USES = {
    "route": lambda mine: route(complete_graph(3, 2), torch.rand(6, 4), mine),
    "iterations": lambda mine: route(complete_graph(3, 2), torch.rand(6, 4), mine.with_iterations(2)),
    "copies": lambda mine: route(complete_graph(3, 2), torch.rand(6, 4), pickle.loads(pickle.dumps(copy.copy(mine)))),
    "CapsuleLayer": lambda mine: nn.CapsuleLayer(4, 3, routing=mine)(U),
    "a copied layer": lambda mine: copy.deepcopy(nn.CapsuleLayer(4, 3, routing=mine))(U),
    "SharedCaps": lambda mine: nn.SharedCaps(2, torch.rand(2, 2), 3, routing=mine)(U),
    "ConvCaps": lambda mine: nn.ConvCaps(2, 1, 2, kernel=1, routing=mine)(U),
    "watch": lambda mine: watched(nn.CapsuleLayer(4, 3, routing=mine)),
    "MatrixConvCaps": lambda mine: nn.MatrixConvCaps(2, 2, 2, kernel=2, routing=mine)(POSES),
    "MatrixClassCaps": lambda mine: nn.MatrixClassCaps(2, torch.rand(4, 2), 3, routing=mine)(POSES),
    "MatrixCapsNet": lambda mine: on_image(mine, "matrix-small", MatrixCapsNet)(torch.rand(2, 1, 28, 28)),
    "CapsuleConv": convolve,
    "CapsuleConv of one": lambda mine: convolve(mine, num_caps=1),
    "CapsuleConv, mutual": lambda mine: nn.CapsuleConv(4, 3, 2, mine, mutual=True)(PAIR, torch.rand(2, 4)),
    "CapsuleReadout": lambda mine: nn.CapsuleReadout(4, 3, 2, mine)(RING, torch.rand(6, 4)),
    "pyg.CapsuleConv": lambda mine: small.pyg().CapsuleConv(4, 3, 2, mine)(torch.rand(3, 4), EDGES),
    "pyg.CapsuleReadout": lambda mine: small.pyg().CapsuleReadout(4, 3, 2, mine)(torch.rand(3, 4)),
    **{preset: lambda mine, preset=preset: on_image(mine, preset)(torch.rand(2, 1, 28, 28))
       for preset in ("compact", "parts", "deep")},
    "a checkpoint": lambda mine: through_a_file(mine)(torch.rand(2, 1, 28, 28)),
    "other classes": lambda mine: for_other_classes(on_image(mine), 4)(torch.rand(2, 1, 28, 28)),
    "export": lambda mine: Exportable(on_image(mine))(torch.rand(2, 1, 28, 28)),
}  # fmt: skip


def watched(layer):
    with watch(layer):
        layer(U)


@pytest.mark.parametrize("use", USES)
def test_no_use_loses_a_subclass(use):
    of_matrices = use.startswith("Matrix")
    with pytest.raises(Ran):
        USES[use](MINE["em" if of_matrices else "spherical"]("mine", iterations=2))
    if of_matrices or "CapsuleConv" in use or "Readout" in use:
        with pytest.raises(InputError):
            USES[use](MINE["spherical" if of_matrices else "em"]())


@pytest.mark.parametrize("name", MINE)
def test_a_subclass_of_each_routing_runs_and_a_file_keeps_its_settings(name):
    mine = MINE[name]("mine", iterations=2)
    with pytest.raises(Ran):
        USES["route"](mine)
    settings = through_a_file(mine).capsules.routing.settings()
    assert settings["note"] == "mine" and settings["iterations"] == 2


class TopK(Routing):
    """Dynamic routing in which a child couples to the k parents that it agrees with most."""

    def __init__(self, k=2, iterations=3):
        super().__init__()
        self.k, self.iterations = k, iterations

    def forward(self, edges, votes, prior, activation=None):
        b = prior
        for r in range(self.iterations):
            chosen = edges.child_topk(b, self.k)
            c = edges.child_softmax(b.masked_fill(~chosen, -torch.inf))
            s = edges.weighted_sum(c, votes)
            edges.observe(r, b, c, squash(s), votes)
            b = b + edges.agreement(votes, squash(s))
        return squashed(s, c)


@pytest.mark.parametrize("graph", [complete_graph(6, 4), bipartite_graph([0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 3, 1], 3, 4)])
def test_top_k_couples_k_parents_of_a_child_on_every_engine(graph, draw):
    votes, prior, src = draw(graph.num_edges(), 2, 5), draw(graph.num_edges(), 2), links_of_graph(graph).src
    results = []
    for name in ("torch", "dgl"):
        with engine(name):
            results.append(route(graph, votes, TopK(), prior=prior))
    torch.testing.assert_close(*results)
    degree = torch.bincount(src)[:, None].expand(-1, 2)
    coupled = torch.zeros(degree.shape).index_add(0, src, (results[0].coupling > 0).float())
    assert torch.equal(coupled, degree.clamp_max(2).float())
    conv, ring = nn.CapsuleConv(5, 4, num_caps=3, routing=TopK()), dgl.add_self_loop(RING)
    _, c = conv(ring, torch.rand(6, 5), get_coupling=True)
    assert ((c > 0).sum(-1) == 2).all()


def test_a_run_is_trained_and_loaded_by_the_name_of_its_class(nobody, tmp_path, monkeypatch):
    small.use(monkeypatch)
    config = small.config(tmp_path, epochs=1, iterations=2, routing="my_routing:Nobody")
    run = train(config, progress=False)["run"]
    assert RoutingTrace.load(Path(run) / "trace.npz").c.shape[1] == 2  # more iterations may be another algorithm
    network = load(run)
    assert type(network.capsules.routing) is nobody and network.capsules.routing.iterations == 2
    assert isinstance(network, CapsNet)
    monkeypatch.undo()  # its folder leaves Python's path
    sys.modules.pop("my_routing")
    with pytest.raises(GraphcapsError, match="expected one of graphcaps in a file, got my_routing:Nobody, whose code"):
        load(run)
    with pytest.raises(GraphcapsError, match="whose code would run"):
        train(config, resume=run, progress=False)
    with pytest.raises(GraphcapsError, match="expected one of graphcaps in a file, got my_routing, whose code"):
        from_json({"name": "my_routing", "settings": {}})
    assert "my_routing" not in sys.modules
    ALLOW_CODE.set(True)
    with pytest.raises(GraphcapsError, match="routing: expected to import my_routing:Nobody, got: No module named"):
        load(run)
    ALLOW_CODE.set(False)
