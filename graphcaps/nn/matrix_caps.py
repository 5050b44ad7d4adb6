"""Layers of matrix capsules, from the feature map to the classes; a capsule has a 4 x 4 pose and an activation.

They are the primary, convolutional and class capsules of Hinton, Sabour & Frosst 2018, "Matrix capsules with EM
routing" (ICLR), section 4. A child's vote for a parent is the matrix product of its pose with the edge's 4 x 4 matrix,
and EM routing computes the parents' poses and activations. A pose is stored as 16 numbers, row by row. The capsule axis
comes first, and capsules are ordered by type first.
"""

import torch
from torch import nn

from ..errors import InputError, expect
from ..functional import at_least_float32
from ..graph.local import Pair
from ..routing import EM, MatrixVotes, Routing
from ..typed import Size, typed
from .conv_caps import ConvCaps
from .primary import check_features
from .routed import Poses, RoutedLayer, check_centres, check_children, route_layer

SIZE = 16  # numbers per pose
FINAL_LAMBDA = 0.08  # 8 times EM's default, with which matrix-small learns more slowly: 73 %, not 81 %
ROW, COLUMN = 3, 7  # indices of the first two elements of a pose's right-hand column


class MatrixPrimaryCaps(nn.Module):
    """Primary matrix capsules: at each position, linear maps of the features give each type's pose and activation.

    Shapes:
        features (B, in_channels, H, W) -> ``Poses``: pose (I, B, 16), activation (I, B) in [0, 1],
        I = num_types * H * W

    >>> pose, activation = MatrixPrimaryCaps(64, 8)(torch.zeros(2, 64, 12, 12))
    >>> pose.shape, activation.shape
    (torch.Size([1152, 2, 16]), torch.Size([1152, 2]))
    """

    @typed
    def __init__(self, in_channels: Size, num_types: Size):
        super().__init__()
        self.num_types = num_types
        self.pose = nn.Conv2d(in_channels, num_types * SIZE, 1)
        self.activation = nn.Conv2d(in_channels, num_types, 1)

    def forward(self, features: torch.Tensor) -> Poses:
        check_features(features, self.pose.in_channels)
        pose = at_least_float32(self.pose(features)).unflatten(1, (self.num_types, SIZE))  # (B, T, 16, h, w)
        activation = at_least_float32(self.activation(features)).sigmoid()  # (B, T, h, w)
        return Poses(pose.permute(1, 3, 4, 0, 2).flatten(0, 2), activation.permute(1, 2, 3, 0).flatten(0, 2))


class MatrixLayer(RoutedLayer):
    """Base of the layers that route ``Poses`` to ``Poses`` with 4 x 4 matrices."""

    shift: torch.Tensor | None
    """Numbers (I, 16) that are added to each child's votes."""

    def _draw(self) -> None:
        """Draw matrices near the identity, so that poses pass through the layers."""
        nn.init.normal_(self.weight, std=0.3)
        with torch.no_grad():
            self.weight.add_(torch.eye(4))

    def blank(self) -> Poses:
        return Poses(super().blank(), self.weight.new_zeros(self.num_children, 1))

    def votes(self, u: Poses) -> MatrixVotes:
        shift = None if self.shift is None else self.shift.to(self.weight.dtype)
        return MatrixVotes(u.pose.to(self.weight.dtype), self.weight, self.index, shift)

    def forward(self, u: Poses) -> Poses:
        expect(isinstance(u, Poses), "capsules", "Poses(pose (I, B, 16), activation (I, B))", type(u).__name__)
        check_children(u.pose, self.num_children, SIZE)
        parents = route_layer(self, u)
        return Poses(parents.pose, parents.activation)


class MatrixConvCaps(MatrixLayer, ConvCaps):
    """Convolutional matrix capsules with a 4 x 4 matrix for each offset in the window, child type and parent type.

    Precision, errors and arguments are the same as for ``ConvCaps``, except that ``routing`` is an ``EM`` routing, or
    ``"em"`` for ``EM(3, final_lambda=0.08)``.

    Shapes:
        ``Poses`` of child_types * H * W capsules -> ``Poses`` of parent_types * h * w, (h, w) = ``out_grid``

    >>> layer = MatrixConvCaps((12, 12), child_types=8, parent_types=16, kernel=3, stride=2)
    >>> pose, activation = layer(Poses(torch.zeros(1152, 2, 16), torch.ones(1152, 2)))
    >>> layer.out_grid, pose.shape, activation.shape
    ((5, 5), torch.Size([400, 2, 16]), torch.Size([400, 2]))
    """

    matrix = (4, 4)

    @typed
    def __init__(
        self,
        grid: Pair,
        child_types: Size,
        parent_types: Size,
        kernel: Pair,
        stride: Pair = 1,
        routing: EM | str = "em",
    ):
        super().__init__(grid, child_types, parent_types, kernel, stride, SIZE, SIZE, em_routing(routing))
        self.shift = None


class MatrixClassCaps(MatrixLayer):
    """Matrix class capsules with coordinate addition and one 4 x 4 matrix per type and class for all positions.

    Coordinate addition adds the row and column of the centre of the child's receptive field to the first two elements
    of the vote's right-hand column. ``SharedCaps`` and ``MatrixConvCaps`` describe the arguments.

    Shapes:
        ``Poses`` of child_types * positions capsules -> ``Poses`` of num_parents

    >>> layer = MatrixClassCaps(16, torch.rand(9, 2), num_parents=10)
    >>> layer(Poses(torch.zeros(144, 2, 16), torch.ones(144, 2))).activation.shape
    torch.Size([10, 2])
    """

    @typed
    def __init__(self, child_types: Size, centres: torch.Tensor, num_parents: Size, routing: EM | str = "em"):
        check_centres(centres)
        positions, matrices = len(centres), child_types * num_parents
        index = torch.arange(matrices, device="cpu").view(child_types, 1, num_parents)
        sizes = child_types * positions, num_parents, SIZE, SIZE
        index = index.expand(-1, positions, -1).flatten()  # (E,)
        super().__init__(*sizes, (matrices, 4, 4), em_routing(routing), index=index)
        self._draw()
        shift = torch.zeros(positions, SIZE, device="cpu")
        shift[:, [ROW, COLUMN]] = centres.to(shift)
        self.add_constant("shift", shift.repeat(child_types, 1))


def em_routing(routing: Routing | str) -> EM:
    """Return the routing itself, or the default of matrix capsules for ``"em"``."""
    if routing == "em":
        return EM(final_lambda=FINAL_LAMBDA)
    if isinstance(routing, EM):
        return routing
    raise InputError(f"routing: expected an EM routing, or 'em', got {routing!r}. Matrix capsules need EM")
