"""Timing in rounds: each round runs every row once, so that a noisy machine hits all rows alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from ..progress import bar

SHORTEST = 0.01  # seconds: a quicker call is repeated until a sample takes about so long


class Timing(NamedTuple):
    """Seconds per call: median and quartiles over rounds."""

    median: float
    low: float
    high: float
    rounds: int


def interleaved(
    rows: Mapping[str, Callable[[], object]], device: str, seconds: float, rounds: tuple[int, int], title: str = ""
) -> dict[str, Timing]:
    """Time rows round-robin: warm each up, then as many rounds as fit into ``seconds``, within the bounds ``rounds``.

    Args:
        rows: functions without arguments, by name.
        device: "cpu" or "cuda"; on CUDA a sample lies between two events of the stream.
        seconds: for all rounds together, > 0.
        rounds: at least, at most.
        title: of the bar on a terminal.
    """
    calls = {}
    for name, call in rows.items():
        seconds_of(call, 1, device)
        calls[name] = max(1, round(SHORTEST / max(seconds_of(call, 1, device), 1e-9)))
        if calls[name] > 1:
            seconds_of(call, calls[name], device)
    samples: dict[str, list[float]] = {name: [] for name in rows}
    began, spent, done = time.perf_counter(), 0.0, 0
    least, most = rounds
    with bar(title) as show:
        while rows and done < most and (done < least or spent < seconds):
            for name, call in rows.items():
                samples[name].append(seconds_of(call, calls[name], device) / calls[name])
            done += 1
            spent = time.perf_counter() - began
            show(max(done / most, min(1.0, spent / seconds)))
    return {name: timing_of(values) for name, values in samples.items()}


def timing_of(samples: list[float]) -> Timing:
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive") if samples[1:] else samples * 3
    return Timing(median, low, high, len(samples))


def seconds_of(call: Callable[[], object], times: int, device: str) -> float:
    """Seconds that ``times`` calls take together."""
    if device != "cuda":
        began = time.perf_counter()
        for _ in range(times):
            call()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000
