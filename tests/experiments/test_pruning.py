"""A pruned layer routes on fewer edges, and what it loses is counted: against masks, loops and fixed strengths."""

from __future__ import annotations

import copy
import io
import itertools

import matplotlib
import pytest
import torch

from graphcaps import CapsNet, InputError, dynamic_routing
from graphcaps.analysis.accuracy import evaluate
from graphcaps.analysis.pruning import DRAWS, Pruning, Row, Score, mean_coupling, prune
from graphcaps.cli.tables import pruning_table
from graphcaps.data import Batches, Images, to_float
from graphcaps.graph import links, strongest_edges
from graphcaps.nn import CapsuleLayer, PrunedCaps
from graphcaps.routing.engines import engine_names
from graphcaps.viz import accuracy_by_edges

KEPT = torch.tensor([1, 2, 5, 6, 7, 11])


def layer(**options):
    torch.manual_seed(0)
    return CapsuleLayer(4, 3, child_dim=5, parent_dim=6, **options).double()


@pytest.fixture
def u(draw):
    return draw(4, 7, 5, dtype=torch.float32)


# Layers


@pytest.mark.parametrize("engine", sorted(engine_names()))
def test_a_pruned_layer_routes_as_if_the_other_edges_had_no_coupling(u, engine):
    whole = layer(engine=engine).float()
    prior = torch.full((12,), -torch.inf)
    prior[KEPT] = 0
    masked = dynamic_routing(whole.graph(), whole.votes(u).tensor(whole.graph()), prior=prior, engine="torch")
    torch.testing.assert_close(PrunedCaps(whole, KEPT)(u), masked)


def test_a_pruned_layer_has_the_matrices_and_the_graph_of_its_edges_alone():
    whole = layer()
    pruned = PrunedCaps(whole, KEPT)
    assert torch.equal(pruned.weight, whole.weight[KEPT]) and pruned.weight.is_leaf and pruned.weight.requires_grad
    assert (links(pruned.graph()).src * 3 + links(pruned.graph()).dst).tolist() == KEPT.tolist()
    assert "6 edges" in repr(pruned) and "12 edges" in repr(whole) and len(whole.weight) == 12
    assert pruned.graph()._graph is pruned.graph()._graph  # built once


def test_pruning_twice_counts_the_edges_that_are_left(u):
    twice = PrunedCaps(PrunedCaps(layer().float(), KEPT), torch.tensor([0, 3, 5]))
    assert twice.edges.tolist() == [1, 6, 11]
    assert torch.equal(twice(u), PrunedCaps(layer().float(), torch.tensor([1, 6, 11]))(u))


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_without_pruning_is_what_it_was_and_with_it_brings_its_edges(u, assign):
    whole = layer().float()
    assert list(whole.state_dict()) == ["weight"]
    other = PrunedCaps(layer().float(), torch.arange(6))
    with torch.no_grad():
        other.weight.zero_()
    other(u)  # its graph is built before it is loaded into
    stored = io.BytesIO()
    torch.save(PrunedCaps(whole, KEPT).state_dict(), stored)
    stored.seek(0)
    other.load_state_dict(torch.load(stored, weights_only=True), assign=assign)
    assert torch.equal(other(u), PrunedCaps(whole, KEPT)(u))
    with pytest.raises(RuntimeError, match="edges"):
        whole.load_state_dict(other.state_dict())


def test_a_pruned_layer_routes_in_inference_mode(u):
    pruned = PrunedCaps(layer().float(), KEPT)
    with torch.inference_mode():
        assert torch.equal(copy.deepcopy(pruned)(u), pruned(u))


def test_a_pruned_layer_can_be_copied_and_trained(u):
    pruned = PrunedCaps(layer().float(), KEPT)
    pruned(u)
    again = copy.deepcopy(pruned)
    again(u).sum().backward()
    assert again.weight.grad.shape == (6, 5, 6) and pruned.weight.grad is None


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        (torch.tensor([1, 1]), "kept: expected ascending edges of the layer, 0 to 11, got [1, 1]"),
        (torch.tensor([3, 1]), "kept: expected ascending edges of the layer, 0 to 11, got [3, 1]"),
        (torch.tensor([3, 12]), "kept: expected ascending edges of the layer, 0 to 11, got [3, 12]"),
        (torch.tensor([-1]), "kept: expected ascending edges of the layer, 0 to 11, got [-1]"),
        (torch.ones(12), "kept: expected (E',) int64, got (12,) torch.float32"),
        ([1], "kept: expected (E',) int64, got [1]"),
    ],
)
def test_edges_that_the_layer_has_not_are_named(kept, text):
    with pytest.raises(InputError) as caught:
        PrunedCaps(layer(), kept)
    assert str(caught.value) == text


# What it costs


@pytest.fixture(scope="module")
def images():
    source = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (30, 1, 12, 12), dtype=torch.uint8, generator=source)
    return Images(pixels, torch.randint(3, (30,), generator=source))


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = CapsNet.from_preset("compact", (1, 12, 12), num_classes=3)
    with torch.no_grad():
        model.capsules.weight *= 30  # decided couplings without training
    return model


@pytest.mark.parametrize("batch_size", [7, 30])
@pytest.mark.parametrize("training", [True, False])
def test_the_mean_coupling_is_that_of_one_image_after_the_other(model, images, batch_size, training):
    model.train(training)
    shares = []
    found = mean_coupling(model, Batches(images, batch_size), shares.append)
    assert model.training is training and shares[-1] == 1 and len(shares) == -(-30 // batch_size)
    model.eval()
    graph, total = model.capsules.graph(), torch.zeros(48, dtype=torch.float64)
    for image in images.pixels:
        with torch.no_grad():
            votes = model.capsules.votes(model.children_of(to_float(image[None])))
        total += dynamic_routing(graph, votes, return_graph=True)[1].edata["c"][:, 0]
    torch.testing.assert_close(found, total / 30, rtol=1e-4, atol=1e-6)
    assert torch.allclose(found.view(16, 3).sum(1), torch.ones(16, dtype=torch.float64)) and found.max() > 0.4


def by_evaluate(model, kept, images):
    cut = copy.deepcopy(model)
    cut.capsules = PrunedCaps(cut.capsules, kept)
    return evaluate(cut, Batches(images, 30)).correct


def test_every_count_is_what_evaluating_the_pruned_network_gives(model, images):
    val, test = Images(images.pixels[:13], images.labels[:13]), Images(images.pixels[13:], images.labels[13:])
    strength = mean_coupling(model, Batches(images, 30))
    shares = []
    found = prune(model, strength, (2, 1, 2, 3), Batches(val, 5), Batches(test, 5), on_share=shares.append)
    assert [(row.k, row.edges) for row in found.rows] == [(1, 16), (2, 32), (None, 48)]
    assert shares == pytest.approx([5 / 30, 10 / 30, 13 / 30, 18 / 30, 23 / 30, 28 / 30, 1])
    ranks = torch.rand(DRAWS, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = model.capsules.graph()
    for row in found.rows[:-1]:
        counted = [row.strongest, *row.random, row.weakest]
        for by, score in zip((strength, *ranks, -strength), counted, strict=True):
            kept = strongest_edges(graph, by, row.k)[1]
            assert score == Score(by_evaluate(model, kept, val), by_evaluate(model, kept, test))
    assert found.rows[-1] == Row(None, 48, Score(*(by_evaluate(model, torch.arange(48), part) for part in (val, test))))
    assert len(model.capsules.weight) == 48


def test_with_the_edges_of_one_parent_alone_every_answer_is_that_class(model, images):
    part = Batches(images, 30)
    strength = torch.zeros(48, dtype=torch.float64)
    strength[::3] = 1
    found = prune(model, strength, (1,), part, part)
    zeros = int((images.labels == 0).sum())
    assert found.rows[0].strongest == Score(zeros, zeros) != found.rows[0].weakest


def test_more_edges_than_a_child_has_are_refused(model, images):
    part, strength = Batches(images, 30), torch.zeros(48, dtype=torch.float64)
    assert [row.k for row in prune(model, strength, (3,), part, part).rows] == [None]
    with pytest.raises(InputError) as caught:
        prune(model, strength, (1, 4), part, part)
    assert str(caught.value) == "keep: expected numbers from 1 to 3, the edges that a child has, and all, got 4"


def table(*strongest, kept=(1, 2)):
    rows = [
        Row(k, 4 * k, Score(val, val + 1), tuple(Score(n, n) for n in range(DRAWS)), Score(0, 1))
        for k, val in zip(kept, strongest, strict=False)
    ]
    return Pruning(torch.full((12,), 1 / 3).double(), 10, 20, (*rows, Row(None, 12, Score(strongest[-1], 19))))


def test_enough_is_the_fewest_edges_that_lose_no_validation_image():
    assert [table(*counts).enough.k for counts in ((8, 9, 9), (9, 9, 9), (9, 8, 9), (7, 8, 9))] == [2, 1, 1, None]
    assert pruning_table(table(8, 9, 9)).endswith("k = 2 loses no validation image: 8 of 12 edges are enough")
    assert pruning_table(table(7, 8, 9)).endswith("each k measured loses validation images")
    assert pruning_table(table(9, kept=())).endswith("only all edges were measured")


def test_the_table_has_a_row_for_each_k_and_the_controls_beside_it():
    lines = pruning_table(table(7, 8, 9)).splitlines()
    assert lines[3].split() == ["the", "strongest", "4", "33.3%", "70.00%", "40.00%", "12", "10.00%", "5.00%"]
    assert lines[5].split() == ["all", "12", "100.0%", "90.00%", "95.00%", "1", "-", "-"]


def test_the_picture_shows_the_test_accuracies_over_the_edges():
    found = {"model": "compact", "dataset": "digits", **table(7, 8, 9).as_dict()}
    figure = accuracy_by_edges(found)
    lines = {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}
    assert lines["strongest"] == [[4, 0.4], [8, 0.45], [12, 0.95]]
    assert lines["random"] == [[4, 0.1], [8, 0.1], [12, 0.95]]
    assert lines["weakest"] == [[4, 0.05], [8, 0.05], [12, 0.95]]
    assert set(lines["all edges"][k][1] for k in (0, 1)) == {0.95}
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["4\nk = 1", "8\nk = 2", "12\nall"] and figure.axes[0].get_xlabel() == "edges kept, k per child"
    words = " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))
    assert "digits, compact, not trained again" in words and "random: 5 draws, mean and range" in words


def test_labels_that_would_touch_are_left_out():
    rows = [Row(k, 40 * k, Score(1, 1), (Score(1, 1),) * DRAWS, Score(1, 1)) for k in (1, 2, 8, 10, 97)]
    found = Pruning(torch.full((4000,), 0.01).double(), 10, 20, (*rows, Row(None, 4000, Score(10, 19)))).as_dict()
    figure = accuracy_by_edges({"model": "compact", "dataset": "digits", **found})
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels() if label.get_text()]
    assert len(boxes) == 3 and all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    below = figure.axes[0].xaxis.label.get_window_extent()
    assert below.y0 >= 0 and below.y1 <= min(box.y0 for box in boxes)


def test_the_picture_of_all_edges_alone_has_one_level():
    figure = accuracy_by_edges({"model": "compact", "dataset": "digits", **table(9, kept=()).as_dict()})
    assert figure.axes[0].lines[0].get_ydata()[0] == 0.95
