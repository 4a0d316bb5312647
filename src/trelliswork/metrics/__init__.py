"""Comparison of predictions with gold annotations."""
