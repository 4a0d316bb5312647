"""HMMs of hmmlearn and pomegranate as ours: the same probabilities, so the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.learning.report import FitReport
from trelliswork.models.hmm import HMM
from trelliswork.models.hmm.data import unnamed_states
from trelliswork.models.hmm.decoding import state_chain
from trelliswork.models.hmm.emissions import TableEmissions
from trelliswork.models.hmm.training import Learned

Doubles = NDArray[np.float64]


def converted_hmm(source: Any, *, words: Sequence[Any] | None, labels: Sequence[str] | None) -> HMM:
    """Return an HMM of hmmlearn or pomegranate as ours; `convert` has the parameters."""
    if hasattr(source, "emissionprob_") or type(source).__name__ == "CategoricalHMM":
        start, transition, end, emission = _hmmlearn(source)
        tool = "hmmlearn"
    elif hasattr(source, "edges") and hasattr(source, "distributions"):
        start, transition, end, emission = _pomegranate(source)
        tool = "pomegranate"
    else:
        raise DataError(
            f"expected a file, a CategoricalHMM of hmmlearn or a DenseHMM of pomegranate, got {type(source).__name__}."
        )
    S, V = emission.shape
    names = list(labels) if labels is not None else unnamed_states([], S)
    symbols = list(words) if words is not None else list(range(V))
    for what, given, n in (("labels", names, S), ("words", symbols, V)):
        if len(given) != n or len(set(given)) < n:
            raise ValueRangeError(f"{what} must be {n} different names, one per id, got {len(given)}.")
    totals = transition.sum(axis=1) + (0 if end is None else end)
    for what, sums in (("first states", start.sum()), ("transitions", totals), ("emissions", emission.sum(axis=1))):
        if not np.allclose(sums, 1, atol=1e-4):
            raise DataError(f"the probabilities of {what} must sum to 1, got {np.round(sums, 4)}: fit the model first.")
    start, emission = start / start.sum(), emission / emission.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_bigram = np.full((S + 1, S + 1), -np.inf)
        log_bigram[:S, :S] = np.log(transition / totals[:, None])
        log_bigram[S, :S] = np.log(start)
        if end is not None:
            log_bigram[:S, S] = np.log(end / totals)
        log_emission = np.log(emission)
    model = HMM(S, end=end is not None, unknown="symbol")
    chain = state_chain(log_bigram, None, end=end is not None)
    report = FitReport(True, f"converted from {tool}", float("nan"))
    return model._set(Learned(Vocabulary(names), chain, TableEmissions(symbols, log_emission, None), True, report))


def _hmmlearn(source: Any) -> tuple[Doubles, Doubles, None, Doubles]:
    try:
        start, transition = np.asarray(source.startprob_, np.float64), np.asarray(source.transmat_, np.float64)
        return start, transition, None, np.asarray(source.emissionprob_, np.float64)
    except AttributeError:
        raise NotFittedError("the CategoricalHMM is not fitted: call its fit, or set its probabilities.") from None


def _pomegranate(source: Any) -> tuple[Doubles, Doubles, Doubles | None, Doubles]:
    """Return the probabilities of a DenseHMM; equal ends of all states are no event."""
    rows = []
    for distribution in source.distributions or []:
        probabilities = getattr(distribution, "probs", None)
        if probabilities is None or probabilities.ndim != 2 or len(probabilities) != 1:
            kind = type(distribution).__name__
            raise DataError(f"expected Categorical distributions of one symbol per position, got {kind}.")
        rows.append(_array(probabilities)[0])
    if not rows or source.edges is None or source.starts is None:
        raise NotFittedError("the DenseHMM has no probabilities: fit it, or give it distributions, edges and starts.")
    transition, start = np.exp(_array(source.edges)), np.exp(_array(source.starts))
    ends = np.exp(_array(source.ends)) if source.ends is not None else np.zeros(len(start))
    if np.allclose(transition.sum(axis=1), 1, atol=1e-4) and np.allclose(ends, ends[0]):
        return start, transition, None, np.stack(rows)
    return start, transition, ends, np.stack(rows)


def _array(tensor: Any) -> Doubles:
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor, np.float64)
