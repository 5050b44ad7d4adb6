"""The learning rate of each step."""

from __future__ import annotations

import math


def one_cycle(step: int, steps: int, peak: float) -> float:
    """Learning rate of one step: from peak / 25 up over the first 30 %, then down to nearly 0 (Smith & Topin 2018).

    >>> [round(one_cycle(step, 100, 1.0), 3) for step in (0, 30, 65, 99)]
    [0.04, 1.0, 0.5, 0.001]
    """
    warm = 0.3 * steps
    if step < warm:
        low, share = peak / 25, (1 - math.cos(math.pi * step / warm)) / 2
    else:
        low, share = peak / 25e4, (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1))) / 2
    return low + (peak - low) * share
