"""Matrix capsules: votes by matrix products, EM without the votes, coordinate addition, the paper's two networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphcaps import InputError, complete_graph, local_graph, local_index, route, train
from graphcaps.analysis.capsule_usage import capsule_usage
from graphcaps.cli import main
from graphcaps.data import Batches, to_float
from graphcaps.models import MatrixCapsNet
from graphcaps.models.matrix import SMALLEST
from graphcaps.nn import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps, Poses
from graphcaps.routing import EMParameters, MatrixVotes, choose_engine
from graphcaps.trace.recording import routing_of
from graphcaps.training.run_folder import Run, load

from . import small
from .traces import stored_in

pytestmark = pytest.mark.usefixtures("one_thread")

GRAPHS = {
    "windows": (local_graph((3, 3), 2, 1, 2, 2), local_index((3, 3), 2, 1, 2, 2)),
    "gaps": (local_graph((5, 5), 2, 3, 1, 2), local_index((5, 5), 2, 3, 1, 2)),
    "complete": (complete_graph(6, 3), torch.arange(18) % 9),
}


@pytest.fixture(params=[1, 2])
def threads(request):
    """With the images in one range, and shared out."""
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


def inputs(graph, index, draw, *trailing):
    """What EM has slopes for: poses, matrices, activations, prior, beta_u and bias; and the constant shift."""
    children, parents = graph.num_src_nodes(), graph.num_dst_nodes()
    learned = [
        draw(children, *trailing, 16),
        draw(int(index.max()) + 1, 4, 4),
        torch.sigmoid(draw(children, *trailing)),
        draw(graph.num_edges(), *trailing) / 4,
        draw(parents) / 4,
        draw(parents) / 4,
    ]
    return [x.requires_grad_() for x in learned], draw(children, 16)


def routed(graph, index, learned, shift, engine, **options):
    u, weight, activation, prior, beta_u, bias = learned
    parameters = EMParameters(beta_u, bias, final_lambda=0.3, variance_floor=0.1)
    votes = MatrixVotes(u, weight, index, shift)
    return route(graph, votes, activation, routing="em", prior=prior, engine=engine, parameters=parameters, **options)


# Votes


def test_a_vote_is_the_matrix_product_of_pose_and_matrix(draw):
    graph, index = GRAPHS["windows"]
    u, weight, shift = draw(18, 3, 16), draw(16, 4, 4), draw(18, 16)
    votes = MatrixVotes(u, weight, index, shift).tensor(graph)
    src = graph.edges(order="eid")[0]
    for e in (0, 17, len(src) - 1):
        for image in range(3):
            wanted = u[src[e], image].view(4, 4) @ weight[index[e]] + shift[src[e]].view(4, 4)
            torch.testing.assert_close(votes[e, image].view(4, 4), wanted)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"u": torch.zeros(6, 2, 9)}, "u: expected (I, *, 16), got (6, 2, 9)"),
        ({"weight": torch.zeros(9, 16, 16)}, "weight: expected (M, 4, 4), got (9, 16, 16)"),
        ({"index": torch.arange(17)}, "index: expected (E=18,), got (17,)"),
        ({"shift": torch.zeros(5, 16)}, "shift: expected (I=6, 16), got (5, 16)"),
        ({"shift": torch.zeros(6, 16).double()}, "shift: expected torch.float32 on cpu as u, got torch.float64 on cpu"),
    ],
)
def test_votes_that_do_not_fit_are_named(change, text):
    votes = MatrixVotes(torch.zeros(6, 2, 16), torch.zeros(9, 4, 4), GRAPHS["complete"][1])
    with pytest.raises(InputError) as caught:
        route(GRAPHS["complete"][0], votes._replace(**change), routing="em")
    assert str(caught.value) == text


def test_the_votes_choose_the_engine_and_others_than_em_take_them_built(draw):
    graph, index = GRAPHS["complete"]
    votes = MatrixVotes(draw(6, 2, 16), draw(9, 4, 4), index)
    assert choose_engine(graph, votes, "em") == "fused"
    assert choose_engine(graph, votes, "dynamic") == "torch"
    built = votes.tensor(graph)
    torch.testing.assert_close(route(graph, votes, engine="torch").v, route(graph, built, engine="torch").v)
    with pytest.raises(InputError, match="engine: expected one of auto, naive, dgl, torch for dynamic routing"):
        route(graph, votes, engine="fused")


# EM without the votes


@pytest.mark.parametrize(("name", "squash"), [("windows", False), ("gaps", True), ("complete", False)])
def test_em_without_the_votes_is_the_oracles_in_value_and_slope(name, squash, draw, threads):
    graph, index = GRAPHS[name]
    learned, shift = inputs(graph, index, draw, 2)
    found = {}
    for engine in ("naive", "fused"):
        v, a = routed(graph, index, learned, shift, engine, squash_output=squash)
        torch.manual_seed(0)
        total = (v * torch.randn_like(v)).sum() + (a * torch.randn_like(a)).sum()
        found[engine] = (v, a, *torch.autograd.grad(total, learned))
    for got, wanted in zip(found["fused"], found["naive"], strict=True):
        # Sums of some ten float64 products, in another order, behind slopes of 1 / sqrt(floor) and more.
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("trailing", [(), (2, 2), (0,)])
def test_any_trailing_dims_are_images(trailing, draw):
    graph, index = GRAPHS["windows"]
    learned, shift = inputs(graph, index, draw, *trailing)
    seen = {"fused": [], "torch": []}
    for engine, states in seen.items():
        result = routed(graph, index, learned, shift, engine, on_iteration=lambda r, *s, to=states: to.append(s))
        states.append(result)
    for got, wanted in zip(seen["fused"], seen["torch"], strict=True):
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_float32_is_near_float64(draw):
    graph, index = GRAPHS["windows"]
    learned, shift = inputs(graph, index, draw, 3)
    wide = routed(graph, index, learned, shift, "fused", squash_output=False)
    narrow = routed(graph, index, [x.float() for x in learned], shift.float(), "fused", squash_output=False)
    assert narrow.v.dtype == torch.float32
    for got, wanted in zip(narrow, wide, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3)  # logits of some hundred, at 1e-7 each


# Layers


def poses_of(layer, draw, images=3):
    activation = torch.sigmoid(draw(layer.num_children, images, dtype=torch.float32))
    return Poses(draw(layer.num_children, images, 16, dtype=torch.float32), activation)


def layers():
    torch.manual_seed(0)
    return MatrixConvCaps((4, 5), 2, 3, 3), MatrixClassCaps(2, torch.rand(6, 2), 4)


@pytest.mark.parametrize("which", [0, 1])
def test_one_image_does_not_see_the_batch(which, draw):
    layer = layers()[which]
    capsules = poses_of(layer, draw)
    together = layer(capsules)
    for k in range(3):
        alone = layer(Poses(*(x[:, k : k + 1] for x in capsules)))
        for got, wanted in zip(alone, together, strict=True):
            torch.testing.assert_close(got[:, 0], wanted[:, k])


@pytest.mark.parametrize("which", [0, 1])
def test_a_layer_learns_its_matrices_and_costs(which, draw):
    layer = layers()[which]
    assert {name for name, _ in layer.named_parameters()} == {"weight", "learned.beta_u", "learned.bias"}
    layer(poses_of(layer, draw)).activation.square().sum().backward()
    assert all(p.grad.any() for p in layer.parameters())


def test_em_is_given_the_childrens_activations(draw):
    layer = layers()[0]
    capsules = poses_of(layer, draw)
    options = dict(routing="em", parameters=layer.learned(), squash_output=False)
    wanted = route(layer.graph(), layer.votes(capsules), capsules.activation, **options)
    for got, one in zip(layer(capsules), wanted, strict=True):
        assert torch.equal(got, one)
    assert not torch.allclose(wanted.v, route(layer.graph(), layer.votes(capsules), **options).v, atol=1e-3)


def test_half_precision_is_routed_in_float32(draw):
    graph, index = GRAPHS["windows"]
    u, weight = draw(18, 2, 16).bfloat16(), draw(16, 4, 4).bfloat16()
    found = route(graph, MatrixVotes(u, weight, index), routing="em")
    wanted = route(graph, MatrixVotes(u.float(), weight.float(), index), routing="em")
    assert found.v.dtype == torch.bfloat16
    assert torch.equal(found.v, wanted.v.bfloat16())


def test_children_compete_over_parents_at_all_positions(draw):
    layer = layers()[0]
    seen = {}
    capsules = poses_of(layer, draw)
    options = dict(routing="em", iterations=2, parameters=layer.learned(), activation=capsules.activation)
    route(layer.graph(), layer.votes(capsules), on_iteration=lambda r, b, c, v, a: seen.update({r: c}), **options)
    src = layer.graph().edges(order="eid")[0]
    total = torch.zeros(layer.num_children, 3).index_add(0, src, seen[1])
    torch.testing.assert_close(total, torch.ones_like(total))
    assert layer.graph().out_degrees().max() == 3 * 2 * 3  # types x windows that hold the middle


def test_primary_capsules_are_the_channels_of_one_position(draw):
    layer, features = MatrixPrimaryCaps(5, 2), draw(3, 5, 2, 4, dtype=torch.float32)
    pose, activation = layer(features)
    at = features[1, :, 1, 2]
    wanted = layer.pose.weight[16:, :, 0, 0] @ at + layer.pose.bias[16:]
    torch.testing.assert_close(pose[8 + 4 + 2, 1], wanted)  # type 1, row 1, column 2
    sure = torch.sigmoid(layer.activation.weight[1, :, 0, 0] @ at + layer.activation.bias[1])
    torch.testing.assert_close(activation[8 + 4 + 2, 1], sure)


def test_coordinates_are_added_to_the_right_hand_column_of_a_vote(draw):
    centres = torch.tensor([[0.25, 0.5], [0.25, 0.75], [0.5, 0.5]])
    layer = MatrixClassCaps(2, centres, 4)
    capsules = poses_of(layer, draw)
    moved = layer.votes(capsules).tensor(layer.graph()) - layer.votes(capsules)._replace(shift=None).tensor(
        layer.graph()
    )
    moved = moved.detach().view(2, 3, 4, 3, 4, 4)  # types, positions, classes, images, rows, columns
    wanted = torch.zeros(3, 4, 4)
    wanted[:, 0, 3], wanted[:, 1, 3] = centres.T
    torch.testing.assert_close(moved, wanted.view(1, 3, 1, 1, 4, 4).expand_as(moved), atol=1e-5, rtol=0)


# The network


def net_of(size=20, **options):
    torch.manual_seed(0)
    return MatrixCapsNet.from_preset("matrix-small", (1, size, size), 10, **options)


@pytest.mark.parametrize(
    ("name", "image_shape", "classes", "parameters", "paper"),
    [
        ("matrix-small", (2, 32, 32), 5, 68_754, 68e3),
        ("matrix-small", (1, 28, 28), 10, 68_444, 68e3),
        ("matrix", (2, 32, 32), 5, 317_194, 310e3),
        ("matrix", (1, 28, 28), 10, 318_964, 310e3),
    ],
)
def test_parameters_are_the_papers_up_to_three_percent(name, image_shape, classes, parameters, paper):
    net = MatrixCapsNet.from_preset(name, image_shape, classes)
    added = sum(p.numel() for p in net.stem[2].parameters())
    assert sum(p.numel() for p in net.parameters()) - added == parameters
    assert abs(parameters / paper - 1) < 0.03


def test_positions_are_those_of_the_papers_figure():
    net = MatrixCapsNet.from_preset("matrix-small", (2, 32, 32), 5)
    assert [net.between[0].grid, *(layer.out_grid for layer in net.between)] == [(14, 14), (6, 6), (4, 4)]


def test_a_shifted_image_has_the_votes_of_its_neighbour_with_other_coordinates():
    net = net_of(44, iterations=1).eval()  # after more iterations the border's share in the competition has spread
    image = torch.rand(1, 1, 44, 44, generator=torch.Generator().manual_seed(0))
    shifted = image.roll((4, 4), dims=(2, 3))  # a step of the last grid, of 7 x 7
    votes = []
    with torch.no_grad():
        for pixels in (image, shifted):
            layer = net.capsules
            found = layer.votes(net.children_of(pixels)).tensor(layer.graph())
            votes.append(found.view(16, 7, 7, 10, 4, 4))
    moved = votes[1][:, 3:5, 3:5] - votes[0][:, 2:4, 2:4]  # children of children that have all windows
    difference = moved.amax(dim=(0, 1, 2, 3)), moved.amin(dim=(0, 1, 2, 3))
    wanted = torch.zeros(4, 4)
    wanted[:2, 3] = 4 / 44
    for extreme in difference:
        torch.testing.assert_close(extreme, wanted, atol=1e-4, rtol=0)


def test_fifty_steps_stay_finite_and_learn():
    net, images = net_of(iterations=2), small.digits(size=20).train
    optimizer = torch.optim.Adam(net.parameters(), lr=0.005)
    losses = []
    for k in range(50):
        at = torch.arange(4 * k, 4 * k + 4) % len(images)
        loss = net.loss(net(to_float(images.pixels[at])), images.pixels, images.labels[at], progress=0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all() and all(p.isfinite().all() for p in net.parameters())
    assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_the_margin_grows_with_training():
    net, labels = net_of(), torch.tensor([1])
    output = net(torch.zeros(1, 1, 20, 20))._replace(scores=torch.full((1, 10), 0.5))
    for progress, margin in ((0.0, 0.2), (0.5, 0.55), (1.0, 0.9)):
        torch.testing.assert_close(net.loss(output, None, labels, progress), torch.tensor(9 * margin**2))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"image_shape": (1, 16, 28)}, "image_shape: expected at least 17 x 17 pixels for 'matrix', got 16 x 28"),
        ({"objects": 2}, "objects: expected 1 for 'matrix', whose loss knows one true class, got 2"),
    ],
)
def test_images_and_objects_that_do_not_fit_are_named(arguments, text):
    with pytest.raises(InputError) as caught:
        MatrixCapsNet.from_preset("matrix", **arguments)
    assert str(caught.value).startswith(text)
    MatrixCapsNet.from_preset("matrix-small", (1, SMALLEST, SMALLEST))(torch.zeros(1, 1, SMALLEST, SMALLEST))


def test_trace_capsule_usage_and_network_see_the_same_scores():
    net, test = net_of(iterations=2).eval(), small.digits(size=20).test
    with torch.no_grad():
        scores = net(to_float(test.pixels)).scores
    states = routing_of(net, to_float(test.pixels))
    torch.testing.assert_close(torch.from_numpy(states.lengths[0, 1]), scores, rtol=1e-4, atol=1e-5)
    found = capsule_usage(net, Batches(test, 20))
    torch.testing.assert_close(found.parent_length.float(), scores.amax(0), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        small.use(patch, small.digits(size=20))
        settings = small.config(tmp_path_factory.mktemp("runs"), model="matrix-small", iterations=2)
        return Run.open(train(settings, progress=False)["run"])


def test_a_run_is_loaded_and_drawn_without_reconstructions(run, monkeypatch):
    small.use(monkeypatch, small.digits(size=20))
    assert run.config.routing == "em" and load(run.path).capsules.routing == "em"
    trace = run.trace()
    assert trace.reconstructions is None and trace.perturbed is None and trace.saliency is not None
    for what in ("sheet", "entropy"):
        main(["viz", str(run.path), "--what", what, "--format", "png"])
    main(["explain", str(run.path)])


def test_what_a_network_without_decoder_or_own_matrices_cannot_do_is_said(run, monkeypatch, capsys):
    small.use(monkeypatch, small.digits(size=20))
    assert main(["prune", str(run.path)]) != 0
    assert "expected a last layer with a matrix per edge" in capsys.readouterr().err
    assert main(["explore", str(run.path), "--no-open"]) == 0
    page = (run.path / "figures" / "explorer.html").read_text(encoding="utf-8")
    assert stored_in(page)["without"] == "Nothing can be drawn here: MatrixCapsNet isn't computed in the page."


def test_training_tells_the_loss_how_far_it_is(tmp_path, monkeypatch):
    small.use(monkeypatch, small.digits(size=20))
    seen, loss = [], MatrixCapsNet.loss

    def watched(net, output, images, labels, progress=1.0):
        seen.append((net.training, progress))
        return loss(net, output, images, labels, progress)

    monkeypatch.setattr(MatrixCapsNet, "loss", watched)
    train(small.config(tmp_path, model="matrix-small", iterations=1, epochs=1), progress=False)
    assert [progress for training, progress in seen if training] == [0, 1 / 3, 2 / 3]
    assert {progress for training, progress in seen if not training} == {1.0}


def test_matrix_capsules_are_routed_by_em_alone(tmp_path):
    with pytest.raises(InputError, match="routing: expected em for model matrix, got uniform"):
        small.config(tmp_path, model="matrix", routing="uniform").check()
