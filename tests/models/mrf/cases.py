"""A small text, models trained on it, and their fields as dense arrays."""

import numpy as np

from tests.estimators import made
from trelliswork.data.moments import Moments, count_moments
from trelliswork.inference.lifted import ChainBound, ChainCover
from trelliswork.inference.lifted.potentials import dense
from trelliswork.models import MRFLanguageModel

TEXT = [s.split() for s in ("a b c a", "b c a", "c c", "a b", "b c c a b", "a", "c a b")] * 3


def make(order: int = 2, **options) -> MRFLanguageModel:
    """Return a small model of the words of the text alone, trained for a few iterations."""
    parameters = {"rank": 3, "l2": 0.05, "max_iter": 15, "unknown": "error"} | options
    if options.get("form") == "full":
        del parameters["rank"]
    if "algorithm" in options and "max_iter" not in options:
        del parameters["max_iter"]
    return made(MRFLanguageModel, order, **parameters).fit(TEXT)


def learned(model: MRFLanguageModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the unary (C,) and the tables (K, C, C) of a model."""
    return model._field.log_unary, np.array([dense(t) for t in model._field.tables])


def circle_bound(model: MRFLanguageModel, X) -> float:
    """Return the bound of the log-likelihood of a text in an endless circle, per position."""
    moments = X if isinstance(X, Moments) else count_moments(X, model.window, vocabulary=model._words)
    log_unary, tables = learned(model)
    pairs = sum(float(m.multiply(t).sum()) for m, t in zip(moments.pairs, tables, strict=True))
    return (float(moments.unary @ log_unary) + pairs) / moments.n_positions - model._field.log_z_bound


def tightened(model: MRFLanguageModel, **options) -> ChainBound:
    """Return the tightest bound of A / N by chains."""
    return ChainCover(model._field.log_unary, model._field.tables).tighten(**options)
