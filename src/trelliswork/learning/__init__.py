"""Optimizers that see only an objective, and what they report. Knows no model."""
