"""Predictions compared with gold answers."""
