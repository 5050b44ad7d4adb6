"""HTML pages with a network: one on which you draw (`graphcaps explore`), and one with a graph that you change."""
