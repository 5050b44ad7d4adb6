"""Routing and beliefs on a GPU, by kernels that Triton compiles."""
