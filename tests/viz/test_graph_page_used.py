"""A graph's page in Chromium: clicks, pulls, strips and links route at once, as CapsuleConv does."""

import re

import networkx
import numpy as np
import pytest

from graphcaps import dgl

from .browser import check_accessible, opened, press, read, settle, text
from .test_graph_page import CAPS, CLUB, LAYERS, drawn, layer, layer_answer, page_of

GRAPH = dgl.add_self_loop(CLUB)
FEAT = drawn(34, 5)
LABELS = [networkx.karate_club_graph().nodes[n]["club"] for n in range(34)]
PLACES = networkx.circular_layout(CLUB.to_networkx())


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A page of each layer."""
    folder = tmp_path_factory.mktemp("pages")
    kept = {"labels": LABELS, "positions": PLACES}
    names = {"default": "default", "mutual": "unit votes, mutual, 5 iterations"}
    return {name: page_of(folder, layer(**LAYERS[of]), GRAPH, FEAT, **kept)[0] for name, of in names.items()}


@pytest.fixture(scope="module")
def opened_page(chromium, texts):
    with opened(chromium, texts["default"], width=1600) as page:
        yield page


@pytest.fixture
def page(opened_page):
    """The page without changes and with nothing chosen."""
    if opened_page.locator("#reset").is_enabled():
        opened_page.locator("#reset").click()
    opened_page.keyboard.press("Escape")
    settle(opened_page)
    return opened_page


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


def shown_couplings(page) -> dict[int, float]:
    """c of the table, by source."""
    rows = [row.split() for row in page.locator("#child tbody tr").all_inner_texts()]
    return {int(row[0]): read(row[-2]) for row in rows}


def couplings(node: int, graph=GRAPH) -> dict[int, float]:
    """The largest coupling of each in-edge of a node, by source."""
    c, _ = layer_answer(layer(), graph, FEAT)
    src, dst = (end.tolist() for end in graph.edges(order="eid"))
    return {u: float(c[e].max()) for e, (u, v) in enumerate(zip(src, dst, strict=True)) if v == node}


def test_a_click_shows_what_arrives_at_a_node_and_cutting_and_adding_edges_routes_at_once(page):
    assert text(page, "#source").startswith(
        "CapsuleConv, 5 → 4 × 6 · spherical routing, 3 rounds · 34 nodes, 190 directed edges (78 pairs, 34 self-loops)"
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
    press(page, "#join")
    less = dgl.remove_edges(GRAPH, GRAPH.edge_ids([32, 2], [2, 32]))
    assert text(page, "#child-head") == "10 edges arrive at 2" and text(page, "#join") == "Add 32 – 2"
    assert shown_couplings(page) == pytest.approx(couplings(2, less), abs=5.1e-4)
    said, gone = text(page, "#changes"), GRAPH.edge_ids([32, 2], [2, 32]).tolist()
    assert said.startswith("2 edges cut. Each line is two edges, one per direction. ")
    most = [layer_answer(layer(), graph, FEAT)[0].max(axis=1) for graph in (GRAPH, less)]
    turns = np.diff([np.delete(most[0], gone) > 0.325, most[1] > 0.325], axis=0)  # a tenth of the way from 1/4 to 1
    assert turns.sum() == sum(map(int, re.findall(r"(\d+) edges? (?:is|are) (?:un)?decided now", said))) > 0

    page.locator("#pick").click()
    click(page, 20)
    press(page, "#join")
    more = dgl.add_edges(less, [20, 2], [2, 20])
    assert shown_couplings(page) == pytest.approx(couplings(2, more), abs=5.1e-4)
    press(page, "#reset")
    assert shown_couplings(page) == pytest.approx(couplings(2), abs=5.1e-4)
    assert text(page, "#changes") == "Nothing is changed." and page.locator("#reset").is_disabled()

    # an enlarged graph is moved by dragging an empty place
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
    page.locator("#zoom-out").click()


def test_arriving_edges_are_strips_beside_those_of_the_given_graph(page):
    """A strip's colours, from top to bottom of its edge, are its couplings with the capsules."""
    strip = """(selector) => {
      const canvas = document.querySelector(selector), row = canvas.height / 11, x = Math.round(canvas.width * 0.2);
      const context = canvas.getContext("2d");
      const colours = [];
      for (let y = 0; y < row; y++) colours.push([...context.getImageData(x, y, 1, 1).data].join());
      return colours;
    }"""
    click(page, 2)
    assert page.locator("#strips .given").is_hidden()
    assert text(page, "#strips figcaption").startswith("Each strip is one edge")
    before = page.evaluate(strip, "#strips .now")
    page.locator("#other").select_option("32")
    page.locator("#join").click()
    settle(page)
    assert page.evaluate(strip, "#strips .given") == before != page.evaluate(strip, "#strips .now")
    page.locator("#strips .now").click(position={"x": 5, "y": 5})
    settle(page)
    assert " → 2 is selected" in text(page, "#status")


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
    press(page, "#undo")
    assert text(page, "#changes") == "Nothing is changed."
    drag({"x": 3, "y": 3})  # an empty place
    click(page, 2)
    assert shown_couplings(page) == pytest.approx(couplings(2, less), abs=5.1e-4)
    press(page, "#undo")
    row = page.locator("#parents button").nth(1).bounding_box()
    canvas = page.locator(".stage > canvas").bounding_box()
    drag({"x": row["x"] + 20 - canvas["x"], "y": row["y"] + 8 - canvas["y"]})
    assert shown_couplings(page)[32] == 1 and text(page, "#changes").startswith("1 edge held.")
    click(page, 32, 2)
    assert page.locator("#pull").input_value() == "1"
    assert text(page, "#child tbody .chosen td:last-child") == "pulled"  # in place of b
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


def test_the_formulas_have_the_numbers_of_the_layer(chromium, texts):
    """The logit that iteration 2 computes is the one that iteration 3 begins with."""
    with opened(chromium, texts["mutual"], width=1600) as page:
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
            assert sum(shares) == pytest.approx(1, abs=2.1e-3) and max(shares) == shown_couplings(page)[32]
            computed.append((read(text(page, "#edge .formula").split("= ")[-1]), read(row[1])))
        assert computed[0][0] == pytest.approx(computed[1][1], abs=1e-3)


def test_the_page_fits_and_axe_finds_nothing(chromium, texts):
    looks = {"color_scheme": "dark", "reduced_motion": "reduce"}
    with opened(chromium, texts["mutual"], width=320, height=720, **looks) as page:
        page.locator("#node").select_option("2")
        page.locator("#other").select_option("32")
        page.locator("#join").click()
        check_accessible(page)
