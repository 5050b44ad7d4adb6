"""Benchmarks: how fast routing and training are, and how much memory they need."""
