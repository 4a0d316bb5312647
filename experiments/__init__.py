"""Reproductions of the papers' experiments; each takes sizes and seeds and returns a table of our and their figures."""
