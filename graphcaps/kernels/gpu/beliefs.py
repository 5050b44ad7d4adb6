"""An iteration of ``BeliefConv`` on a GPU, with the formulas, arguments and results of `..cpu.beliefs`."""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn.functional import pad

from ..operators import new_results, operator
from . import kernels_beliefs as kernels
from .nodes import Sizes

PROGRAMS = 2048  # of a gradient, at most; each adds up gradients of the rates and tables, and torch those of all


def _launch(kernel: Any, programs: int, base: Tensor, *arguments: Any) -> None:
    K, D = (triton.next_power_of_2(size) for size in base.shape[1:])
    sizes = Sizes(*(*base.shape[1:], K, D, max(1, min(4, 512 // (K * D * D)))))
    with torch.cuda.device_of(base):
        kernel[(programs,)](*arguments, sizes, num_warps=max(1, min(16, K * D * D // 512)))


def _shapes(tensors: list[Tensor], settings: list[int]) -> list[tuple[int, ...]]:
    of_nodes, of_rows = (tuple(x.shape) for x in tensors[:2])
    return [of_nodes, of_rows, of_rows[:2], of_nodes]


def _forward(tensors: list[Tensor], settings: list[int]) -> list[Tensor]:
    results, base = new_results(tensors, _shapes(tensors, settings)), tensors[0]
    _launch(kernels.beliefs_forward, len(base), base, *(x.contiguous() for x in tensors), *results)
    return results


def _differentiate(
    grads: list[Tensor], saved: list[Tensor], settings: list[int], needed: list[bool]
) -> tuple[Tensor | None, ...]:
    base, *others = (x.contiguous() for x in saved)
    m, weight, rho, _, table = others[:5]
    programs = max(1, min(len(base), PROGRAMS, 2**21 // table.numel()))  # less than 20 MB of tables in float32
    dbase, dm, dreverse, dweight = results = [torch.empty_like(x) for x in (base, m, m, weight)]
    dnumbers, dtables = base.new_empty(programs, 3, len(rho)), base.new_empty(programs, 2, *table.shape)
    outer = (x.contiguous() if x.numel() else torch.zeros_like(y) for x, y in zip(grads, (base, m), strict=True))
    _launch(kernels.beliefs_backward, programs, base, *others, *outer, *results, dnumbers, dtables, len(base))
    drho, *drates = dnumbers.sum(0)
    dsettings = pad(torch.stack(drates).sum(1), (0, 1))  # the share of the previous message is a constant
    return dbase, dm.add_(dreverse), dweight, drho, dsettings, *dtables.sum(0), None, None


exchange = operator("beliefs_on_gpu", _forward, _shapes, _differentiate, differentiable=2, by_triton=True)
