"""What the weights of a CRF trained within beams stand for, and how they lie in memory for the kernels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference import chain
from trelliswork.inference.chain.beam_passes import exp_rows, scaled, scaled_weights
from trelliswork.inference.chain.beam_sparse import SparseChain, SparseTransitions
from trelliswork.learning.crf_layout import Allowed, FeatureLayout, Floats


@dataclass(frozen=True)
class Structure:
    """Sparse transitions with weights: entry k of ``transitions`` has the weight ``weight_ids[k]`` of the first
    ``n_weights`` numbers of the weight vector. Entries may share a weight. The state features of the layout follow; it
    has no transitions of its own.
    """

    transitions: SparseTransitions
    weight_ids: NDArray[np.int64]
    n_weights: int

    @classmethod
    def free(cls, transitions: SparseTransitions) -> "Structure":
        """A weight for each entry."""
        n = len(transitions.targets)
        return cls(transitions, np.arange(n), n)


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
        self.log_weights = transitions.astype(np.float32)[structure.weight_ids]
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
