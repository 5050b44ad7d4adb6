"""Routing as it moves: over iterations and over training."""
