"""Analysis of trained networks: accuracy, robustness, usage of capsules, and parse trees."""
