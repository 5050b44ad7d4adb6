"""Timing in rounds: each round runs every row once, so that other load of the machine affects all rows alike."""

import time
from collections.abc import Callable, Mapping

import torch

SHORTEST = 0.01
"""Minimum seconds of a sample. Quicker calls are repeated."""


def interleaved(
    calls: Mapping[str, Callable[[], object]], device: str, seconds: float, rounds: tuple[int, int]
) -> dict[str, list[float]]:
    """Seconds per call in each round, by name. Every call is made twice before the first round.

    All rounds together take about ``seconds``. ``rounds`` are the smallest and the largest number of rounds.
    """
    repeats = {}
    for name, call in calls.items():
        seconds_of(call, 1, device)
        repeats[name] = max(1, round(SHORTEST / max(seconds_of(call, 1, device), 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    began, done, (least, most) = time.perf_counter(), 0, rounds
    while done < least or (done < most and time.perf_counter() - began < seconds):
        for name, call in calls.items():
            samples[name].append(seconds_of(call, repeats[name], device) / repeats[name])
        done += 1
    return samples


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """The call as one CUDA graph, so that the host costs nothing. Without a GPU, the call itself."""
    if not torch.cuda.is_available():
        return call
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    # The outer block restores the current stream even if the capture fails.
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
        call()
    return graph.replay


def launches(call: Callable[[], object]) -> int:
    """How often the host starts a kernel, a copy or a graph on the GPU in a call."""
    with torch.profiler.profile() as profile:
        call()
    starts = ("cudaLaunch", "cuLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch")
    return sum(event.count for event in profile.key_averages() if event.key.startswith(starts))


def seconds_of(call: Callable[[], object], times: int, device: str) -> float:
    """Seconds that ``times`` calls take in total."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
    began = time.perf_counter()
    for _ in range(times):
        call()
    if device != "cuda":
        return time.perf_counter() - began
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000
