"""The decoder, which reconstructs an image from class capsules."""

import math

import torch
from torch import nn

from ..errors import check_labels, check_tensor, expect
from ..functional import at_least_float32, one_hot
from ..typed import Size, typed


class Decoder(nn.Module):
    """Decode chosen class capsules to images; the others are masked with zeros (section 4.1 of the 2017 paper).

    Args:
        num_parents, parent_dim: J, D.
        image_shape: (C, H, W).
        hidden: widths of the two hidden layers.

    Shapes:
        capsules (B, J, D), chosen (B,) int64 -> image (B, C, H, W) in [0, 1]
        capsules (B, J, D), chosen (B, K) int64 -> images (B, K, C, H, W), one for each capsule
        capsules (B, J, D), chosen (B, J) bool -> one image (B, C, H, W) of all chosen capsules

    >>> Decoder(10, 16, (1, 28, 28))(torch.zeros(2, 10, 16), torch.tensor([3, 7])).shape
    torch.Size([2, 1, 28, 28])
    """

    @typed
    def __init__(
        self,
        num_parents: Size,
        parent_dim: Size,
        image_shape: tuple[Size, Size, Size],
        hidden: tuple[Size, Size] = (512, 1024),
    ):
        super().__init__()
        self.image_shape, self.num_parents, self.parent_dim = tuple(image_shape), num_parents, parent_dim
        self.layers = nn.Sequential(
            nn.Linear(num_parents * parent_dim, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], math.prod(image_shape)),
        )

    def forward(self, capsules: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Decode the chosen capsules. If J = B, the wrong order (J, B, D) can't be detected, and images get mixed."""
        check_tensor("capsules", capsules)
        check_tensor("chosen", chosen, floating=False)
        masked, whole = chosen.dtype == torch.bool, chosen.dtype in (torch.int32, torch.int64)
        fits = chosen.shape[1:] == (self.num_parents,) if masked else whole and chosen.dim() in (1, 2)
        forms = f"int64 (B,) or (B, K), or bool (B, J={self.num_parents})"
        expect(fits, "chosen", forms, f"{chosen.dtype} {tuple(chosen.shape)}")
        wanted, shape = (chosen.shape[0], self.num_parents, self.parent_dim), tuple(capsules.shape)
        if shape != wanted:
            capsules_first = shape == (self.num_parents, chosen.shape[0], self.parent_dim)
            advice = "Layers give (J, B, D): v.transpose(0, 1)" if capsules_first else ""
            expect(False, "capsules", "(B={}, J={}, D={})".format(*wanted), shape, advice)
        if masked:
            mask = chosen.to(capsules.dtype)  # (B, J)
        else:
            check_labels(chosen, self.num_parents)
            mask = one_hot(chosen, self.num_parents, capsules.dtype)  # (B, J) or (B, K, J)
            capsules = capsules if chosen.dim() == 1 else capsules.unsqueeze(1)
        pixels = self.layers((capsules * mask.unsqueeze(-1)).flatten(-2))  # (B, C * H * W) or (B, K, C * H * W)
        return torch.sigmoid(at_least_float32(pixels)).unflatten(-1, self.image_shape)
