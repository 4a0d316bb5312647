"""Benchmarks of trelliswork against its peers; see ``harness.py`` for how they are measured."""
