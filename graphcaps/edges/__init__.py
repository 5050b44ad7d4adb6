"""The operations on edges that routings are written with."""
