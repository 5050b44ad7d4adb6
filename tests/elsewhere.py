"""A device that isn't there: its tensors say they are elsewhere, have their numbers on the CPU, and tell who waits.

What a GPU does without being asked for an answer goes on while the program does something else. What asks it for one
(a number, a tensor on the CPU, a shape that depends on numbers), or copies to it from memory that isn't pinned, waits
until all of it is done. Code that takes other ways for tensors on the CPU takes those of a GPU here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device("meta")  # autograd takes it, and nothing in graphcaps knows it
# Operations whose result, or its shape, the program has to see before it can go on.
ANSWERS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}
ANSWERS |= {"bincount", "repeat_interleave", "equal", "histc"}


class There(torch.Tensor):
    """A tensor that says it is on ``PLACE``; ``inner`` has its numbers."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> There:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, **layout, device=PLACE)
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return There(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        raise AssertionError(f"{operation} outside the device's block")


class Elsewhere(TorchDispatchMode):
    """While entered, ``PLACE`` is a device; ``waits`` has the name of each operation that waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __enter__(self) -> Elsewhere:
        tensor = torch.tensor

        def made(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
            there = device is not None and torch.device(device) == PLACE
            return tensor(data, **options).to(PLACE) if there else tensor(data, device=device, **options)

        def made_like(x: torch.Tensor, data: Any, **options: Any) -> torch.Tensor:
            return made(data, **{"dtype": x.dtype, "device": x.device} | options)

        # What torch does there by itself: it has no autocast, and makes tensors without numbers.
        self.patches = [
            mock.patch("torch.is_autocast_enabled", lambda *device: False),
            mock.patch("torch.tensor", made),
            mock.patch("torch.Tensor.new_tensor", made_like),
        ]
        for patch in self.patches:
            patch.start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        for patch in self.patches:
            patch.stop()
        super().__exit__(*error)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), operation._schema.name.split("::")[1]
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        there = any(isinstance(x, There) for x in given)
        target = kwargs.get("device")
        to_there = there if target is None else torch.device(target) == PLACE
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        if there and name in ANSWERS or given and there != to_there:
            self.waits.append(name)
        elif there and name in ("index", "index_put_", "index_put", "_index_put_impl_"):
            if any(x.dtype in (torch.bool, torch.uint8) or not isinstance(x, There) for x in given[1:] if x.dim()):
                self.waits.append(name)
        elif there and not all(isinstance(x, There) or x.dim() == 0 for x in given):
            assert name == "copy_", f"{name} of tensors on two devices"
            self.waits.append(name)
        own = {id(x.inner): x for x in given if isinstance(x, There)}

        def inside(x: Any) -> Any:
            return x.inner if isinstance(x, There) else x

        def outside(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return own[id(x)] if id(x) in own else There(x)

        found = operation(*tree_map(inside, args), **tree_map(inside, kwargs))
        if given and there and target is not None and not to_there:
            return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, found)
        if not to_there:
            return found
        return tree_map(outside, found)


def accelerator(**settings: Any) -> SimpleNamespace:
    """What a training asks of Accelerate, for one process elsewhere."""
    answers = {"device": PLACE, "num_processes": 1, "process_index": 0, "is_main_process": True}
    answers |= {"mixed_precision": "no", "backward": lambda loss: loss.backward(), "prepare": lambda *these: these}
    return SimpleNamespace(**answers | settings)
