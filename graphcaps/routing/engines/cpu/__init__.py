"""The fused engine on the CPU: passes over the votes in Numba."""
