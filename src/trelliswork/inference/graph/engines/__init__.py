"""Inference engines for factor graphs, one module per engine."""
