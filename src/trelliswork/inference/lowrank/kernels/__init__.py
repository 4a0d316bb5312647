"""Compiled inference in HMMs with low-rank transitions."""
