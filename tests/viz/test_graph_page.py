"""A graph's page: it computes what CapsuleConv does, also after edges are cut or added."""

import re

import networkx
import numpy as np
import pandas
import pytest
import torch
from torch.nn import functional as F
from traces import as_base64, stored_in

from graphcaps import InputError, dgl, explore_graph, read_graph
from graphcaps.explore.chance import Chance, swapped
from graphcaps.explore.graph_page import _causes
from graphcaps.explore.hidden_edges import train_on_hidden_edges
from graphcaps.nn import BeliefConv, CapsuleConv
from graphcaps.routing import Spherical

from .browser import opened, page_that_computes, settle, text

CLUB = dgl.from_networkx(networkx.karate_club_graph())
CAPS, DIM = 4, 6
LAYERS = {
    "default": {},
    "unit votes, mutual, 5 iterations": {"routing": Spherical(5, 4.0), "unit_votes": True, "mutual": True},
    "dynamic": {"routing": "dynamic"},
    "uniform, no squash, bias or norm": dict(routing="uniform", squash_output=False, bias=False, normalise=False),
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
    changes += [["add", 12, 20]]
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


@pytest.mark.parametrize("center", [pytest.param(None, marks=pytest.mark.long), "n7"])
def test_of_a_larger_graph_the_page_has_nodes_with_all_that_arrives_there(computing, tmp_path, center):
    made = networkx.barabasi_albert_graph(900, 3, seed=0)
    graph, feat = dgl.from_networkx(made), drawn(900, 5)
    assert graph.num_edges() == 5382
    conv, names = layer(routing=Spherical()), [f"n{n}" for n in range(900)]
    data = page_of(tmp_path, conv, graph, feat, node_names=names, center=center)[1]
    shown, whole = [int(name[1:]) for name in data["names"]], data["whole"]
    assert 1500 < len(data["src"]) <= 2000 and data["sample"] == {"edges": 5382, "around": center}
    inner = [n for n, is_whole in zip(shown, whole, strict=True) if is_whole]
    arriving = np.bincount(data["dst"], minlength=len(shown))
    assert all(arriving[at] == made.degree[n] for at, n in enumerate(shown) if whole[at])
    if center is None:
        assert min(made.degree[n] for n in inner) >= max(made.degree[n] for n in set(made) - set(inner))
    else:
        away = networkx.single_source_shortest_path_length(made, 7)
        assert max(away[n] for n in inner) <= min(away[n] for n in set(made) - set(inner))
    agree([computed(computing, data)[1][whole]], [layer_answer(conv, graph, feat)[1][inner]])


def visits() -> networkx.Graph:
    """The visits of 18 women to 14 events. Two are joined if the woman or the event is the same."""
    unsorted = networkx.line_graph(networkx.davis_southern_women_graph()).edges  # networkx's order varies
    joined = networkx.Graph(sorted(sorted(edge) for edge in unsorted))
    networkx.set_node_attributes(joined, {visit: dict(zip(("woman", "event"), visit, strict=True)) for visit in joined})
    return joined


@pytest.mark.long
def test_a_layer_trained_on_hidden_edges_finds_why_nodes_are_joined_and_nothing_in_a_random_graph(chromium, tmp_path):
    """No one tells the layer whether the woman or the event is the same."""
    joined = visits()
    page = explore_graph(2, joined, path=tmp_path / "visits.html").read_text(encoding="utf-8")
    data = stored_in(page)
    assert "Evelyn Jefferson, E1" in data["names"] and data["two_way"] and data["warnings"] == []
    assert {*data["causes"]} == {"same woman", "same event"} and data["chance"]["beyond"]
    assert data["chance"]["found"][0] > 0.9 > 0.7 > max(data["chance"]["found"][1:])
    named = read_graph(joined)
    trained = train_on_hidden_edges(named.dgl, 2)
    _, c = trained.conv(named.dgl, trained.feat, get_coupling=True)
    by_woman = torch.tensor([named.names[u][0] == named.names[v][0] for u, v in named.edge_index.T.tolist()])
    alike = (c[:, 0].argmax(1) == by_woman).double().mean()
    assert max(alike, 1 - alike) > 0.9
    with opened(chromium, page) as shown:
        assert re.match(r"Which capsule\? \d+ edges to \d \(same event\), \d+ to \d \(same woman\)", text(shown, "h1"))
    # In a graph of the same degrees without these causes, another training gives edges to other capsules.
    numbered = networkx.convert_node_labels_to_integers(joined)
    random = networkx.Graph(networkx.double_edge_swap(numbered, 2000, 10**6, seed=0).edges)
    with pytest.warns(UserWarning, match="hardly more than on random graphs with these degrees"):
        page = explore_graph(2, random, path=tmp_path / "swapped.html").read_text(encoding="utf-8")
    assert not stored_in(page)["chance"]["beyond"] and {*stored_in(page)["causes"]} == {""}
    with opened(chromium, page) as shown:
        assert text(shown, "h1") == "Trainings agree on edges hardly more than on random graphs with these degrees"
        assert "All lines are grey" in text(shown, "#lead") and "try another number of capsules" in text(
            shown, "#chance"
        )


def test_a_page_of_beliefs_names_causes_and_marks_wrong_edges_but_not_in_a_random_graph(chromium, tmp_path):
    """Two thirds of the labels are known. 50 of the edges join visits of different women to different events."""
    joined, draw = visits(), np.random.RandomState(0)
    labels = pandas.DataFrame.from_dict(dict(joined.nodes(data=True)), orient="index")
    labels = labels.mask(draw.random(labels.shape) < 1 / 3)
    others = sorted(networkx.complement(joined).edges)
    joined.add_edges_from(others[n] for n in draw.permutation(len(others))[:50])
    conv, named = BeliefConv.from_labels(joined, labels), read_graph(joined)
    page = explore_graph(conv, joined, labels, tmp_path / "beliefs.html").read_text(encoding="utf-8")
    data, (_, c) = stored_in(page), conv(named.dgl, named.labels(labels), get_coupling=True)
    none = conv.beliefs.unexplained[:, None]
    logits = np.frombuffer(data["logits"]["data"], np.float32).reshape(data["logits"]["shape"])
    shares = torch.from_numpy(logits[-1].copy()).softmax(1)
    torch.testing.assert_close(shares, torch.cat([c[:, 0] * (1 - none), none], dim=1))
    wrong = torch.tensor([{*named.names[u]}.isdisjoint(named.names[v]) for u, v in named.edge_index.T.tolist()])
    marked = none[:, 0] > 0.5
    assert wrong.sum() == 100 and marked[wrong].double().mean() > 0.8 > 0.2 > marked[~wrong].double().mean()
    with opened(chromium, page) as shown:
        assert re.match(r"Which cause\? \d+ edges to (woman|event), .* to no cause", text(shown, "h1"))
        assert "no cause" in shown.locator("#scale").get_attribute("aria-label")
        shown.locator("#node").select_option("3")
        settle(shown)
        names = [f"{cause}: {data['found'][3][k]}" for k, cause in enumerate(("woman", "event"))]
        assert shown.locator("#parents .name:visible").all_inner_texts() == names
    lucky = labels.assign(luck=draw.choice([*"abc"], len(labels)))  # explains no more edges than in a random graph
    page = explore_graph(BeliefConv.from_labels(joined, lucky), joined, lucky, tmp_path / "luck.html")
    assert stored_in(page.read_text(encoding="utf-8"))["capsules"] == ["woman", "event", "capsule 2", "no cause"]
    numbered = networkx.convert_node_labels_to_integers(joined)
    random = networkx.Graph(networkx.double_edge_swap(numbered, 2000, 10**6, seed=0).edges)
    labels = labels.set_axis([*numbered]).rename_axis("node")
    with pytest.warns(UserWarning, match="causes explain hardly more edges than in random graphs"):
        page = explore_graph(BeliefConv.from_labels(random, labels), random, labels, tmp_path / "random.html")
    assert stored_in(page.read_text(encoding="utf-8"))["capsules"] == ["capsule 0", "capsule 1", "no cause"]
    with opened(chromium, page) as shown:
        assert text(shown, "h1") == "Causes explain hardly more edges than in random graphs with these degrees"


def test_a_small_graph_needs_more_to_be_beyond_chance():
    assert [Chance([0.12, 0.0, 0.02], [], [], edges).beyond for edges in (60, 200)] == [False, True]


def test_a_cause_is_the_largest_difference_to_all_other_edges():
    """``street`` is the first that passes, and undecided edges share the ``team`` of capsule 1."""
    ring = networkx.cycle_graph(12, networkx.DiGraph)
    for n in ring:
        ring.nodes[n].update(street="s" if n < 7 else n, school="s" if n < 5 else n, team="t" if n > 3 or not n else n)
    c = torch.tensor([[0.9, 0.1]] * 4 + [[0.5, 0.5]] * 3 + [[0.1, 0.9]] * 2 + [[0.5, 0.5]] * 3)
    named = read_graph(ring)
    assert _causes(named, [], c, c.amax(1) > 0.5) == ["same school", ""]


@pytest.mark.parametrize("kind", ["plain", "bipartite", "directed"])
def test_swapped_edges_keep_degrees_loops_and_kinds(kind):
    random = {
        "plain": networkx.gnm_random_graph(30, 80, seed=0),
        "bipartite": networkx.bipartite.gnmk_random_graph(12, 20, 60, seed=0),
        "directed": networkx.gnm_random_graph(30, 90, seed=0, directed=True),
    }[kind]
    if kind != "bipartite":
        random.add_edge(3, 3)
    graph = read_graph(random).dgl
    drawn = swapped(graph, 0)
    (src, dst), (new_src, new_dst) = graph.edges(order="eid"), drawn.edges(order="eid")
    assert torch.equal(src.bincount(minlength=32), new_src.bincount(minlength=32))
    assert torch.equal(dst.bincount(minlength=32), new_dst.bincount(minlength=32))
    ends = {*zip(new_src.tolist(), new_dst.tolist(), strict=True)}
    kept = ends & {*zip(src.tolist(), dst.tolist(), strict=True)}
    assert len(ends) == graph.num_edges() and len(kept) < graph.num_edges() / 2
    assert [u for u, v in ends if u == v] == [u for u, v in random.edges if u == v]
    assert kind == "directed" or {(v, u) for u, v in ends} == ends
    if kind == "bipartite":
        assert all((u < 12) != (v < 12) for u, v in ends)


def test_a_networkx_graph_keeps_its_names_and_what_is_no_more_than_chance_is_called_so(chromium, tmp_path):
    graph = networkx.davis_southern_women_graph()
    at, x = networkx.circular_layout(graph), torch.randn(len(graph), 5)
    named = read_graph(graph, order="inserted")
    with pytest.warns(UserWarning, match="hardly more than in random graphs with these degrees. Try unit_votes=True"):
        page = explore_graph(CapsuleConv(5, 4, 3), named, x, tmp_path / "page.html", positions=at, labels="bipartite")
    data = stored_in(page.read_text(encoding="utf-8"))
    assert data["names"] == [*graph] and np.allclose(data["at"], [*at.values()]) and data["classes"] == ["0", "1"]
    by_name = dict(zip(named.names, x.tolist(), strict=True))
    conv = layer().float()
    one, other = (
        stored_in(explore_graph(conv, given, feat, page).read_text(encoding="utf-8"))
        for given, feat in ((named, x), (graph, by_name))
    )
    assert one == other
    with opened(chromium, page) as shown:
        measured = text(shown, "#chance")
        assert "Try unit_votes=True" in measured and "random graphs with the same degrees" in measured
        assert "All lines are grey" in text(shown, "#lead")


def test_what_the_page_could_read_in_two_ways_is_an_error(tmp_path):
    weighted, one_way = networkx.karate_club_graph(), networkx.DiGraph([(0, 1), (1, 2)])
    data = page_of(tmp_path, layer(), weighted, drawn(34, 5))[1]
    assert data["weight"] is not None
    with pytest.raises(InputError, match="graph: expected edges that go both ways.*to_undirected"):
        explore_graph(2, one_way, path=tmp_path / "graph.html")
    with pytest.raises(InputError, match="feat: expected rows in an order that is certain, got either 'b', 'a'"):
        explore_graph(layer(), networkx.Graph([("b", "a")]), drawn(2, 5), tmp_path / "graph.html")
