"""What is made of edges, kept as long as the edges are there and the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.edge_index import EdgeIndex

Made = TypeVar("Made")

MOST = 16  # copies of all of a tensor that are kept of it and its views; windows that slide over it would add up
_kept = WeakIdKeyDictionary()  # {what the caller holds: _Made}


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
    made = _kept.setdefault(held, _Made())
    changes = _changes(held)
    if how in made:
        before, numbers, found = made[how]
        if before == changes if changes is not None else torch.equal(numbers, read()):
            return found
    with torch.inference_mode(False):  # what is kept serves trainings too
        own = read().clone(memory_format=torch.contiguous_format)
        found = make(own)
    made.keep(how, (changes, own, found), most=MOST * held.numel() if isinstance(held, torch.Tensor) else own.numel())
    return found


class _Made(dict):
    """What was made of a tensor and its views: {how: (changes, numbers, what was made of them)}."""

    copied = 0  # numbers in all copies together

    def keep(self, how: Any, entry: tuple, most: int) -> None:
        """Add an entry, and forget the oldest where copies have more than ``most`` numbers."""
        if how in self:
            self._forget(how)
        self[how] = entry
        self.copied += entry[1].numel()
        while self.copied > most and len(self) > 1:
            self._forget(next(iter(self)))

    def _forget(self, how: Any) -> None:
        self.copied -= self.pop(how)[1].numel()


def _changes(held: Any) -> int | None:
    """How often a tensor on a device was changed; None where its numbers are to be compared."""
    if not isinstance(held, torch.Tensor) or held.device.type == "cpu" or held.is_inference():
        return None
    return (held.as_tensor() if isinstance(held, EdgeIndex) else held)._version
