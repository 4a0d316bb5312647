"""Structured factors: many variables at once, with a dynamic program in place of a table.

Each is a `Propagator`: it returns value, beliefs and messages in time far below the size of its table. All sums are of
positive terms, in log space, so that zeros (-inf) in messages and parameters are handled exactly.
"""
