"""Compiled features, label scores and updates of the dependency parser."""
