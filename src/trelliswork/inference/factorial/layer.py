"""One layer of a factorial chain: a linear chain whose unary scores change from sweep to sweep."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.chain import chain_potentials
from trelliswork.inference.chain.kernels import (
    forward_backward as kernels,
)
from trelliswork.inference.chain.kernels import (
    log_space as log_kernels,
)
from trelliswork.inference.chain.kernels import (
    viterbi as max_kernels,
)
from trelliswork.inference.chain.layout import exp_transition, limit, pad, panels

Floats = NDArray[np.floating]
Integers = NDArray[np.int64]
compiled: Any = kernels  # mypy cannot see through compiled functions
in_log_space: Any = log_kernels


class Layer:
    """The transitions of a layer, laid out for the kernels of ``inference.chain``; serial, for use inside a thread.

    Rows of unary scores and marginals are padded to whole vectors, Sp labels.
    """

    def __init__(self, log_pairwise: Floats) -> None:
        p = chain_potentials(np.zeros((1, 1, len(log_pairwise)), log_pairwise.dtype), log_pairwise, check_values=False)
        self.n_labels = len(log_pairwise)
        self._log_pairwise = log_pairwise
        self._transition, self._shift = exp_transition(p)
        self._strips = panels(p, self._transition)
        self._strips_t = panels(p, np.ascontiguousarray(self._transition.T))
        self._limit = limit(p)
        filled = pad(p, log_pairwise, -np.inf)
        self._max_strips, self._into = panels(p, filled), np.ascontiguousarray(filled.T)

    def expect(
        self,
        chosen: Integers,
        lengths: Integers,
        log_unary: Floats,
        log_z: NDArray[np.float64],
        safe: NDArray[np.bool_],
        marginals: Floats,
    ) -> None:
        """Fill log Z, marginals and ``safe`` of the chosen sequences (longest first).

        What underflows is not safe; it is computed in log space. An impossible sequence has log Z = -inf and
        marginals 0.
        """
        ones = np.ones(len(lengths), log_unary.dtype)
        safe[chosen] = True
        compiled.forward_backward(
            0, len(chosen), chosen, lengths, log_unary, self._strips, self._strips_t, self._transition, self._shift,
            self._limit, ones, np.zeros(len(lengths), np.int64), log_z, safe, marginals, self._no_counts(),
        )  # fmt: skip
        safe[chosen] &= log_z[chosen] > -np.inf
        if not safe[chosen].all():
            which = chosen[~safe[chosen]]
            log_z[which], nodes, _ = self._in_log_space(which, lengths, log_unary, False)
            marginals[which] = 0
            marginals[which, :, : self.n_labels] = nodes

    def add_counts(
        self,
        lengths: Integers,
        log_unary: Floats,
        safe: NDArray[np.bool_],
        weight: Floats,
        counts: NDArray[np.float64],
    ) -> None:
        """counts (S, S) += weighted expected transitions of all sequences, ``safe`` as ``expect`` left it."""
        chosen = np.flatnonzero(safe)
        chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
        nothing = np.empty((0, *log_unary.shape[1:]), log_unary.dtype)
        compiled.forward_backward(
            0, len(chosen), chosen, lengths, log_unary, self._strips, self._strips_t, self._transition, self._shift,
            self._limit, weight, np.zeros(len(lengths), np.int64), np.empty(len(lengths)), safe.copy(), nothing,
            counts[None],
        )  # fmt: skip
        which = np.flatnonzero(~safe)
        if len(which):
            _, _, sums = self._in_log_space(which, lengths, log_unary, True)
            counts += np.tensordot(weight[which].astype(np.float64), sums, 1)

    def best(self, lengths: Integers, log_unary: Floats) -> tuple[Integers, NDArray[np.float64]]:
        """Viterbi: labels (B, T), -1 in the padding, and scores (B,)."""
        order = np.argsort(-lengths, kind="stable")
        labels, scores = np.full(log_unary.shape[:2], -1, np.int64), np.empty(len(lengths))
        kernel: Any = max_kernels.viterbi
        kernel(0, len(order), order, lengths, log_unary, self._max_strips, self._into, labels, scores)
        return labels, scores

    def _no_counts(self) -> NDArray[np.float64]:
        return np.empty((0, self.n_labels, self.n_labels))

    def _in_log_space(
        self, which: Integers, lengths: Integers, log_unary: Floats, counts: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """log Z (n,), marginals (n, T, S) and transition counts (n or 0, S, S) of a few sequences."""
        S, n = self.n_labels, len(which)
        unary = log_unary[which, :, :S].astype(np.float64)
        matrix = self._log_pairwise.astype(np.float64)[None]
        log_z, log_alpha, nodes = np.empty(n), np.full(unary.shape, -np.inf), np.zeros(unary.shape)
        sums = np.zeros((n if counts else 0, S, S))
        in_log_space.forward(0, n, lengths[which], unary, matrix, 0, 0, log_alpha, log_z)
        in_log_space.backward(
            0, n, lengths[which], unary, matrix, 0, 0, log_alpha, log_z, nodes, np.empty((0, 0, S, S)), sums
        )
        return log_z, nodes, sums
