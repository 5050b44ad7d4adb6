"""Analysis of trained networks: accuracy, robustness, equivariance, usage of capsules, and parse trees."""
