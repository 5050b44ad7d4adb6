"""A call that ``torch.compile`` doesn't trace. Import this only while torch traces: it loads torch's compiler."""

from collections.abc import Callable
from typing import Any

import torch


@torch.compiler.disable
def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call ``function(*arguments, **named)`` without compiling it."""
    return function(*arguments, **named)
