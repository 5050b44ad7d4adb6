"""Pages that carry a network: one for a run, on which you draw (`graphcaps explore`), and one for a graph to change."""
