"""Compile what estimators call, by training and using each on a toy; see ``inference.warmup``."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from trelliswork.learning.crf_layout import FeatureLayout, Tokens
from trelliswork.learning.crf_objective import ChainObjective
from trelliswork.models.crf import CRF

X = [["a", "b", "a"], ["b", "a"]]
Y = [["A", "B", "A"], ["B", "A"]]


def tasks() -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of each piece of work."""
    yield "crf: templates", partial(_train, "U:%x[0,0]\nU:%x[-1,0]/%x[0,0]", X)
    yield "crf: real-valued features", partial(_train, None, [[{w: 0.5} for w in x] for x in X])
    yield "crf: L1", partial(_train, "U:%x[0,0]", X, l1=0.1)
    yield "crf: edge features", partial(_train, "U:%x[0,0]\nB:%x[0,0]", X)
    yield "crf: hashed features", partial(_train, "U:%x[0,0]", X, hash_bits=4)
    yield "crf: SGD", partial(_train, "U:%x[0,0]", X, algorithm="sgd")
    yield "crf: perceptron", _perceptron
    yield "crf: scores that underflow", _underflow


def _underflow() -> object:
    """Transitions of weight -1000 and 1000: only log space can hold them."""
    tokens = Tokens(np.array([0, 2]), np.array([0, 1, 2]), np.array([0, 0], np.int32))
    layout = FeatureLayout.all_pairs(1, 2)
    weights = 1000.0 * np.array([-1, 1, 1, -1, 1, -1])
    return ChainObjective(tokens, np.array([0, 0], np.int32), layout)(weights)


def _perceptron() -> object:
    """With a label scheme, whose possibility is checked sentence by sentence, and a set of labels."""
    crf = CRF("U:%x[0,0]", algorithm="perceptron", scheme="bio")
    return crf.fit(X, [["B-A", {"I-A", "O"}, "O"], ["O", "O"]]).predict(X)


def _train(features: str | None, sentences: list, **options: Any) -> object:
    return CRF(features, scheme=None, tol=0.1, **options).fit(sentences, Y).predict(sentences)
