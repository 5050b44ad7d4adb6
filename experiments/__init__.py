"""What makes the tables of the docs. Run from a checkout, not in the wheel."""
