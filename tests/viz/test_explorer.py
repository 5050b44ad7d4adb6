"""The explorer's data are the trace's, within the bound its docstring states; the page makes no request."""

import dataclasses
import html
import re

import numpy as np
import pytest
from traces import entropy_by_hand, make_trace, random_trace, stored_in, with_pictures

from graphcaps import viz
from graphcaps.viz.explorer.data import MOST_CHILDREN, explorer_data

SPARSE = ([0, 0, 0, 1, 1, 3, 3, 3], [0, 1, 2, 0, 2, 1, 2, 2])


@pytest.fixture(scope="module")
def trace():
    return with_pictures(make_trace())


def numbers(packed: dict, states: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(K, R, X) that a browser reads, and (K, R, 1) steps."""
    rises = np.frombuffer(packed["data"], np.uint8).reshape(*states, -1)
    step = np.array(packed["step"])[..., None]
    return np.array(packed["low"])[..., None] + step * np.cumsum(rises, axis=1, dtype=np.uint8), step


def test_entropies_are_those_of_the_trace():
    trace = make_trace(4, 3, edges=SPARSE)
    data = explorer_data(trace)
    for n, image in enumerate(data["images"]):
        read, step = numbers(image["entropy"], (3, 10))
        for k, r in ((0, 9), (2, 0), (2, 9)):
            mean = entropy_by_hand(trace, trace.c[k, r, n])
            assert image["mean_entropy"][k][r] == pytest.approx(mean, abs=2e-3)  # float16, as in test_pictures.py
            linked = np.delete(read[k, r], data["unlinked"])
            assert abs(linked.mean() - image["mean_entropy"][k][r]) <= step[k, r, 0] / 2
    assert data["unlinked"] == [2] and data["degrees"] == [2, 3] and data["choices"] is None
    assert data["level"] == pytest.approx((np.log(3) + np.log(2) + np.log(3)) / 3)


def test_a_small_graph_keeps_every_edge_and_a_large_one_the_children_that_couple_most(trace):
    assert all(len(image["src"]) == 160 for image in explorer_data(trace)["images"])
    large = make_trace(1152, 10, images=2, epochs=(1,), iterations=3)
    for n, image in enumerate(explorer_data(large)["images"]):
        children = set(image["src"])
        assert children == set(image["order"]) and MOST_CHILDREN // 2 < len(children) <= MOST_CHILDREN
        assert len(image["src"]) == 10 * len(children), "a child keeps all of its edges"
        last = large.c[-1, -1, n].reshape(1152, 10).astype(np.float64)
        assert all(int(last[:, j].argmax()) in children for j in range(10))
        shown = (np.array(image["src"]) * 10 + image["dst"]).tolist()
        read, step = numbers(image["c"], (1, 3))
        assert (np.abs(read - large.c[:, :, n, shown]) <= step / 2 + 1e-12).all()


HOSTILE = '</script><b onclick="x">&amp;</b><!--'


def test_names_from_a_trace_stay_text(trace):
    about = {"dataset": HOSTILE, "model": "$policy", "run": HOSTILE}
    text = viz.explorer_page(dataclasses.replace(trace, class_names=(HOSTILE, *trace.class_names[1:]), about=about))
    tags = [re.findall(r"</?[a-z]\w*|<!", each) for each in (text, viz.explorer_page(trace))]
    assert tags[0] == tags[1] and HOSTILE in html.unescape(re.search("<title>(.*?)</title>", text)[1])
    data = stored_in(text)
    assert data["parents"][0]["name"] == HOSTILE and data["title"] == f"$policy on {HOSTILE}"


def test_the_page_loads_nothing_and_allows_nothing_but_itself(trace):
    text = viz.explorer_page(trace)
    assert not re.search(r"<[a-z][^<>]*\s(?:src|href|srcset|action)=(?!\"#)", text)
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"\s+content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert not re.search(r"https?:|//[a-z]+\.|url\(|@import|\bimport\b[ (]|fetch\(|eval\(", text)


def test_a_page_is_small_without_pictures_and_below_8_megabytes_at_the_papers_size():
    text = viz.explorer_page(random_trace(20, 10))
    assert len(text) < 150_000 and stored_in(text)["images"][0]["pixels"] is None
    large = make_trace(1152, 10, images=10, epochs=(0, 1, 2), speed=0.01)
    fields = np.array([[2 * y, 2 * x, 17, 17] for _ in range(32) for y in range(6) for x in range(6)], np.int32)
    assert len(viz.explorer_page(dataclasses.replace(large, fields=fields))) < 8_000_000
