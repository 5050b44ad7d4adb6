"""The fused engine on CUDA: passes over the votes in Triton."""
