"""Pictures of routing that move over iterations or over training."""
