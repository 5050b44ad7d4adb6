"""Fully connected capsules: linear votes, with a matrix per edge or per type, are routed on a complete graph."""

import torch
from torch import Tensor, nn

from ..routing import LinearVotes, Routing
from ..typed import Size, typed
from .routed import RoutedLayer, check_centres, check_children, routing_for_images


class CapsuleLayer(RoutedLayer):
    """Fully connected capsules (DigitCaps of the 2017 paper) with a separate matrix for every child and parent.

    Votes and routing run in the weights' precision: float32 unless you convert the layer. So they do under autocast,
    except that on a GPU, engine fused multiplies float32 numbers in autocast's precision and adds in float32.

    Args:
        num_children, num_parents: I, J.
        child_dim, parent_dim: P, D.
        routing: a routing such as ``Dynamic(3)``, or its name. The layer keeps a copy.
        learned_prior: whether the layer learns a logit for each edge, from which its routing starts. These are the log
            priors of Sabour et al. 2017 and the B of Mazzia et al. 2021. They start at 0.

    Shapes:
        u (I, B, P) -> v (J, B, D); (B, I, P) is refused, but if B = I it can't be detected and images are mixed up

    >>> CapsuleLayer(1152, 10)(torch.zeros(1152, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    @typed
    def __init__(
        self,
        num_children: Size,
        num_parents: Size,
        child_dim: Size = 8,
        parent_dim: Size = 16,
        routing: Routing | str = "dynamic",
        learned_prior: bool = False,
    ):
        matrices = (num_children * num_parents, child_dim, parent_dim)
        sizes = num_children, num_parents, child_dim, parent_dim
        super().__init__(*sizes, matrices, routing_for_images(routing), learned_prior=learned_prior)
        self._draw()


class SharedCaps(RoutedLayer):
    """Fully connected capsules with one matrix per child type and parent; the matrix is linear in the child's position.

    Let row_i and column_i in [-1, 1] be the centre of child i's receptive field, and t the child's type. Its vote is

        u_hat_ij = u_i (W_tj + row_i W'_tj + column_i W''_tj)

    All positions share the matrices of a type, as in the last layer of Hinton, Sabour & Frosst 2018, "Matrix capsules
    with EM routing", section 4. Differs: there, a child's row and column are added to two numbers of its vote. In this
    layer, activations don't weight the votes. So at equal couplings, this would add the same numbers for every image.

    Args:
        child_types: T, number of child types. Children are ordered by type first, as ``PrimaryCaps`` returns them.
        centres: (positions, 2), row and column of each receptive field's centre, as shares of the image in [0, 1].
        num_parents, child_dim, parent_dim, routing: as in ``CapsuleLayer``; so are precision and refused shapes.
        learned_prior: as in ``CapsuleLayer``: a logit for each child and parent, not shared between positions.

    Shapes:
        u (I, B, P) -> v (J, B, D), I = T * positions

    >>> SharedCaps(8, torch.rand(64, 2), num_parents=10)(torch.zeros(512, 2, 8)).shape
    torch.Size([10, 2, 16])
    """

    places: Tensor

    @typed
    def __init__(
        self,
        child_types: Size,
        centres: Tensor,
        num_parents: Size,
        child_dim: Size = 8,
        parent_dim: Size = 16,
        routing: Routing | str = "dynamic",
        learned_prior: bool = False,
    ):
        check_centres(centres)
        # The three matrices of each type and parent are stacked by rows, so that the weight has three dims:
        # channels_last would change the layout of a weight with four dims, as if it were a convolution's.
        matrices = (child_types * num_parents, 3 * child_dim, parent_dim)
        sizes = child_types * len(centres), num_parents, child_dim, parent_dim
        super().__init__(*sizes, matrices, routing_for_images(routing), learned_prior=learned_prior)
        self._draw()
        self.add_constant("places", (2 * centres.cpu() - 1).float().repeat(child_types, 1).unsqueeze(1))  # (I, 1, 2)

    def votes(self, u: Tensor) -> LinearVotes:
        """The children's votes at their positions, not yet multiplied out."""
        check_children(u, self.num_children, self.child_dim)
        factors = nn.functional.pad(self.places, (1, 0), value=1.0).to(self.weight.dtype)  # (I, 1, 3)
        types = self.weight.unflatten(1, (3, -1)).unflatten(0, (-1, self.num_parents))  # (T, J, 3, P, D)
        # A matrix per edge needs a third of the multiplications that children (u, row u, column u) would need.
        weight = torch.einsum("tnk,tjkpd->tnjpd", factors.view(len(types), -1, 3), types)
        return LinearVotes(u.to(weight.dtype), weight.flatten(0, 2))
