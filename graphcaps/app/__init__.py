"""``graphcaps explore``: a trained network answers a drawing, on a page of this machine."""
