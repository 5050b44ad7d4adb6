"""Kernels for whole iterations: Numba on a CPU, Triton on a GPU. The rest of graphcaps calls the functions here."""

from .dispatch import Sums, exchange, needs, needs_for_beliefs, on_gpu, prepare, sums
from .operators import KernelError

__all__ = ["KernelError", "Sums", "exchange", "needs", "needs_for_beliefs", "on_gpu", "prepare", "sums"]
