"""Questions to a trained network: how often it is right, on what images, with which capsules and edges."""
