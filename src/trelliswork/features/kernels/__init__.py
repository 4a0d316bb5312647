"""Compiled hash tables and word clustering."""
