"""Hostile input: nothing crashes, nothing hangs."""
