"""Capsules on other people's graphs: scripts to copy from, each with the usual layers as baselines in the same run."""
