"""Compile the kernels of spans and grammars; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.inference.span import Grammar, brackets, grammar, lowrank


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and the call of each task."""
    spans, lengths = np.zeros((1, 4, 4)), np.array([4])
    yield "spans: marginals", partial(brackets.expectations, spans, lengths)
    yield "spans: k best", partial(brackets.topk, spans[..., None], lengths, 2)
    yield "spans: samples", partial(brackets.sample, spans, lengths, np.zeros((1, 1), np.int64))
    yield "spans: reading charts", partial(brackets.read, np.full((1, 4, 4), -1), lengths)
    g = Grammar(np.zeros(1), np.zeros((1, 2, 2)), np.zeros((1, 4, 1)), None, lengths)
    yield "grammar: expectations", partial(grammar.expectations, g)
    yield "grammar, log space: expectations", partial(grammar.log_expectations, g)
    yield "grammar: k best", partial(grammar.topk, g, 2)
    yield "grammar: samples", partial(grammar.sample, g, np.zeros((1, 1), np.int64))
    zero = np.zeros((1, 4, 1))
    low = lowrank.LowRankGrammar(np.zeros(1), np.zeros((1, 2)), np.zeros((2, 2)), np.zeros((2, 2)), zero, lengths)
    yield "low-rank grammar: expectations", partial(lowrank.expectations, low, symbols=True)
    yield "low-rank grammar, log space: expectations", partial(lowrank.log_expectations, low, symbols=True)
