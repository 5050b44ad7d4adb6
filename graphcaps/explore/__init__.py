"""Pages that carry a network: of a run, on which one draws (`graphcaps explore`), and of a graph, which one changes."""
