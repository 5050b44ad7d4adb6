"""Kernels for whole iterations: Numba on a CPU, Triton on a GPU."""
