"""A graph's page: it computes what CapsuleConv does, also after edges are cut or added and features moved."""

import re

import networkx
import numpy as np
import pytest
import torch
from torch.nn import functional as F
from traces import stored_in

from graphcaps import dgl, explore_graph
from graphcaps.explore.hidden_edges import train_on_hidden_edges
from graphcaps.nn import CapsuleConv
from graphcaps.routing import Spherical

from .browser import check_accessible, check_axe, check_fits, opened, page_that_computes, read, settle, text

CLUB = dgl.from_networkx(networkx.karate_club_graph())
CAPS, DIM = 4, 6
LAYERS = {
    "default": {},
    "unit votes": {"routing": Spherical(concentration=4.0), "unit_votes": True},
    "mutual": {"routing": Spherical(concentration=4.0), "mutual": True},
    "unit votes, mutual, 5 iterations": {"routing": Spherical(5, 4.0), "unit_votes": True, "mutual": True},
    "dynamic": {"routing": "dynamic"},
    "uniform, no squash, no bias": {"routing": "uniform", "squash_output": False, "bias": False},
    "not normalised": {"normalise": False},
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
    return page_that_computes(chromium, "layer node_conv")


def computed(computing, data, changes=()) -> tuple[np.ndarray, np.ndarray]:
    c, out = computing.evaluate(COMPUTED, [data, list(changes)])
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
    data = page_of(tmp_path, conv, graph, feat, node_names=names, center=center)[1]
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


GRAPH = dgl.add_self_loop(CLUB)
FEAT = drawn(34, 5)
LABELS = [networkx.karate_club_graph().nodes[n]["club"] for n in range(34)]
PLACES = networkx.circular_layout(CLUB.to_networkx())


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A page of each layer."""
    folder = tmp_path_factory.mktemp("pages")
    kept = {"labels": LABELS, "positions": PLACES}
    return {name: page_of(folder, layer(**options), GRAPH, FEAT, **kept)[0] for name, options in LAYERS.items()}


@pytest.fixture
def page(chromium, texts):
    with opened(chromium, texts["default"], width=1600) as page:
        yield page


def place(page, *nodes: int, toward: float = 0.5) -> dict:
    """The place of a node on the canvas, or a point on the line from one node to another."""
    box = page.locator(".stage > canvas").bounding_box()
    at = np.array([PLACES[n] for n in range(34)])
    radius = min(13, 0.135 * (box["width"] * box["height"] / 34) ** 0.5)
    low, high = at.min(0), at.max(0)
    unit = min((np.array([box["width"], box["height"]]) - 2 * (2.4 * radius + 6)) / (high - low))
    spots = (at - (low + high) / 2) * unit * [1, -1] + [box["width"] / 2, box["height"] / 2]
    point = spots[nodes[0]] if len(nodes) == 1 else spots[nodes[0]] + toward * (spots[nodes[1]] - spots[nodes[0]])
    return {"x": float(point[0]), "y": float(point[1])}


def click(page, *nodes: int, **how) -> None:
    page.locator(".stage > canvas").click(position=place(page, *nodes, toward=0.7), **how)
    page.mouse.move(2, 2)
    settle(page)


def arrivals(page) -> dict[int, tuple[float, float]]:
    """c and b of the table, by source."""
    rows = [row.split() for row in page.locator("#child tbody tr").all_inner_texts()]
    return {int(row[0]): (read(row[-2]), read(row[-1])) for row in rows}


def couplings(node: int, graph=GRAPH, feat=FEAT, **options) -> dict[int, float]:
    """The largest coupling of each in-edge of a node, by source."""
    c, _ = layer_answer(layer(**options), graph, feat)
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    return {u: float(c[e].max()) for e, (u, v) in enumerate(zip(src, dst, strict=True)) if v == node}


def shown_couplings(page) -> dict[int, float]:
    return {u: c for u, (c, _) in arrivals(page).items()}


def test_a_click_shows_what_arrives_at_a_node_and_cutting_and_adding_edges_routes_at_once(page):
    assert text(page, "#source").startswith(
        "CapsuleConv, 5 → 4 × 6 · spherical routing, 3 rounds · 34 nodes, 190 edges"
    )
    click(page, 2)
    assert text(page, "#child-head") == "11 edges arrive at 2" and text(page, "#capsules-head") == "Capsules of 2"
    names = [f"capsule {k}" for k in range(CAPS)]  # from 0, as in the arrays and in other pictures
    assert page.locator("#parents .name").all_inner_texts() == names
    assert shown_couplings(page) == pytest.approx(couplings(2), abs=5.1e-4)
    lengths = np.linalg.norm(layer_answer(layer(), GRAPH, FEAT)[1][2], axis=-1)
    assert [read(value) for value in page.locator("#parents .value").all_inner_texts()] == pytest.approx(
        lengths, abs=5.1e-3
    )

    click(page, 32, 2)
    assert "32 → 2 is selected" in text(page, "#status") and text(page, "#join") == "Cut 32 – 2"
    page.locator("#join").click()
    settle(page)
    less = dgl.remove_edges(GRAPH, GRAPH.edge_ids([32, 2], [2, 32]))
    assert text(page, "#child-head") == "10 edges arrive at 2" and text(page, "#join") == "Add 32 – 2"
    assert shown_couplings(page) == pytest.approx(couplings(2, less), abs=5.1e-4)
    assert text(page, "#changes").startswith("2 edges cut. ")

    page.locator("#pick").click()
    click(page, 20)
    page.locator("#join").click()
    settle(page)
    more = dgl.add_edges(less, [20, 2], [2, 20])
    assert shown_couplings(page) == pytest.approx(couplings(2, more), abs=5.1e-4)
    page.locator("#reset").click()
    settle(page)
    assert shown_couplings(page) == pytest.approx(couplings(2), abs=5.1e-4)
    assert text(page, "#changes") == "Nothing is changed." and page.locator("#reset").is_disabled()


def test_moving_a_nodes_features_routes_its_neighbours_at_once(page):
    page.locator("#node").select_option("0")
    page.locator("#other").select_option("33")
    page.locator("#towards").fill("100")
    settle(page)
    moved = FEAT.clone()
    moved[0] = FEAT[33]
    page.locator("#node").select_option("1")  # a neighbour
    settle(page)
    assert shown_couplings(page) == pytest.approx(couplings(1, feat=moved), abs=5.1e-4)
    assert abs(couplings(1, feat=moved)[0] - couplings(1)[0]) > 0.01
    assert text(page, "#changes").startswith("Features of 1 node moved. ")


def test_an_edge_is_pulled_to_another_node_cut_or_held_by_a_capsule_and_undone(page):
    def drag(to: dict) -> None:
        canvas = page.locator(".stage > canvas").bounding_box()
        start = place(page, 32, 2, toward=0.7)
        page.mouse.move(canvas["x"] + start["x"], canvas["y"] + start["y"])
        page.mouse.down()
        page.mouse.move(canvas["x"] + to["x"], canvas["y"] + to["y"], steps=5)
        page.mouse.up()
        page.mouse.move(2, 2)
        settle(page)

    drag(place(page, 20))
    less = dgl.remove_edges(GRAPH, GRAPH.edge_ids([32, 2], [2, 32]))
    moved = less if less.has_edges_between(32, 20) else dgl.add_edges(less, [32, 20], [20, 32])
    click(page, 20)
    assert shown_couplings(page) == pytest.approx(couplings(20, moved), abs=5.1e-4)
    page.locator("#undo").click()
    settle(page)
    assert text(page, "#changes") == "Nothing is changed." and page.locator("#undo").is_disabled()
    drag({"x": 3, "y": 3})  # an empty place
    click(page, 2)
    assert shown_couplings(page) == pytest.approx(couplings(2, less), abs=5.1e-4)
    page.locator("#undo").click()
    settle(page)
    row = page.locator("#parents button").nth(1).bounding_box()
    canvas = page.locator(".stage > canvas").bounding_box()
    drag({"x": row["x"] + 20 - canvas["x"], "y": row["y"] + 8 - canvas["y"]})
    assert shown_couplings(page)[32] == 1 and text(page, "#changes").startswith("1 edge held.")
    click(page, 32, 2)
    assert page.locator("#pull").input_value() == "1"
    page.locator("#pull").select_option("")
    settle(page)
    assert shown_couplings(page) == pytest.approx(couplings(2), abs=5.1e-4)


def test_a_link_holds_edges_that_were_changed(chromium, texts):
    end = "#node=2&other=20&cut=2.32.32.2&add=20.2.2.20&hold=20.2.1"
    added = dgl.add_edges(dgl.remove_edges(GRAPH, GRAPH.edge_ids([32, 2], [2, 32])), [20, 2], [2, 20])
    with opened(chromium, texts["default"], width=1600, end=end) as page:
        assert text(page, "#changes").startswith("2 edges cut, 2 added, 1 edge held.")
        shown = shown_couplings(page)
        assert shown.keys() == couplings(2, added).keys() and shown[20] == 1
        page.wait_for_timeout(600)
        assert page.url.endswith(end), "the page writes what it has read"


def test_an_enlarged_graph_is_moved_by_dragging_an_empty_place(page):
    page.locator("#zoom-in").click()
    canvas = page.locator(".stage > canvas").bounding_box()
    at, middle = place(page, 8), {"x": canvas["width"] / 2, "y": canvas["height"] / 2}
    page.mouse.move(canvas["x"] + 20, canvas["y"] + 20)
    page.mouse.down()
    page.mouse.move(canvas["x"] + 20, canvas["y"] + 140, steps=3)
    page.mouse.up()
    spot = {axis: middle[axis] + 1.5 * (at[axis] - middle[axis]) + 120 * (axis == "y") for axis in "xy"}
    page.locator(".stage > canvas").click(position=spot)
    settle(page)
    assert page.locator("#node").input_value() == "8"


@pytest.mark.parametrize("name", ["dynamic", "uniform, no squash, no bias", "unit votes, mutual, 5 iterations"])
def test_the_formulas_have_the_numbers_of_the_layer(chromium, texts, name):
    """The logit that iteration 2 computes is the one that iteration 3 begins with."""
    with opened(chromium, texts[name], width=1600) as page:
        page.locator("[aria-controls=why]").click()
        page.evaluate("scrollTo(0, 0)")
        settle(page)
        click(page, 32, 2)
        computed = []
        for iteration in (2, 3):
            page.locator("#iteration").fill(str(iteration), force=True)
            settle(page)
            row = page.locator("#softmax .chosen td").all_inner_texts()
            shares = [read(cell) for cell in page.locator("#softmax tbody tr td:last-child").all_inner_texts()]
            assert sum(shares) == pytest.approx(1, abs=2.1e-3) and max(shares) == arrivals(page)[32][0]
            computed.append((read(text(page, "#edge .formula").split("= ")[-1]), read(row[1])))
        if not name.startswith("uniform"):
            assert computed[0][0] == pytest.approx(computed[1][1], abs=1e-3)
        above, below, length = map(read, re.findall(r"[\d.]+", text(page, "#lines li:nth-child(3)"))[-3:])
        if name == "dynamic":
            assert above / below == pytest.approx(length, abs=2e-3)


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)])
def test_the_page_fits_and_axe_finds_nothing(chromium, texts, width, scheme):
    looks = {"color_scheme": scheme, "reduced_motion": "reduce"}
    with opened(chromium, texts["mutual"], width=width, height=720, **looks) as page:
        check_fits(page)
        check_axe(page)
        page.locator("#node").select_option("2")
        page.locator("#other").select_option("32")
        page.locator("#join").click()
        check_accessible(page)
        graph, curve = (page.locator(name).bounding_box() for name in (".stage", "#entropy canvas"))
        if width == 1280:
            assert graph["height"] > 300 and curve["y"] + curve["height"] + page.evaluate("scrollY") <= 720


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


@pytest.mark.parametrize(
    "made", [networkx.les_miserables_graph, networkx.florentine_families_graph, networkx.davis_southern_women_graph]
)
def test_a_networkx_graph_keeps_its_names_and_equal_couplings_say_what_to_try(made, chromium, tmp_path):
    graph = made()
    at, x = networkx.circular_layout(graph), torch.randn(len(graph), 5)
    with pytest.warns(UserWarning, match="couplings stay nearly equal. Try unit_votes=True"):
        page = explore_graph(CapsuleConv(5, 4, 3), graph, x, tmp_path / "page.html", positions=at)
    data = stored_in(page.read_text(encoding="utf-8"))
    assert data["names"] == [*graph] and np.allclose(data["at"], [*at.values()])
    with opened(chromium, page) as shown:
        assert "Try unit_votes=True" in text(shown, "#lead")
