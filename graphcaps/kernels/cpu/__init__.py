"""The fused engine, whose passes over the votes are Numba kernels for the CPU."""
