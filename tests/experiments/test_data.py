"""Graphs that are drawn have the properties in their papers; and no item is in two parts."""

import pytest
import torch

from experiments.data.factors import factor_graph
from experiments.data.relations import human_go, published_factors, umls

from . import small_data

pytestmark = pytest.mark.long


def test_published_kinds_are_shared_classes_and_the_parts_of_every_graph_are_disjoint(data):
    folder = data / "graphs"
    published = published_factors(folder / "factors-4.npz")
    src, dst = published.graph.edges()
    assert torch.equal(published.kinds, published.labels[src] == published.labels[dst])
    others = factor_graph(0), human_go(folder / "humango.npz", 0), umls(folder / "umls.npz", 0)
    for graph in (published, *others):
        parts = torch.cat([graph.train, graph.val, graph.test])
        assert len(parts.unique()) == len(parts) == len(graph.items) == len(graph.labels)


def test_concepts_are_joined_by_training_triples_alone_and_no_pair_is_in_two_parts(data):
    concepts, arrays = umls(data / "graphs" / "umls.npz", 3), small_data.umls()
    pairs = [{tuple(sorted(row)) for row in arrays[name][:, ::2].tolist()} for name in ("train", "valid", "test")]
    train, valid, test = ({pair for pair in part if pair[0] != pair[1]} for part in pairs)
    parts = (concepts.train, train), (concepts.val, valid - train), (concepts.test, test - train - valid)
    for numbers, related in parts:
        found = concepts.items[numbers[concepts.labels[numbers, 0] == 1]]
        assert set(map(tuple, found.tolist())) == related and 2 * len(related) == len(numbers)
    ends = torch.stack(concepts.graph.edges(), dim=1)[: len(train)]
    assert torch.equal(ends, concepts.items[: len(train)])
