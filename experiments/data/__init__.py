"""Graphs that the tasks train on: two kinds are drawn from seeds, others are read from files."""
