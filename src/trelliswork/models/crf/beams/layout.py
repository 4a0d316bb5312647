"""What the weights of a CRF trained within beams stand for, and how they lie in memory for the kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.beam.passes import exp_rows, scaled, scaled_weights
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.models.crf.layout import Allowed, FeatureLayout, Floats

Codes = NDArray[np.int64]
MOST_STATES = 1 << 20  # of n-grams: each has as many transitions as there are labels


@dataclass(frozen=True)
class Structure:
    """Sparse transitions with weights, the first ``n_weights`` numbers of the weight vector; the state features of the
    layout follow, which has no transitions of its own.

    Attributes
    ----------
    transitions : SparseTransitions
    weight_ids : ndarray (K, n_entries)
        The score of an entry is the sum of K weights; -1 is none. Entries may share a weight.
    n_weights : int
    grams : tuple of ndarray
        Of n-grams: the codes of pairs, triples, ... whose weights these are, one after the other.
    """

    transitions: SparseTransitions
    weight_ids: NDArray[np.int64]
    n_weights: int
    grams: tuple[Codes, ...] = ()

    @classmethod
    def free(cls, transitions: SparseTransitions) -> "Structure":
        """A weight for each entry."""
        n = len(transitions.targets)
        return cls(transitions, np.arange(n)[None], n)

    @classmethod
    def ngrams(cls, n_labels: int, grams: Sequence[NDArray[np.int64]]) -> "Structure":
        """States that remember as many labels as the longest n-gram but one has; a weight for each of the n-grams.

        Parameters
        ----------
        n_labels : int
        grams : list of ndarray
            Of pairs of labels, triples, and so on the codes (``observed_ngrams``), ascending. A transition is scored by
            all n-grams that end with it.
        """
        L, order = n_labels, len(grams)
        if L**order > MOST_STATES:
            raise ValueRangeError(
                f"order={order} with {L} labels has {L**order:,} states, more than the {MOST_STATES:,} that are "
                "possible: use a lower order."
            )
        for n, codes in enumerate(grams, start=2):
            if len(codes) and (codes[0] < 0 or codes[-1] >= L**n or (np.diff(codes) <= 0).any()):
                raise ValueRangeError(f"codes of {n}-grams must ascend from 0 to at most {L**n - 1}.")
        transitions = SparseTransitions.ngrams(L, order)
        # A state that has seen k labels is their code plus the states of fewer labels.
        begin = np.cumsum([0] + [L**k for k in range(1, order + 1)])
        seen = np.searchsorted(begin, transitions.sources, side="right")
        history = transitions.sources - begin[seen - 1]
        ids, first = np.full((order, len(transitions.targets)), -1), 0
        for k, codes in enumerate(grams):  # n-grams of k + 2 labels: k + 1 before the last
            wanted = (history % L ** (k + 1)) * L + transitions.emits[transitions.targets]
            at = np.minimum(np.searchsorted(codes, wanted), max(len(codes) - 1, 0))
            hit = (codes[at] == wanted if len(codes) else np.zeros(len(wanted), bool)) & (seen > k)
            ids[k, hit] = first + at[hit]
            first += len(codes)
        return cls(transitions, ids, first, tuple(grams))

    def scores(self, weights: Floats) -> NDArray[np.float32]:
        """(n_entries,): the scores of the transitions."""
        padded = np.append(weights, 0).astype(np.float32)  # -1 finds the last
        total = padded[self.weight_ids[0]]
        for ids in self.weight_ids[1:]:
            total += padded[ids]
        return total

    def gather(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_weights,): counts of the entries, summed for each weight."""
        found = np.zeros(self.n_weights + 1)
        for ids in self.weight_ids:
            found += np.bincount(ids + 1, counts, minlength=self.n_weights + 1)
        return found[1:]


def observed_ngrams(gold: NDArray[np.integer], offsets: NDArray[np.integer], n_labels: int, order: int) -> list[Codes]:
    """The pairs, triples, ... of neighbouring labels that occur, up to ``order + 1``.

    Their codes are y_1 L^(n-1) + ... + y_n, ascending.
    """
    position = np.arange(len(gold)) - np.repeat(offsets[:-1], np.diff(offsets))
    codes = gold.astype(np.int64)
    found = []
    for n in range(2, order + 2):
        longer = codes.copy()
        longer[1:] = codes[:-1] * n_labels + gold[1:]
        codes = longer
        found.append(np.unique(codes[position >= n - 1]))
    return found


class StateWeights:
    """Weights of state and edge features laid out for the kernels, in float32; ``complete``: all labels in all rows."""

    def __init__(self, weights: Floats, layout: FeatureLayout, complete: bool, allowed: Allowed | None) -> None:
        L, n = layout.n_labels, len(layout.attributes)
        self.wide = np.zeros(layout.wide_shape, np.float32)
        self.narrow = np.empty(0, np.float32)
        self.narrow_labels = layout.labels[layout.narrow_features]
        if complete:
            self.wide[:, :L] = weights[:n].reshape(-1, L)
        else:
            state = weights[:n].astype(np.float32)
            self.narrow = state[layout.narrow_features]
            self.wide.reshape(-1)[layout.wide_places] = state[layout.wide_features]
        self.edge = weights[n:].astype(np.float32)
        self.start, self.end = np.zeros((2, layout.wide_shape[1]), np.float32)
        if allowed is not None:
            self.start[:L][~allowed.start] = -np.inf
            self.end[:L][~allowed.end] = -np.inf
        self.arrays = self.wide, self.narrow, self.narrow_labels
        self.edge_arrays = layout.edge_ptr, layout.edge_pairs, self.edge


class BeamWeights:
    """A weight vector laid out for the kernels of beams."""

    def __init__(
        self,
        transitions: Floats,
        state: StateWeights,
        layout: FeatureLayout,
        allowed: Allowed | None,
        structure: Structure | None,
    ) -> None:
        self.state, self.structure, self.check = state, structure, True
        if structure is None:
            S = layout.n_labels
            flat = transitions.astype(np.float32)
            if len(flat) < S * S:
                flat = np.zeros(S * S, np.float32)
                flat[layout.transitions] = transitions
            self.log_transition = flat.reshape(S, S)
            if allowed is not None:
                self.log_transition[~allowed.pairs] = -np.inf
            p = chain.chain_potentials(np.zeros((1, 1, S), np.float32), self.log_transition)
            matrix, log_shift = exp_rows(p)
            self.check = not p.mixing
            edges = layout.n_edge_attributes > 0
            self.dense = (matrix, 0.0 if edges else log_shift, self.log_transition)
            return
        s = structure.transitions
        self.log_weights = structure.scores(transitions)
        self.log_start = np.where(s.first, 0, -np.inf).astype(np.float32)
        self.log_end = np.zeros(s.n_states, np.float32)
        if allowed is not None:
            self.log_weights[~allowed.pairs[s.emits[s.sources], s.emits[s.targets]]] = -np.inf
            self.log_start[~allowed.start[s.emits]] = -np.inf
            self.log_end[~allowed.end[s.emits]] = -np.inf
        sparse = SparseChain(
            np.zeros((1, 1, 1), np.float32), s, self.log_weights, self.log_start, self.log_end, np.ones(1, int)
        )
        indptr, targets, transition, log_shift = scaled_weights(sparse)
        ends = scaled(self.log_start, self.log_end)
        self.sparse = (
            s.emits, *ends, self.log_start, self.log_end, indptr, targets, transition, log_shift, self.log_weights,
        )  # fmt: skip


def gradient_vector(
    wide: Floats,
    narrow: Floats,
    counts: Floats,
    edges: Floats,
    layout: FeatureLayout,
    complete: bool,
    structure: Structure | None,
) -> NDArray[np.float64]:
    """What the kernels summed, as one vector in the order of the weights; ``counts`` are those of transitions."""
    n = len(layout.transitions) if structure is None else structure.n_weights
    n_states = len(layout.attributes)
    gradient = np.empty(n + n_states + len(edges))
    if structure is not None:
        gradient[:n] = structure.gather(counts.astype(np.float64, copy=False))
    elif n == counts.size:
        gradient[:n] = counts.reshape(-1)
    else:
        gradient[:n] = counts.reshape(-1)[layout.transitions]
    state = gradient[n : n + n_states]
    if complete:
        state.reshape(-1, layout.n_labels)[:] = wide[:, : layout.n_labels]
    else:
        state[layout.wide_features] = wide.reshape(-1)[layout.wide_places]
        state[layout.narrow_features] = narrow
    gradient[n + n_states :] = edges
    return gradient
