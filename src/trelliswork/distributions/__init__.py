"""Distributions over structures, on torch tensors: one interface, any query."""

from trelliswork.distributions.base import Distribution, Structure
from trelliswork.distributions.linear_chain import ChainExpectations, LinearChain

__all__ = ["ChainExpectations", "Distribution", "LinearChain", "Structure"]
