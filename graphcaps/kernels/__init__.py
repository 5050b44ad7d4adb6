"""Kernels for whole iterations: Numba on a CPU, Triton on a GPU. The rest of graphcaps calls the functions here."""

from .dispatch import KernelError, Sums, needs, needs_for_beliefs, prepare, sums

__all__ = ["KernelError", "Sums", "needs", "needs_for_beliefs", "prepare", "sums"]
