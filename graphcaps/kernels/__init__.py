"""Kernels that run whole iterations of a routing: for a CPU by Numba, for a GPU by Triton."""
