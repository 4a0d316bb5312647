"""One layer of a factorial chain: a linear chain whose unary scores change from sweep to sweep."""

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.chain import chain_potentials
from trelliswork.inference.chain.kernels import forward_backward, viterbi
from trelliswork.inference.chain.kernels.records import Chains, Outputs
from trelliswork.inference.chain.passes import log_expectations

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Integers = NDArray[np.int64]


class Layer:
    """Transitions of a layer, laid out for the kernels of ``inference.chain``; serial, for use inside a thread.

    Rows of unary scores and marginals are padded to whole vectors, Sp labels.
    """

    def __init__(self, log_pairwise: Floats) -> None:
        p = chain_potentials(np.zeros((1, 1, len(log_pairwise)), log_pairwise.dtype), log_pairwise, check_values=False)
        self.n_labels = len(log_pairwise)
        self._log_pairwise = np.ascontiguousarray(log_pairwise)
        self._transitions = p.transitions

    def expect(
        self,
        chosen: Integers,
        lengths: Integers,
        log_unary: Floats,
        log_z: Doubles,
        safe: NDArray[np.bool_],
        marginals: Floats,
    ) -> None:
        """Fill log Z, marginals and ``safe`` of the chosen sequences (longest first).

        Sequences that underflow are marked as not safe and computed in log space. An impossible sequence has
        log Z = -inf and marginals of 0.
        """
        S, ones = self.n_labels, np.ones(len(lengths), log_unary.dtype)
        safe[chosen] = True
        chains = Chains(chosen, lengths, log_unary)
        out = Outputs(ones, np.zeros(len(lengths), np.int64), marginals, np.empty((0, S, S)))
        forward_backward.forward_backward(0, len(chosen), chains, self._transitions, log_z, safe, out)
        safe[chosen] &= log_z[chosen] > -np.inf
        if not safe[chosen].all():
            which = chosen[~safe[chosen]]
            log_z[which], nodes, _ = log_space_expectations(
                lengths[which], log_unary[which, :, :S], self._log_pairwise, counts=False
            )
            marginals[which] = 0
            marginals[which, :, :S] = nodes

    def add_counts(
        self, lengths: Integers, log_unary: Floats, safe: NDArray[np.bool_], weight: Floats, counts: Doubles
    ) -> None:
        """Add the weighted expected transitions of all sequences to counts (S, S); ``safe`` comes from ``expect``."""
        chosen = np.flatnonzero(safe)
        chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
        nothing = np.empty((0, *log_unary.shape[1:]), log_unary.dtype)
        chains, log_z = Chains(chosen, lengths, log_unary), np.empty(len(lengths))
        out = Outputs(weight, np.zeros(len(lengths), np.int64), nothing, counts[None])
        forward_backward.forward_backward(0, len(chosen), chains, self._transitions, log_z, safe.copy(), out)
        which = np.flatnonzero(~safe)
        if len(which):
            unary = log_unary[which, :, : self.n_labels]
            _, _, sums = log_space_expectations(lengths[which], unary, self._log_pairwise, counts=True)
            counts += np.tensordot(weight[which].astype(np.float64), sums, 1)

    def best(self, lengths: Integers, log_unary: Floats) -> tuple[Integers, Doubles]:
        """Return the best labels (B, T), -1 in the padding, and their scores (B,)."""
        order = np.argsort(-lengths, kind="stable")
        labels, scores = np.empty(log_unary.shape[:2], np.int64), np.empty(len(lengths))
        chains = Chains(order, lengths, log_unary)
        viterbi.viterbi(0, len(order), chains, self._log_pairwise[None], labels, scores)
        return labels, scores


def log_space_expectations(
    lengths: Integers, log_unary: Floats, log_pairwise: Floats, *, counts: bool
) -> tuple[Doubles, Doubles, Doubles]:
    """Return log Z (n,), marginals (n, T, S) and transition counts (n or 0, S, S) of chains, computed in log space."""
    chains = chain_potentials(
        log_unary.astype(np.float64), log_pairwise.astype(np.float64), lengths, check_values=False
    )
    log_z, (nodes, _, sums) = log_expectations(chains, counts=counts)
    return log_z, nodes, sums
