"""Routing on a GPU, by kernels that Triton compiles."""
