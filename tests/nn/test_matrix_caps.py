"""Matrix capsules: votes by matrix products, their layers, coordinate addition, the paper's two networks."""

import dataclasses

import pytest
import torch

from graphcaps import local_graph, local_index, route
from graphcaps.images.models import MatrixCapsNet
from graphcaps.images.models.matrix import MIN_SIDE
from graphcaps.nn import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps, Poses
from graphcaps.routing import MatrixVotes

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_vote_is_the_matrix_product_of_pose_and_matrix(draw):
    windows = (3, 3), 2, 1, 2, 2
    graph, index = local_graph(*windows), local_index(*windows)
    u, weight, shift = draw(18, 3, 16), draw(16, 4, 4), draw(18, 16)
    votes = MatrixVotes(u, weight, index, shift).tensor(graph)
    src = graph.edges(order="eid")[0]
    for e in (0, 17, len(src) - 1):
        for image in range(3):
            wanted = u[src[e], image].view(4, 4) @ weight[index[e]] + shift[src[e]].view(4, 4)
            torch.testing.assert_close(votes[e, image].view(4, 4), wanted)


# Layers


def poses_of(layer, draw, images=3):
    activation = torch.sigmoid(draw(layer.num_children, images, dtype=torch.float32))
    return Poses(draw(layer.num_children, images, 16, dtype=torch.float32), activation)


def layers():
    torch.manual_seed(0)
    return MatrixConvCaps((4, 5), 2, 3, 3), MatrixClassCaps(2, torch.rand(6, 2), 4)


@pytest.mark.parametrize("which", [0, 1])
def test_a_layer_is_em_of_its_poses_and_activations_and_learns_matrices_and_costs(which, draw):
    layer = layers()[which]
    capsules = poses_of(layer, draw)
    wanted = route(layer.graph(), layer.votes(capsules), layer.routing, activation=capsules.activation)
    pose, activation = layer(capsules)
    assert torch.equal(pose, wanted.pose) and torch.equal(activation, wanted.activation)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "routing.costs", "routing.biases"}
    layer(capsules).activation.square().sum().backward()
    assert all(p.grad.any() for p in layer.parameters())


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
    votes = layer.votes(capsules)
    moved = votes.tensor(layer.graph()) - dataclasses.replace(votes, shift=None).tensor(layer.graph())
    moved = moved.detach().view(2, 3, 4, 3, 4, 4)  # types, positions, classes, images, rows, columns
    wanted = torch.zeros(3, 4, 4)
    wanted[:, 0, 3], wanted[:, 1, 3] = centres.T
    torch.testing.assert_close(moved, wanted.view(1, 3, 1, 1, 4, 4).expand_as(moved), atol=1e-5, rtol=0)


# The network


@pytest.mark.parametrize(("name", "parameters", "paper"), [("matrix-small", 68_754, 68e3), ("matrix", 317_194, 310e3)])
def test_parameters_are_the_papers_up_to_three_percent(name, parameters, paper):
    net = MatrixCapsNet.from_preset(name, (2, 32, 32), 5)
    added = sum(p.numel() for p in net.stem[2].parameters())
    assert sum(p.numel() for p in net.parameters()) - added == parameters
    assert abs(parameters / paper - 1) < 0.03


def test_a_layer_named_em_has_its_own_temperature_and_the_least_image_is_routed():
    assert MatrixConvCaps(3, 1, 1, 2, routing="em").routing.final_lambda == 0.08
    MatrixCapsNet.from_preset("matrix-small", (1, MIN_SIDE, MIN_SIDE))(torch.zeros(1, 1, MIN_SIDE, MIN_SIDE))
