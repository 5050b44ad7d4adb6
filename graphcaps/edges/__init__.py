"""The operations on edges that routings are written with: torch, dense, DGL, and between nodes' capsules."""
