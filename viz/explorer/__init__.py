"""The routing explorer: one HTML page that shows a run's routing."""
