"""How ``torch.compile`` leaves its graph for a call. Import this only while torch traces: it loads torch's compiler."""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable
def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call ``function(*arguments, **named)`` without compiling it."""
    return function(*arguments, **named)
