"""What all layers share: constant buffers and checks of inputs."""

from types import SimpleNamespace as Names
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .errors import check_tensor, expect, min_max
from .tracing import autocast_dtype, is_tracing

# The names of the arguments in each library's layers, for error messages.
DGL = Names(feat="feat", edge_feat="edge_feat", in_feats="in_feats", out_feats="out_feats", edge_feats="edge_feats")
PYG = Names(feat="x", edge_feat="edge_attr", in_feats="in_channels", out_feats="out_channels", edge_feats="edge_dim")


class HasConstants(nn.Module):
    """Base of layers with constant buffers, which aren't saved. They keep their values after ``to_empty``."""

    constants: ClassVar[dict[str, Tensor]] = {}  # replaced in each layer that has some

    def add_constant(self, name: str, values: Tensor | None) -> None:
        """Register ``values``, a tensor on the CPU, as a buffer on torch's default device, or on the CPU for meta."""
        device, buffer = torch.get_default_device(), values
        if values is not None:
            buffer = values if device.type == "meta" else values.to(device)
            vars(self)["constants"] = {**self.constants, name: values}
        self.register_buffer(name, buffer, persistent=False)

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        super()._apply(*arguments, **named)
        for name, values in self.constants.items():
            if not getattr(self, name).is_meta and not is_tracing():
                getattr(self, name).copy_(values)
        return self


def dropped(dropout: nn.Dropout, feat: Tensor) -> Tensor:
    """Apply dropout to features; in a sparse matrix, only to the stored values."""
    if feat.layout == torch.strided or not (dropout.training and dropout.p):
        return dropout(feat) if feat.layout == torch.strided else feat
    feat = feat.to_sparse_coo().coalesce()
    values = dropout(feat.values())
    return torch.sparse_coo_tensor(feat.indices(), values, feat.shape, is_coalesced=True, check_invariants=False)


def check_edge_weight(edge_weight: Tensor, num_edges: int) -> None:
    """Raise ``InputError`` unless there is one number per edge, (E,) or (E, 1), and ``check_no_negative`` holds."""
    check_tensor("edge_weight", edge_weight, floating=False)
    if not (edge_weight.dim() > 0 and edge_weight.shape[0] == edge_weight.numel() == num_edges):
        expect(False, "edge_weight", f"(E={num_edges},)", tuple(edge_weight.shape))
    check_no_negative(edge_weight)


def check_no_negative(edge_weight: Tensor) -> None:
    """Raise ``InputError`` if a weight that can be read without a wait is negative or NaN."""
    if is_tracing() or (ends := min_max(edge_weight)) is None or ends[0] >= 0:
        return
    edge = int((~(edge_weight >= 0)).flatten().nonzero()[0])
    got = f"{edge_weight.flatten()[edge]:g} at edge {edge}"
    expect(False, "edge_weight", "numbers from 0", got, "Correct this weight, or leave the edge out")


def check_dtype(name: str, feat: Any, weight: Tensor) -> None:
    """Raise ``InputError`` unless features have the weights' device and precision, or autocast converts them."""
    expect(feat.device == weight.device, name, f"device {weight.device}, like the layer's weights", feat.device)
    fits = feat.dtype == weight.dtype or (autocast_dtype(feat.device) is not None and feat.is_floating_point())
    expect(fits, name, f"{weight.dtype}, like the layer's weights", feat.dtype, "Convert it, or the layer")
