"""Compiled inference in linear chains."""
