"""What is made of edges, kept as long as the edges are there and the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.edge_index import EdgeIndex

Made = TypeVar("Made")

_kept = WeakIdKeyDictionary()  # {what the caller holds: {how: (changes, numbers, what was made of them)}}


def once(held: Any, how: Any, read: Callable[[], torch.Tensor], make: Callable[[torch.Tensor], Made]) -> Made:
    """``make(read())``, made once per ``how`` as long as the argument ``held`` is there and its numbers are the same.

    Engines keep per graph what they sort; a full-batch training loop gives the same ``held`` in every step. On the CPU
    the numbers are compared: a tensor changes in place, and not each way of changing it leaves a mark on the tensor.
    Elsewhere that would wait for the device in each step, and the tensor's own count of changes must do: what NumPy
    can't reach, ``.data`` still changes unseen.
    """
    if isinstance(held, torch.Tensor) and held._is_view() and held._base is not None:
        how = how, held.storage_offset(), held.shape, held.stride()
        held = held._base  # a view, such as edge_index[1], is a new object each time
    made = _kept.setdefault(held, {})
    changes = _changes(held)
    if how in made:
        before, numbers, found = made[how]
        if before == changes if changes is not None else torch.equal(numbers, read()):
            return found
    own = read().clone(memory_format=torch.contiguous_format)
    made[how] = changes, own, make(own)
    return made[how][2]


def _changes(held: Any) -> int | None:
    """How often a tensor on a device was changed; None where its numbers are to be compared."""
    if not isinstance(held, torch.Tensor) or held.device.type == "cpu" or held.is_inference():
        return None
    return (held.as_tensor() if isinstance(held, EdgeIndex) else held)._version
