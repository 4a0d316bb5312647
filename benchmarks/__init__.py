"""Benchmarks of trelliswork against its peers; ``harness.py`` describes the measurement."""
