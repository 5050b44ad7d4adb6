"""Explanations: credits against the formula, the fewest links, files that read back, and the picture of the parts."""

from __future__ import annotations

import dataclasses
import itertools
import json

import networkx
import numpy as np
import pytest
from matplotlib.colors import to_hex

from graphcaps import GraphcapsError, InputError, RoutingTrace
from graphcaps.analysis.parse_tree import as_graphml, as_json, credits_of, in_words, parse_tree, strongest, write_parts
from graphcaps.viz import parts, style

from .traces import make_trace, with_pictures


@pytest.fixture(scope="module")
def trace():
    """Speed 1: logits that differ, so that some links are much stronger than others."""
    return with_pictures(make_trace(speed=1.0))


@pytest.fixture(scope="module")
def with_fields(trace):
    """As of a paper preset: no saliency, four children at each of four positions, one reaching over the border."""
    corners = np.array([(0, 0), (0, 6), (6, 0), (9, 9)])
    fields = np.concatenate([np.tile(corners, (4, 1)), np.full((16, 2), 5)], axis=1)
    return dataclasses.replace(trace, saliency=None, fields=fields.astype(np.int32))


def test_credits_of_a_parent_sum_to_the_lengths_of_s_and_v():
    trace = RoutingTrace.random(20, 10)
    credit = np.bincount(trace.dst, credits_of(trace, 0))
    v = trace.lengths[-1, -1, 0].astype(np.float64)
    s = np.sqrt(v / (1 - v))  # |v| = |s|^2 / (1 + |s|^2)
    assert np.allclose(credit, s * v, rtol=5e-3)  # c and agreement are float16


def test_credits_are_of_the_last_epoch_after_the_iterations_of_training(trace):
    by_hand = trace.c[2, 2, 1].astype(float) * trace.agreement[2, 2, 1].astype(float)
    assert np.array_equal(credits_of(trace, 1), by_hand)
    short = dataclasses.replace(trace, trained_iterations=99)
    assert np.array_equal(credits_of(short, 1), trace.c[2, 9, 1].astype(float) * trace.agreement[2, 9, 1])


@pytest.mark.parametrize("keep", [0.05, 0.3, 0.5, 0.9, 0.95, 1])
def test_no_fewer_edges_make_up_the_share(keep):
    credit = np.random.default_rng(3).normal(size=9)
    kept = strongest(credit, keep)
    wanted = keep * credit[credit > 0].sum() - 1e-9
    assert credit[kept].sum() >= wanted and (credit[kept] > 0).all() and (np.diff(credit[kept]) <= 0).all()
    for fewer in range(len(kept)):
        assert all(credit[list(some)].sum() < wanted for some in itertools.combinations(range(9), fewer))


def test_a_share_that_is_reached_exactly_takes_no_edge_more():
    assert strongest(np.array([0.1, 0.2, 0.3, 0.1, 0.3]), 0.9).tolist() == [2, 4, 1, 0]
    assert strongest(np.array([1.0, 1.0, 1.0, 1.0]), 0.5).tolist() == [0, 1]


def test_where_no_credit_is_above_0_nothing_is_kept():
    assert len(strongest(np.array([0.0, -1.0]))) == 0
    assert len(strongest(np.array([]))) == 0


@pytest.mark.parametrize("keep", [0, -0.1, 1.01, float("nan"), "0.9", True])
def test_a_share_outside_0_to_1_is_refused(keep):
    with pytest.raises(InputError, match=r"keep: expected a share of the credit, above 0 and up to 1, got "):
        strongest(np.ones(2), keep)


def test_the_tree_holds_the_kept_links_with_their_numbers(trace):
    tree, kept = parse_tree(trace, 1, 0.8), strongest(credits_of(trace, 1), 0.8)
    assert [key for *_, key in tree.edges(keys=True)] == sorted(
        kept, key=lambda e: list(tree).index(f"child {trace.src[e]}")
    )
    for child, parent, e, link in tree.edges(keys=True, data=True):
        i, j = trace.src[e], trace.dst[e]
        assert (child, parent) == (f"child {i}", f"parent {j}")
        assert (link["c"], link["agreement"]) == (trace.c[-1, 2, 1, e], trace.agreement[-1, 2, 1, e])
        assert link["credit"] == link["c"] * link["agreement"]
        assert tree.nodes[child] == {"layer": 0, "index": i}
        length = float(trace.lengths[-1, 2, 1, j])
        assert tree.nodes[parent] == {"layer": 1, "index": j, "name": f"class {j}", "length": length}
    about = {"image": 1, "epoch": 6, "iteration": 3, "keep": 0.8, "kept_edges": len(kept), "of_edges": 160}
    assert about.items() <= tree.graph.items() and tree.graph["label"] == "class 1"
    assert tree.graph["dataset"] == "digits"


def test_fields_are_on_the_children(with_fields):
    tree = parse_tree(with_fields)
    children = [node for node in tree if node.startswith("child")]
    boxes = [[tree.nodes[node][key] for key in ("top", "left", "height", "width")] for node in children]
    assert boxes == [with_fields.fields[tree.nodes[node]["index"]].tolist() for node in children]


def test_two_edges_between_the_same_capsules_stay_two():
    trace = make_trace(2, 2, edges=([0, 0, 1, 1], [0, 0, 0, 1]), speed=0.01)
    assert parse_tree(trace, keep=1).number_of_edges("child 0", "parent 0") == 2


@pytest.mark.parametrize("name", ["trace", "with_fields"])
def test_both_files_read_back_as_the_tree(name, request):
    tree = parse_tree(request.getfixturevalue(name), 0)
    from_json = networkx.node_link_graph(json.loads(as_json(tree)), edges="edges")
    assert from_json.graph == tree.graph
    from_graphml = networkx.parse_graphml(as_graphml(tree), force_multigraph=True)
    for read in (from_json, from_graphml):
        assert dict(read.nodes(data=True)) == dict(tree.nodes(data=True))
        links = {(child, parent, int(key)): data for child, parent, key, data in read.edges(keys=True, data=True)}
        assert links == {edge[:3]: edge[3] for edge in tree.edges(keys=True, data=True)}


@pytest.mark.parametrize("image", [-1, 2, 1.0, True])
def test_an_image_the_trace_does_not_hold_is_refused(trace, image):
    with pytest.raises(InputError, match="image: expected an image of the trace, 0 to 1, got "):
        parse_tree(trace, image)


def test_routing_that_is_not_finite_is_named(trace):
    broken = trace.agreement.copy()
    broken[-1, 2, 1, 5] = np.nan
    broken = dataclasses.replace(trace, agreement=broken)
    parse_tree(broken, 0)
    with pytest.raises(GraphcapsError, match="expected finite couplings and agreement of image 1, got NaN or inf"):
        parse_tree(broken, 1)


def axes_of(figure) -> dict:
    return {axes.get_label(): axes for axes in figure.axes}


def colour_of(axes) -> str:
    """The colour that the lit pixels of a panel lean to: its largest value scaled to that of the palette's colours."""
    pixels = axes.images[0].get_array()
    return pixels.reshape(-1, 3)[pixels.sum(axis=2).argmax()]


def test_each_part_is_in_its_parents_colour_and_the_strongest_comes_first(trace):
    tree = parse_tree(trace, 0)
    links = sorted(tree.edges(data=True), key=lambda link: -link[2]["credit"])
    total = np.maximum(credits_of(trace, 0), 0).sum()
    found = axes_of(parts(trace, tree))
    assert {"input", "parts"} <= found.keys()
    for n, (_, parent, link) in enumerate(links[:12]):
        j = tree.nodes[parent]["index"]
        assert found[f"part {n}"].get_title(loc="left") == f"{link['credit'] / total:.1%}"  # "class 7" has no room
        lit, wanted = colour_of(found[f"part {n}"]), np.array(style.color(j))
        assert np.corrcoef(lit, wanted)[0, 1] > 0.9 or np.ptp(wanted) < 0.1
    assert f"part {min(12, len(links))}" not in found


def test_children_of_one_field_that_go_to_one_parent_are_one_part_with_its_box(with_fields):
    tree = parse_tree(with_fields, 0, keep=1)
    credit = {}
    for child, parent, link in tree.edges(data=True):
        box = tuple(with_fields.fields[tree.nodes[child]["index"]].tolist())
        credit[box, parent] = credit.get((box, parent), 0) + link["credit"]
    (box, parent), _ = max(credit.items(), key=lambda item: item[1])
    found = axes_of(parts(with_fields, tree))
    children, places = len({child for child, _ in tree.edges()}), len({box for box, _ in credit})
    assert places == 4 and len(credit) > places
    assert found["parts"].get_title(loc="left") == f"{children} children at 4 places"
    assert f", from {children} children at 4 places, make up 100% of all credit" in in_words(with_fields, 0, keep=1)
    drawn = found["part 0"].patches[-1]
    top, left, height, width = box
    assert (drawn.get_y(), drawn.get_x(), drawn.get_height(), drawn.get_width()) == (
        top - 0.5,
        left - 0.5,
        height,
        width,
    )
    assert to_hex(drawn.get_edgecolor()) == style.hex_color(tree.nodes[parent]["index"])
    shown = found["part 0"].images[0].get_array().sum(axis=2)
    outside = np.ones_like(shown, bool)
    outside[max(top, 0) : top + height, max(left, 0) : left + width] = False
    image = with_fields.images[0, 0] / 255
    assert np.allclose(shown[outside], 0.9 * image[outside])  # three channels of 0.3


def test_words_and_picture_share_one_denominator_and_one_decimal(trace):
    trace = dataclasses.replace(trace, class_names=tuple("0123456789"))
    credit = credits_of(trace, 0)
    share = f"{credit.max() / credit[credit > 0].sum():.1%}"
    tree = parse_tree(trace, 0, keep=1)
    child, parent = next(iter(tree.edges()))
    said = in_words(trace, 0, keep=1).splitlines()
    children = len({child for child, _ in tree.edges()})
    assert children > 1 and said[1].endswith(f"from {children} children, make up 100% of all credit")
    assert said[2].startswith(f"the strongest link: {child} to {tree.nodes[parent]['name']}, {share} of all credit, ")
    assert axes_of(parts(trace, tree))["part 0"].get_title(loc="left") == f"{share} to {tree.nodes[parent]['name']}"


@pytest.mark.parametrize(("channels", "speed"), [(1, 1.0), (3, 0.0)])
def test_colour_images_and_answers_without_credit_are_drawn(tmp_path, channels, speed):
    trace = with_pictures(make_trace(speed=speed), channels)
    trace = dataclasses.replace(trace, agreement=trace.agreement * np.float16(speed))
    files = list(write_parts(trace, tmp_path / "explain", 1))
    assert [path.name for path in files] == ["image-1.graphml", "image-1.json", "image-1.png"]
    assert sorted(path.name for path in (tmp_path / "explain").iterdir()) == sorted(path.name for path in files)


@pytest.mark.parametrize("name", ["images", "saliency"])
def test_a_trace_without_pictures_gives_data_but_no_picture(trace, name):
    bare = dataclasses.replace(trace, **{name: None})
    tree = parse_tree(bare)
    with pytest.raises(InputError, match="trace: expected .*Traces of training runs hold them"):
        parts(bare, tree)
