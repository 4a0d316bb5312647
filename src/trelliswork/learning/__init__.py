"""Objectives to parameters: counting, and later gradient methods and expectation maximisation."""

from trelliswork.learning.counting import ChainEstimate, count_chain

__all__ = ["ChainEstimate", "count_chain"]
