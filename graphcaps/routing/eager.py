"""A call that ``torch.compile`` doesn't look into. Imported while torch traces, and only then: the decorator loads
torch's compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable
def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """``function(*arguments, **named)``, as if nothing were compiled."""
    return function(*arguments, **named)
