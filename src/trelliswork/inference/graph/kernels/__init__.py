"""Compiled message passing, elimination and sampling on factor graphs."""
