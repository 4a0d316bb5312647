"""Compiled operations on long vectors."""
