"""Attacks on every entrance: random values, shapes and schedules end in a result or an error of this package."""
