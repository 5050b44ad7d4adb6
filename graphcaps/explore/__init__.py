"""Interactive HTML pages: `graphcaps explore` makes one to draw on, `explore_graph` makes one with your graph."""
