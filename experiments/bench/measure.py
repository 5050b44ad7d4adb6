"""Times, peaks of a GPU's memory, and this machine: its hardware, its allocator, and its best rates.

Times are measured in rounds. Each round runs every row once, so that other load of the machine affects all rows alike.
"""

import ctypes
import functools
import gc
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numba
import torch

import graphcaps
from graphcaps.errors import expect

SEED, ITERATIONS, DIM = 0, 3, 16
LEAST_ROUNDS, MOST_ROUNDS, SHORTEST = 5, 50, 0.01
"""``SHORTEST`` is the minimum number of seconds of a sample. Quicker calls are repeated."""
# Option numbers of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


@dataclass(frozen=True)
class Setup:
    """A device, and the sizes and time limits that differ between devices."""

    device: str
    images: int  # B of routing
    copied: int  # bytes
    square: int  # rows and columns of the matrices that are multiplied
    seconds: float  # time for all rounds of a table

    @property
    def on_gpu(self) -> bool:
        """On a GPU there are more rows: captured in CUDA graphs, in bfloat16, on power-law graphs."""
        return self.device == "cuda"


SETUPS = {
    "cpu": Setup("cpu", 32, 2**28, 2048, 20.0),
    "cuda": Setup("cuda", 128, 2**30, 8192, 2.0),
}


# Times


@dataclass
class Row:
    """Numbers by name, or a note with the reason why there are none."""

    name: str
    numbers: dict[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass
class Table:
    """Rows that are measured together. Each row is a call."""

    name: str  # unique in all benchmarks, for example "given votes, forward"
    unit: str
    reference: str  # name of a row; each row's ratio is the speedup over this row, from medians
    rows: list[Row] = field(default_factory=list)
    calls: dict[str, Callable[[], object]] = field(default_factory=dict)

    def add(self, name: str, make: Callable[[], Callable[[], object]], memory: bool = False) -> None:
        """Add a row for the call that ``make`` returns, perhaps with its memory on a GPU. A failure becomes a note."""
        row = Row(name)
        self.rows.append(row)
        try:
            call = make()
            if memory:
                row.numbers["total"] = peak(call)
            self.calls[name] = call
        except Exception as error:  # an engine's message names what it needs
            first_line = (str(error).strip().splitlines() or [""])[0][:200]
            row.note = f"not measured: {type(error).__name__}: {first_line}"

    def time(self, setup: Setup) -> "Table":
        """Time the calls, each twice before the first round. Set medians in milliseconds, and ratios."""
        device, repeats = setup.device, {}
        for name, call in self.calls.items():
            seconds_of(call, 1, device)
            repeats[name] = max(1, round(SHORTEST / max(seconds_of(call, 1, device), 1e-9)))
        samples: dict[str, list[float]] = {name: [] for name in self.calls}
        began = time.perf_counter()
        for done in range(MOST_ROUNDS):
            if done >= LEAST_ROUNDS and time.perf_counter() - began > setup.seconds:
                break
            for name, call in self.calls.items():
                samples[name].append(seconds_of(call, repeats[name], device) / repeats[name])
        medians = {name: 1e3 * median(seconds) for name, seconds in samples.items()}
        for row in (row for row in self.rows if row.name in medians):
            row.numbers["median"] = medians[row.name]
            if self.reference in medians:
                row.numbers["ratio"] = medians[self.reference] / medians[row.name]
        return self

    def as_dict(self) -> dict:
        rows = [asdict(row) for row in self.rows]
        return {"name": self.name, "unit": self.unit, "reference": self.reference, "rows": rows}


def seconds_of(call: Callable[[], object], times: int, device: str) -> float:
    """Seconds that ``times`` calls take in total."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """The call as one CUDA graph, so that the host costs nothing."""
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


def peak(call: Callable[[], object]) -> float:
    """The largest number of megabytes on the GPU that ``call`` allocates at once."""
    gc.collect()  # free the tensors of earlier rows
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def check(name: str, got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], allowed: float) -> None:
    """Raise ``GraphcapsError`` if a tensor differs from the wanted one by more than ``allowed`` of its length."""
    off = max(float((x - right).norm() / right.norm()) for x, right in zip(got, wanted, strict=True))
    wrong = f"some that are off by {off:.1e} of their length (allowed: {allowed:.0e})"
    expect(off <= allowed, name, "the values and gradients of the reference", wrong)  # False for NaN


# The machine


def keep_freed_memory() -> bool:
    """Keep freed memory, so that times exclude page faults of new buffers. Return whether this was possible."""
    options = (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_ARENA_MAX, 1)
    return platform.libc_ver()[0] == "glibc" and all(ctypes.CDLL(None).mallopt(*option) == 1 for option in options)


def description(device: str) -> dict[str, str | int]:
    """Versions and hardware of this machine. From now on, the process keeps freed memory."""
    keeps = keep_freed_memory()
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = (line.partition(":")[2].strip() for line in cpu.splitlines() if line.startswith("model name"))
    return {
        "graphcaps": graphcaps.__version__,
        "torch": torch.__version__,
        "dgl": graphcaps.dgl.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": torch.cuda.get_device_name() if device == "cuda" else next(names, platform.machine()),
        "threads": torch.get_num_threads(),
        "allocator": "glibc malloc, one arena, no mmap, no trim" if keeps else "not glibc's malloc",
    }


@functools.cache
def ceilings(setup: Setup) -> dict[str, float]:
    """The machine's rates, the best of several tries.

    ``copy_gb_s``: GB read and written per second while a large tensor is copied. ``*_gflop_s``: 1e9 additions and
    multiplications per second in a product of two square matrices.
    """

    def fastest(call: Callable[[], object]) -> float:
        return min(seconds_of(call, 1, setup.device) for _ in range(11))  # the first call warms up

    source = torch.ones(setup.copied // 4, device=setup.device)
    target = torch.empty_like(source)
    rates = {"copy_gb_s": 2 * setup.copied / 1e9 / fastest(lambda: target.copy_(source))}
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.ones(setup.square, setup.square, dtype=dtype, device=setup.device)
        rates[f"{str(dtype)[6:]}_gflop_s"] = 2 * setup.square**3 / 1e9 / fastest(lambda a=a: torch.mm(a, a))
    return rates
