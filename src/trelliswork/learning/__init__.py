"""Optimizers of objectives, their reports and checkpoints; independent of models."""
