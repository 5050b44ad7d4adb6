"""Graphs that the tasks train on: two that are drawn from seeds, and readers of others."""
