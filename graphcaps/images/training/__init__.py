"""Training: the training loop, and a run folder that stays valid if the process crashes."""
