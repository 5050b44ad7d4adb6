"""Building graphs, their cached index arrays, networkx, and what importing and installing DGL take."""

import gc
import sys
import sysconfig
import weakref

import numpy as np
import pytest
import small
import torch

from graphcaps import _dgl, bipartite_graph, complete_graph, dynamic_routing, to_networkx
from graphcaps.errors import InputError
from graphcaps.graph import links_of_graph


def ends(graph):
    return [end.tolist() for end in graph.edges(order="eid")]


def test_a_complete_graph_is_built_once_and_shares_no_features():
    first, second = complete_graph(3, 2), complete_graph(3, 2)
    assert first._graph is second._graph
    first.edata["b"] = torch.zeros(6)
    first.dstdata["v"] = torch.zeros(2)
    assert not second.edata and not second.dstdata and not complete_graph(3, 2).edata


@pytest.mark.parametrize("make", [list, np.array, lambda x: torch.tensor(x, dtype=torch.int32)])
def test_edges_keep_the_order_they_were_given_in(make):
    graph = bipartite_graph(make([2, 0, 2, 0]), make([1, 0, 1, 1]), 4, 3)
    assert ends(graph) == [[2, 0, 2, 0], [1, 0, 1, 1]]
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (4, 3)


def test_edges_that_do_not_fit_are_named():
    with pytest.raises(InputError, match=r"^src: expected indices in \[0, 3\), got 3 to 3$"):
        bipartite_graph([3], [0], 3, 2)
    with pytest.raises(InputError, match=r"^dst: expected \(E=2,\) as src, got \(1,\)$"):
        bipartite_graph([0, 1], [0], 3, 2)


def test_links_know_a_complete_graph():
    grid = torch.cartesian_prod(torch.arange(3), torch.arange(2))
    assert links_of_graph(bipartite_graph(*grid.T, 3, 2)).complete
    assert not links_of_graph(bipartite_graph(*grid.flip(0).T, 3, 2)).complete
    assert not links_of_graph(bipartite_graph([0, 0, 1, 1], [0, 1, 0, 0], 2, 2)).complete


def test_links_follow_edges_added_and_removed_in_place():
    graph = bipartite_graph([0, 1], [0, 1], 2, 2)
    assert links_of_graph(graph).src.tolist() == [0, 1]
    graph.add_edges([1], [0])
    assert (links_of_graph(graph).src.tolist(), links_of_graph(graph).dst.tolist()) == ([0, 1, 1], [0, 1, 0])
    graph.remove_edges([0])
    assert (links_of_graph(graph).src.tolist(), links_of_graph(graph).dst.tolist()) == ([1, 1], [1, 0])
    graph.add_nodes(3, ntype="parent")
    assert links_of_graph(graph).num_parents == 5


def test_links_are_freed_with_their_graph():
    graph = bipartite_graph([0, 1], [0, 1], 2, 2)
    index = weakref.ref(links_of_graph(graph).src)
    assert index() is links_of_graph(graph).src
    del graph
    gc.collect()
    assert index() is None


def test_networkx_gets_layers_positions_and_the_couplings_of_one_image(draw):
    graph = bipartite_graph([2, 0, 2, 2], [1, 0, 1, 0], 4, 2)
    routed = dynamic_routing(graph, draw(4, 3, 5), return_graph=True)[1]
    drawn = to_networkx(routed, index=(1,))
    children, parents = [("child", i) for i in range(4)], [("parent", j) for j in range(2)]
    assert list(drawn.nodes) == children + parents
    assert drawn.nodes["child", 1] == {"layer": 0, "index": 1, "x": 0.0, "y": 0.625}
    assert drawn.nodes["parent", 1] == {"layer": 1, "index": 1, "x": 1.0, "y": 0.25}
    wanted = {
        (("child", i), ("parent", j), e): {name: routed.edata[name][e, 1].item() for name in ("c", "b")}
        for e, (i, j) in enumerate([(2, 1), (0, 0), (2, 1), (2, 0)])
    }
    assert {edge[:3]: edge[3] for edge in drawn.edges(keys=True, data=True)} == wanted


def test_importing_graphcaps_imports_neither_torch_nor_dgl():
    code = "import sys, graphcaps; dir(graphcaps); print(sorted({'torch', 'dgl', 'numpy'} & set(sys.modules)))"
    seen = small.python("-c", code)
    assert seen.stdout.strip() == "[]", seen.stderr


def test_after_graphcaps_a_plain_import_of_dgl_works(tmp_path, monkeypatch):
    """With the torch installed here; nobody has touched ``graphcaps.dgl`` before. DGL's data sets save graphs."""
    script = "import graphcaps, sys; assert 'dgl' not in sys.modules; import dgl.function as fn, dgl, torch; "
    script += "g = dgl.graph(([0, 1], [1, 1])); g.edata['x'] = torch.ones(2); g.update_all(fn.copy_e('x', 'm'), "
    script += "fn.sum('m', 'y')); dgl.save_graphs('g.bin', [g]); print(dgl.load_graphs('g.bin')[0][0].ndata['y']"
    script += ".tolist(), graphcaps.dgl is dgl)"
    monkeypatch.chdir(tmp_path)
    seen = small.python("-c", script)
    assert seen.stdout == "[0.0, 2.0] True\n", seen.stderr


def test_a_newer_python_gets_the_wheel_for_3_12(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(sys, "executable", "/an env/bin/python")
    monkeypatch.setattr(sysconfig, "get_path", {"platlib": "/an env/site-packages"}.get)
    rest = 'install --no-deps --target "/an env/site-packages" --python-version 3.12 --only-binary=:all: "dgl>=2.1"'
    for spec, pip in (("installed", '"/an env/bin/python" -m pip'), (None, "uv pip")):  # `uv venv` installs no pip
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        assert _dgl.install_command() == f"{pip} {rest}"
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert _dgl.install_command() == "pip install dgl"
