"""A graph's page: it computes what CapsuleConv does, also after edges are cut or added and features moved."""

import networkx
import numpy as np
import pytest
import torch
from torch.nn import functional as F
from traces import as_base64, stored_in

from graphcaps import dgl, explore_graph
from graphcaps.explore.hidden_edges import train_on_hidden_edges
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical

from .browser import opened, page_that_computes, settle, text

CLUB = dgl.from_networkx(networkx.karate_club_graph())
CAPS, DIM = 4, 6
LAYERS = {
    "default": {},
    "mutual": {"routing": Spherical(concentration=4.0), "mutual": True},
    "unit votes, mutual, 5 iterations": {"routing": Spherical(5, 4.0), "unit_votes": True, "mutual": True},
    "dynamic": {"routing": "dynamic"},
    "uniform, no squash, bias or norm": {
        "routing": "uniform",
        "squash_output": False,
        "bias": False,
        "normalise": False,
    },
}


def layer(feats: int = 5, **options) -> CapsuleConv:
    torch.manual_seed(1)
    options = {"routing": Spherical(concentration=0.5), **options}  # couplings that are not nearly equal
    conv = CapsuleConv(feats, DIM, CAPS, allow_zero_in_degree=True, **options).double().eval()
    if conv.capsules.bias is not None:
        torch.nn.init.normal_(conv.capsules.bias, std=0.1)
    return conv


def drawn(*shape: int) -> torch.Tensor:
    """Numbers in double precision that the page holds as they are, in float32."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).double()


def page_of(path, conv, graph, feat, **options) -> tuple[str, dict]:
    text = explore_graph(conv, graph, feat, path / "graph.html", **options).read_text(encoding="utf-8")
    return text, stored_in(text)


# The page's answer to its data after these changes: couplings and capsules after the layer's iterations
COMPUTED = """([found, changes]) => {
  const conv = new NodeConv(asBytes(found));
  for (const [what, ...how] of changes) conv[what](...how);
  const { layer, states } = conv.route(10), { c, s } = states[conv.iterations - 1];
  return [[...c], [...Array(conv.N).keys()].flatMap((node) => [...layer.capsules(s, node)])]; }"""


@pytest.fixture(scope="module")
def computing(chromium):
    return page_that_computes(chromium, node_conv="NodeConv")


def computed(computing, data, changes=()) -> tuple[np.ndarray, np.ndarray]:
    c, out = computing.evaluate(COMPUTED, [as_base64(data), list(changes)])
    return np.array(c).reshape(-1, CAPS), np.array(out).reshape(-1, CAPS, DIM)


@torch.no_grad()
def layer_answer(conv, graph, feat, weight=None) -> tuple[np.ndarray, np.ndarray]:
    out, c = conv(graph, feat, weight, get_coupling=True)
    return c[:, 0].numpy(), out.numpy()


def agree(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_the_page_computes_the_layer_before_and_after_every_change(computing, tmp_path, name):
    graph, conv, feat, weighted = dgl.add_self_loop(CLUB), layer(**LAYERS[name]), drawn(34, 5), name != "default"
    weight = drawn(graph.num_edges()).abs() if weighted else None
    data = page_of(tmp_path, conv, graph, feat, edge_weight=weight)[1]
    given = layer_answer(conv, graph, feat, weight)
    agree(computed(computing, data), given)
    assert computed(computing, data, [["cut", 1, 0], ["add", 0, 1]])[1] == pytest.approx(given[1], abs=1e-5)

    gone = graph.edge_ids([0, 1, 5], [1, 0, 5])
    left = torch.ones(graph.num_edges(), dtype=torch.bool).index_fill(0, gone, False)
    graph, weight = dgl.remove_edges(graph, gone), weight[left] if weighted else None
    changes = [["cut", 1, 0], ["cut", 5, 5]]
    agree(computed(computing, data, changes), layer_answer(conv, graph, feat, weight))

    graph = dgl.add_edges(graph, [12, 20], [20, 12])
    weight = F.pad(weight, (0, 2), value=1.0) if weighted else None
    feat[7] = feat[30] / 4 - feat[7]
    changes += [["add", 12, 20], ["move", 7, feat[7].tolist()]]
    agree(computed(computing, data, changes), layer_answer(conv, graph, feat, weight))
    agree(computed(computing, data, [*changes, ["reset"]]), given)


def test_a_node_that_has_lost_its_edges_is_what_the_layer_makes_of_the_bias(computing, tmp_path):
    graph, conv, feat = dgl.graph(([0, 1, 0, 0], [1, 2, 2, 2])), layer(), drawn(3, 5)  # two edges are parallel
    data = page_of(tmp_path, conv, graph, feat)[1]
    assert not data["two_way"]
    agree(computed(computing, data), layer_answer(conv, graph, feat))
    agree(
        computed(computing, data, [["cut", 0, 1], ["cut", 1, 0]]),
        layer_answer(conv, dgl.remove_edges(graph, [0]), feat),
    )


@pytest.mark.parametrize(
    ("center", "mutual"),
    [pytest.param(None, False, marks=pytest.mark.long), (7, False), pytest.param(7, True, marks=pytest.mark.long)],
)
def test_of_a_larger_graph_the_page_has_nodes_with_all_that_arrives_there(computing, tmp_path, center, mutual):
    made = networkx.barabasi_albert_graph(900, 3, seed=0)
    graph, feat = dgl.from_networkx(made), drawn(900, 5)
    assert graph.num_edges() == 5382
    conv = layer(routing=Spherical(), mutual=mutual)
    names = [f"n{n}" for n in range(900)]
    data = page_of(tmp_path, conv, graph, feat, node_names=names, center="n7" if mutual else center)[1]
    shown, whole = [int(name[1:]) for name in data["names"]], data["whole"]
    assert 1500 < len(data["src"]) <= 2000 and data["sample"] == {"edges": 5382, "around": center and "n7"}
    inner = [n for n, is_whole in zip(shown, whole, strict=True) if is_whole]
    arriving = np.bincount(data["dst"], minlength=len(shown))
    assert all(arriving[at] == made.degree[n] for at, n in enumerate(shown) if whole[at])
    if center is None:
        assert min(made.degree[n] for n in inner) >= max(made.degree[n] for n in set(made) - set(inner))
    else:
        away = networkx.single_source_shortest_path_length(made, center)
        assert max(away[n] for n in inner) <= min(away[n] for n in set(made) - set(inner))
    if mutual:
        ends = list(zip(data["src"], data["dst"], strict=True))
        assert {(v, u) for u, v in ends} == set(ends)
    else:
        out = computed(computing, data)[1]
        agree([out[whole]], [layer_answer(conv, graph, feat)[1][inner]])


@pytest.mark.long
def test_a_layer_trained_on_hidden_edges_finds_why_nodes_are_joined(tmp_path):
    """Two women's visits are joined if the woman or the event is the same, and no one tells the layer which."""
    unsorted = networkx.line_graph(networkx.davis_southern_women_graph()).edges  # networkx's order varies
    visits = networkx.Graph(sorted(sorted(tuple(sorted(node)) for node in edge) for edge in unsorted))
    women = set(networkx.davis_southern_women_graph().graph["top"])
    data = stored_in(explore_graph(2, visits, path=tmp_path / "visits.html").read_text(encoding="utf-8"))
    assert "E1, Evelyn Jefferson" in data["names"] and data["two_way"]
    graph = dgl.from_networkx(networkx.convert_node_labels_to_integers(visits))
    conv, x = train_on_hidden_edges(graph, 2)
    _, c = conv(graph, x, get_coupling=True)
    nodes, ends = [*visits], torch.stack(graph.edges()).T.tolist()
    by_woman = torch.tensor([bool({*nodes[a]} & {*nodes[b]} & women) for a, b in ends])
    alike = (c[:, 0].argmax(1) == by_woman).double().mean()
    assert max(alike, 1 - alike) > 0.9
    # In a graph of the same degrees without these causes, couplings stay nearly equal.
    numbered = networkx.convert_node_labels_to_integers(visits)
    with pytest.warns(UserWarning, match="couplings stay nearly equal. Edges may have more causes"):
        explore_graph(2, networkx.double_edge_swap(numbered, 2000, 10**6, seed=0), path=tmp_path / "swapped.html")


def test_a_networkx_graph_keeps_its_names_and_equal_couplings_say_what_to_try(chromium, tmp_path):
    graph = networkx.davis_southern_women_graph()
    at, x = networkx.circular_layout(graph), torch.randn(len(graph), 5)
    with pytest.warns(UserWarning, match="couplings stay nearly equal. Try unit_votes=True"):
        page = explore_graph(CapsuleConv(5, 4, 3), graph, x, tmp_path / "page.html", positions=at)
    data = stored_in(page.read_text(encoding="utf-8"))
    assert data["names"] == [*graph] and np.allclose(data["at"], [*at.values()])
    with opened(chromium, page) as shown:
        assert "Try unit_votes=True" in text(shown, "#lead")
        shown.locator("#iteration").fill("1", force=True)
        settle(shown)
        assert "All edges start equal, in round 1" in text(shown, "#lead") and "Try" not in text(shown, "#lead")
    with pytest.warns(UserWarning, match="couplings stay nearly equal"):
        explore_graph(CapsuleConv(5, 4, 3, unit_votes=True), graph, x, page)
    with opened(chromium, page) as shown:
        assert text(shown, "#lead").endswith("Try another number of capsules.")
