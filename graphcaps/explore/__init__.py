"""`graphcaps explore`: a run as a page that carries its network, so that whoever gets it can draw and see it routed."""
