"""Questions to a trained network: how often it is right, on which images, and with which capsules and edges."""
