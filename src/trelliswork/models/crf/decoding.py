"""Decoding of scored sentences: best labels, marginals and k best labelings, exactly or within a beam."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.padding import pad
from trelliswork.data import Vocabulary
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import EXACT, Beam
from trelliswork.inference.chain.beam import passes as beam_passes
from trelliswork.inference.chain.beam.sparse import SparseChain
from trelliswork.models.crf.scoring import Scores

Labels = NDArray[np.int64]


def best_labels(scores: Scores, beam: Beam | None) -> Labels:
    """Return the most probable labels (B, T) by Viterbi."""
    if beam is None and isinstance(scores, chain.Potentials):
        return chain.viterbi(scores)[0]
    return _labels(scores, beam_passes.viterbi(scores, beam or EXACT).labels)


def marginals(scores: Scores, beam: Beam | None) -> NDArray[Any]:
    """Return p(label) (B, T, L), zero in the padding; within a beam, of the labels that it kept."""
    if beam is None and isinstance(scores, chain.Potentials):
        marginals = chain.expectations(scores)[1].marginals
        assert marginals is not None
        return marginals
    expected = beam_passes.expectations(scores, beam or EXACT)
    label_of = scores.transitions.emits if isinstance(scores, SparseChain) else None
    return pad(expected.by_label(label_of, scores.log_unary.shape[2]), scores.lengths)


def best_labelings(scores: Scores, k: int) -> tuple[Labels, NDArray[np.float64]]:
    """Return the k most probable labelings (B, k, T) and their log-probabilities (B, k); always exact."""
    p = scores.dense() if isinstance(scores, SparseChain) else scores
    states, values = chain.topk(p, k)
    return _labels(scores, states), values - chain.log_partition(p)[:, None]


def log_partitions(batches: Iterable[Scores], factor: float) -> NDArray[np.float64]:
    """Return exact log Z (n,) of sentences whose log-potentials are multiplied by a factor."""
    parts = [np.empty(0)]
    for scores in batches:
        if isinstance(scores, SparseChain):
            names = ("log_unary", "log_weights", "log_start", "log_end")
            scaled = scores._replace(**{name: getattr(scores, name) * factor for name in names})
            parts.append(beam_passes.expectations(scaled, EXACT).log_z)
        else:
            by = scores.log_unary.dtype.type(factor)
            parts.append(
                chain.log_partition(
                    replace(scores, log_unary=scores.log_unary * by, log_pairwise=scores.log_pairwise * by)
                )
            )
    return np.concatenate(parts)


def label_strings(labels: Labels, lengths: NDArray[np.integer], names: Vocabulary) -> list[list[str]]:
    """Return the names of labels (B, T) without the padding."""
    items = names.items
    return [[items[j] for j in row[:n]] for row, n in zip(labels.tolist(), lengths.tolist(), strict=True)]


def _labels(scores: Scores, states: Labels) -> Labels:
    """Return the labels of states; -1 stays -1."""
    if not isinstance(scores, SparseChain):
        return states
    return np.append(scores.transitions.emits, -1)[states].astype(np.int64)
