"""Kernels for whole iterations: Numba on a CPU, Triton on a GPU. The rest of graphcaps calls the two functions here."""

from .door import lacks, prepare, sums

__all__ = ["lacks", "prepare", "sums"]
