"""Training: the loop, the run folder that a crash can't break, and the weights in it."""
