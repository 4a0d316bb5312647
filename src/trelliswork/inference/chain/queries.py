"""Queries about the labels of chains with dense or sparse transitions, exactly or within a beam.

States of sparse chains emit labels. Answers are about labels, so that callers need not know which chain they have.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import batches, pad
from trelliswork.inference.chain.beam import EXACT, Beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.inference.chain.passes import expectations, viterbi
from trelliswork.inference.chain.passes import log_partition as dense_log_partition
from trelliswork.inference.chain.plain import topk
from trelliswork.inference.chain.potentials import Floats, Integers, Potentials

Scores = Potentials | SparseChain
SPARSE = ("log_unary", "log_weights", "log_start", "log_end")  # scores of sparse chains
DENSE_SCORES = 1 << 23  # scores of states, when sparse chains are made dense


def best_labels(scores: Scores, beam: Beam | None = None) -> Integers:
    """Return the most probable labels (B, T) by Viterbi; -1 in the padding."""
    if beam is None and isinstance(scores, Potentials):
        return viterbi(scores)[0]
    return _labels(scores, beam_passes.viterbi(scores, beam or EXACT).labels)


def label_marginals(scores: Scores, beam: Beam | None = None) -> tuple[NDArray[np.float64], Floats]:
    """Return log Z (B,) and p(label) (B, T, L), zero in the padding; within a beam, of the labels that it kept."""
    if beam is None and isinstance(scores, Potentials):
        log_z, expected = expectations(scores)
        assert expected.marginals is not None
        return log_z, expected.marginals
    within = beam_passes.expectations(scores, beam or EXACT)
    label_of = scores.transitions.emits if isinstance(scores, SparseChain) else None
    return within.log_z, pad(within.by_label(label_of, scores.log_unary.shape[2]), scores.lengths)


def log_partition(scores: Scores, beam: Beam | None = None) -> NDArray[np.float64]:
    """Return log Z (B,)."""
    if beam is None and isinstance(scores, Potentials):
        return dense_log_partition(scores)
    return beam_passes.expectations(scores, beam or EXACT).log_z


def hold(scores: Scores, beam: Beam | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the probability (B,) that all rules hold, which is 1 as there are none, and its error (B,)."""
    return np.ones(len(scores.lengths)), np.zeros(len(scores.lengths))


def log_partitions(batches: Iterable[Scores], factor: float) -> NDArray[np.float64]:
    """Return exact log Z (n,) of sentences whose log-potentials are multiplied by a factor."""
    return np.concatenate([np.empty(0), *(log_partition(scaled(scores, factor)) for scores in batches)])


def best_labelings(scores: Scores, k: int) -> Iterator[tuple[Integers, NDArray[np.float64]]]:
    """Yield for each sequence its labelings (n, T), at most k and best first, and their log-probabilities (n,)."""
    for p, label_of in dense_parts(scores):
        states, values = topk(p, k)
        log_p = values - dense_log_partition(p)[:, None]
        labels = states if label_of is None else np.append(label_of, -1)[states]
        for rows, own, n in zip(labels, log_p, p.lengths.tolist(), strict=True):
            possible = np.isfinite(own)
            yield rows[possible, :n], own[possible]


def dense_parts(scores: Scores) -> Iterator[tuple[Potentials, Integers | None]]:
    """Yield chains with dense transitions, in order, and the label of each of their states, ``None`` for labels."""
    if isinstance(scores, Potentials):
        yield scores, None
        return
    for first, last in batches(scores.lengths, max(1, DENSE_SCORES // scores.transitions.n_states)):
        yield scores.take(np.arange(first, last)).dense(), scores.transitions.emits.astype(np.int64)


def take(scores: Any, which: Integers) -> Any:
    """Return some of the sequences of a batch in the same precision; the batch itself if they are all."""
    if np.array_equal(which, np.arange(len(scores.lengths))):
        return scores
    return scores.take(which, scores.log_unary.dtype.type) if isinstance(scores, Potentials) else scores.take(which)


def scaled(scores: Scores, factor: float) -> Scores:
    """Return the chains with all scores multiplied by a factor."""
    if isinstance(scores, SparseChain):
        return scores._replace(**{name: getattr(scores, name) * factor for name in SPARSE})
    by = scores.log_unary.dtype.type(factor)
    return replace(scores, log_unary=scores.log_unary * by, log_pairwise=scores.log_pairwise * by)


def in_double(scores: Scores) -> Scores:
    """Return the chains in float64, in which posteriors are computed."""
    if isinstance(scores, SparseChain):
        return scores._replace(**{name: getattr(scores, name).astype(np.float64) for name in SPARSE})
    own, between = (values.astype(np.float64, copy=False) for values in (scores.log_unary, scores.log_pairwise))
    return replace(scores, log_unary=own, log_pairwise=between)


def _labels(scores: Scores, states: Integers) -> Integers:
    """Return the labels of states; -1 stays -1."""
    if not isinstance(scores, SparseChain):
        return states
    return np.append(scores.transitions.emits, -1)[states].astype(np.int64)
