"""Objectives to parameters: counting, gradient methods, stochastic training and expectation maximisation; metrics."""

from trelliswork.learning.counting import ChainEstimate, count_chain

__all__ = ["ChainEstimate", "count_chain"]
