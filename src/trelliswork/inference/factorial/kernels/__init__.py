"""Compiled inference in factorial chains."""
