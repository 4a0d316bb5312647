"""Compile what estimators call, by training and using each on a toy; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from trelliswork.learning.crf_objective import ChainObjective, FeatureLayout, Tokens
from trelliswork.models.crf import CRF

X = [["a", "b", "a"], ["b", "a"]]
Y = [["A", "B", "A"], ["B", "A"]]


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of each piece of work."""
    yield "crf: templates", partial(_train, "U:%x[0,0]\nU:%x[-1,0]/%x[0,0]", X)
    yield "crf: real-valued features", partial(_train, None, [[{w: 0.5} for w in x] for x in X])
    yield "crf: L1", partial(_train, "U:%x[0,0]", X, l1=0.1)
    yield "crf: scores that underflow", _underflow


def _underflow() -> object:
    """Transitions of weight -1000 and 1000: only log space can hold them."""
    tokens = Tokens(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 0], np.int32))
    layout = FeatureLayout.all_pairs(1, 2)
    weights = 1000.0 * np.array([-1, 1, 1, -1, 1, -1])
    return ChainObjective(tokens, np.array([0, 0], np.int32), layout)(weights)


def _train(features: str | None, sentences: list, l1: float = 0.0) -> object:
    return CRF(features, l1=l1, scheme=None, tol=0.1).fit(sentences, Y).predict(sentences)
