"""From other libraries' graphs: nodes, edges and labels are the graph's, or an error shows the readings that fit."""

import networkx
import numpy as np
import pandas
import pytest
import scipy.sparse
import torch

from graphcaps import InputError, dgl, read_graph, smooth
from graphcaps.graph import read_labels
from graphcaps.nn import BeliefConv, CapsuleConv

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
WEIGHTS = torch.tensor([2.0, 2.0, 3.0, 3.0])
NAMED = networkx.Graph([("b", "a"), ("a", "c")])


def data(**attributes):
    return pytest.importorskip("torch_geometric.data").Data(edge_index=EDGES, **attributes)


def test_the_same_graph_comes_from_every_library():
    weighted = networkx.Graph()
    weighted.add_weighted_edges_from([(0, 1, 2), (1, 2, 3)])
    of_dgl = dgl.graph((EDGES[0], EDGES[1]))
    of_dgl.edata["weight"] = WEIGHTS
    given = [weighted, of_dgl, networkx.to_scipy_sparse_array(weighted), data(edge_weight=WEIGHTS, num_nodes=3)]
    given += [torch.sparse_coo_tensor(EDGES, WEIGHTS, (3, 3)), torch.sparse_coo_tensor(EDGES, WEIGHTS).to_sparse_csr()]
    for graph in map(read_graph, given):
        assert torch.equal(graph.edge_index, EDGES) and torch.equal(graph.weight, WEIGHTS)
        assert graph.names == [0, 1, 2] and not graph.one_way and torch.equal(torch.stack(graph.dgl.edges()), EDGES)
    one_way, directed = data(num_nodes=3), torch.tensor([[0, 1], [2, 2]])
    one_way.edge_index, one_way.adj_t = (
        None,
        torch.sparse_coo_tensor(directed.flip(0), torch.tensor([1.0, 2.0]), (3, 3)),
    )
    assert torch.equal(read_graph(one_way).edge_index, directed) and read_graph(one_way).weight.tolist() == [1, 2]
    for graph in (EDGES, EDGES.numpy(), data(num_nodes=3), networkx.path_graph(3)):
        assert torch.equal(read_graph(graph).edge_index, EDGES) and read_graph(graph).weight is None
    assert read_graph(scipy.sparse.coo_array(([1.0], ([0], [1])), shape=(2, 2))).one_way
    parallel = read_graph(networkx.MultiDiGraph([(1, 2), (1, 2), (2, 2)]))
    assert parallel.edge_index.tolist() == [[0, 0, 1], [1, 1, 1]] and parallel.names == [1, 2]


@pytest.mark.parametrize("graph", [networkx.les_miserables_graph(), networkx.wheel_graph(range(1, 9))])
def test_a_graph_of_names_gives_a_layer_the_arrays_that_are_made_by_hand(graph):
    """Features, weights and labels by name, as an attribute and in the order that is passed on."""
    nodes = [*graph]
    features = {node: [float(k), float(k % 3)] for k, node in enumerate(nodes)}
    classes = {node: k % 2 for k, node in enumerate(nodes)}
    networkx.set_node_attributes(graph, features, "x")
    shuffled = nodes[1::2] + nodes[::2]
    layer = CapsuleConv(2, 4, num_caps=3, allow_zero_in_degree=True)
    count, adjacency = len(nodes), networkx.to_numpy_array(graph)
    dst, src = np.nonzero(adjacency.T)
    by_hand = dgl.graph((torch.tensor(src), torch.tensor(dst)), num_nodes=count)
    weight = torch.tensor(adjacency[src, dst]).float()
    out = layer(by_hand, torch.tensor([features[node] for node in nodes]), weight)
    for order in ("inserted", shuffled):
        read = read_graph(graph, order=order)
        in_order = [features[node] for node in read.names]
        for values in ("x", features, in_order, np.array(in_order)):
            answer = layer(read.dgl, read.features(values), read.weight)
            torch.testing.assert_close(answer, out[[nodes.index(node) for node in read.names]])
    labels = torch.tensor([classes[node] for node in nodes]).index_fill(0, torch.tensor([1]), -1)
    known = {node: label for node, label in classes.items() if node != nodes[1]}
    counted, ours = (
        BeliefConv.from_labels(*given) for given in ((by_hand, labels), (read_graph(graph, weight=None), known))
    )
    for one, other in zip(counted.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_tables_of_pandas_are_read_by_their_index_in_any_order_of_rows():
    table = pandas.DataFrame({"x": [3.0, 1.0, 2.0], "kind": ["c", "a", None]}, index=["c", "a", "b"])
    pieces = [table["kind"], table["kind"].astype("category"), table["kind"].astype("string"), table[["kind"]]]
    read, by_hand = read_graph(NAMED), {"a": 0, "b": -1, "c": 1}
    for labels in (*pieces, table["kind"].dropna(), table["kind"].to_dict()):
        assert read.labels(labels).flatten().tolist() == [by_hand[name] for name in read.names] == [-1, 0, 1]
    assert read.features(table[["x"]]).flatten().tolist() == read.features(table["x"]).flatten().tolist() == [2, 1, 3]
    p = pandas.DataFrame([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]], index=table.index)
    graph, labels = read_graph(NAMED, order=table.index.tolist()), {"a": 0}
    torch.testing.assert_close(smooth(NAMED, np.log(p), labels).p, smooth(graph, np.log(p), labels).p[[2, 1, 0]])
    numbers = pandas.Series([1, None, 0], dtype="Int64")
    assert read_graph(EDGES).labels(numbers).tolist() == [[1], [-1], [0]]
    with pytest.raises(InputError, match="feat: expected a tensor, got DataFrame. Convert it: .*to_numpy"):
        CapsuleConv(1, 4, num_caps=3)(read.dgl, table[["x"]])
    assert read_graph(data(num_nodes=3, y=torch.tensor(1))).attributes == {}  # a label of the graph
    assert read_graph(EDGES).labels({2: [1, 0]}).tolist() == [[-1, -1], [-1, -1], [1, 0]]


CLUB, FROM_ONE = networkx.karate_club_graph(), networkx.path_graph([1, 2])
ONE_WAY, TYPES = torch.sparse_coo_tensor([[0], [1]], [1.0], (3, 3)), {("a", "x", "b"): ([0], [0])}
WRONG = {
    "either 'b', 'a', 'c' as inserted, or 'a', 'b', 'c' as sorted": lambda: read_graph(NAMED).rows("x", [1, 2, 3]),
    "differ as texts, got 1 and '1'": lambda: read_graph(networkx.Graph([(1, "1")])),
    "differ as texts, got 'a' and 'a '": lambda: read_graph(networkx.Graph([("a", "a ")])),
    "got nan. Leave out edges": lambda: read_graph(networkx.Graph([("a", float("nan"))])),
    "got NaN or infinity": lambda: read_graph(networkx.Graph([(0, 1, {"weight": float("nan")})])),
    "got '2'. The graph's name is 2": lambda: read_graph(FROM_ONE).rows("x", {1: 1, "2": 2}),
    "an index 2, 1, 0 that either names nodes": lambda: read_graph(EDGES).labels(pandas.Series([1, 0, 0], [2, 1, 0])),
    "got 7. Leave other rows out. If row k is": lambda: read_graph(NAMED).labels(pandas.Series([1, 0], [7, 9])),
    "one row for each node, got an index with": lambda: read_graph(NAMED).labels(pandas.Series([1, 0], ["a", "a"])),
    "log_p: expected rows in an order that is certain": lambda: smooth(NAMED, torch.zeros(3, 2), {"a": 0}),
    "Names of nodes: networkx.Graph(pairs)": lambda: read_graph(np.array([["a", "b"]] * 2)),
    "got ''. If it means": lambda: read_labels("labels", ["a", "", "b"], 3),
    "got 'nan'. If it means unknown, pass None": lambda: read_labels("labels", ["a", "nan", "b"], 3),
    "got ' b'. If it means unknown": lambda: read_labels("labels", ["a", "b", " b"], 3),
    "whose order is 10, 2. Pass them as numbers": lambda: read_graph(EDGES).labels(["10", "2", "2"]),
    "none for 'c'": lambda: read_graph(NAMED).rows("x", {"a": 1, "b": 2}),
    "got 3. Row k for node k needs x[1:]; else, row 0 is node 1": lambda: read_graph(FROM_ONE).rows("x", [0, 1, 2]),
    "an attribute of nodes (club), got 'klub'. Did you mean 'club'": lambda: read_graph(CLUB).labels("klub"),
    "got -2. A vote can't count against": lambda: read_graph(networkx.Graph([(0, 1, {"weight": -2})])),
    "'weight' on each edge, got some without": lambda: read_graph(networkx.Graph([(0, 1, {"weight": 1}), (1, 2)])),
    "either node 0 has no edges, or the first node is 1. Pass num_nodes=4": lambda: read_graph(EDGES + 1),
    "got torch.int64 (4, 2). Pairs of nodes in rows: edges.T": lambda: read_graph(EDGES.T),
    "got edges that go one way. Pass its indices() if": lambda: read_graph(ONE_WAY),
    'read_graph(data, weight="edge_attr") uses it': lambda: read_graph(data(num_nodes=3, edge_attr=WEIGHTS[:, None])),
    "Pass a part with one kind of nodes: graph[edge_type]": lambda: read_graph(dgl.heterograph(TYPES)),
    "each is counted once, got weights. Count without": lambda: BeliefConv.from_labels(CLUB, "club"),
    "got the edge 0 -> 1 without one": lambda: BeliefConv.from_labels(networkx.DiGraph([(0, 1)]), [0, -1]),
    "pass labels.argmax(1), with -1 where unknown": lambda: read_labels("labels", np.eye(3), 3),
    "a type that can hold -1, got uint8": lambda: read_labels("labels", torch.zeros(3).byte(), 3),
    "or -1 if unknown, got -2": lambda: read_labels("labels", [0, -2, 1], 3),
    "class numbers, got a mask": lambda: read_graph(data(seen=torch.arange(3) > 1, num_nodes=3)).labels("seen"),
    "labels (N=3, K), got (2,)": lambda: read_labels("labels", [0, 1], 3),
    "whole numbers, or NaN, got fractions": lambda: read_labels("labels", [0.5, 1, 1], 3),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_could_be_read_in_two_ways_or_none_is_an_error_that_says_what_to_pass(text):
    with pytest.raises(InputError) as caught:
        WRONG[text]()
    assert text in str(caught.value)


def test_unknown_labels_are_minus_one_nan_none_or_masked_and_texts_are_numbered():
    masked = np.ma.array([1, 7, 0], mask=[False, True, False])
    for values in ([1, None, 0], [1.0, float("nan"), 0.0], [[1], [-1], [0]], torch.tensor([1, -1, 0]), masked):
        assert read_labels("labels", values, 3).classes.tolist() == [[1], [-1], [0]]
    texts = read_labels("labels", [["b", "a"], [None, "b"], ["c", "c"]], 3)
    assert texts.classes.tolist() == [[0, 0], [-1, 1], [1, 2]] and texts.names == [["b", "c"], ["a", "b", "c"]]
    assert read_labels("labels", [["u", "x"], ["v", "x"], ["u", "y"]], 3).classes.tolist() == [[0, 0], [1, 0], [0, 1]]
    mixed = read_labels("labels", [["b", 2], [None, 0], ["c", 1]], 3)
    assert mixed.classes.tolist() == [[0, 2], [-1, 0], [1, 1]] and mixed.names == [["b", "c"], []]
    assert read_labels("labels", torch.eye(3).bool(), 3).classes.shape == (3, 3)
    with pytest.warns(UserWarning, match="If 0 means unknown, pass labels - 1"):
        BeliefConv.from_labels(networkx.path_graph(4), [0, 1, 1, 2])
