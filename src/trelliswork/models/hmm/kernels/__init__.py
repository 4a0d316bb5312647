"""Compiled expected counts of hidden Markov models."""
