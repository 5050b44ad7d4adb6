"""Analysis of trained networks: accuracy, usage of capsules, and parse trees."""
