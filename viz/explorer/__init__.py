"""The routing explorer: one HTML page with a run's routing in it."""
