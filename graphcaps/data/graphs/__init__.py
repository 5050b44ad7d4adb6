"""Graph data sets: read, checked, with their published splits. They need DGL."""
