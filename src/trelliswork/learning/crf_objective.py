r"""The objective of linear-chain CRFs on sparse attributes.

.. math:: f(w) = \sum_n \alpha_n \big(\log Z_n(w) - \mathrm{score}_n(y_n; w)\big) + c_2 \lVert w \rVert^2

Its gradient is expected minus observed feature counts plus :math:`2 c_2 w` (paper 1, section 0.1).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain, threads
from trelliswork.inference.chain import crf_kernels
from trelliswork.inference.chain.layout import exp_transition, limit, panels, whole_vectors
from trelliswork.learning.vector_kernels import dot

Ids = NDArray[np.int32]
Floats = NDArray[np.floating]
WIDE = 3  # an attribute seen with so many labels gets a dense row
compiled: Any = crf_kernels  # mypy cannot count starred arguments
SLOTS = 4  # gradients that are summed apart; as many threads can work at once, and results do not depend on them


@dataclass(frozen=True)
class FeatureLayout:
    """Which (attribute, label) and (label, label) pairs have a weight, and where it stands.

    The weight vector holds first the transitions, then the state features in the order of their attributes.

    Attributes
    ----------
    n_labels, n_attributes : int
    transitions : ndarray (n,)
        Flat indices into (S, S).
    attributes, labels : ndarray (n,)
        Attribute and label of each state feature, sorted by attribute, then label.
    """

    n_labels: int
    n_attributes: int
    transitions: NDArray[np.int64]
    attributes: Ids
    labels: NDArray[np.int16]

    def check(self) -> None:
        """Refuse indices out of range, as a damaged file may hold."""
        for name, values, size in (
            ("transitions", self.transitions, self.n_labels**2),
            ("attributes", self.attributes, self.n_attributes),
            ("labels", self.labels, self.n_labels),
        ):
            if len(values) and (values.min() < 0 or values.max() >= size):
                raise ValueRangeError(f"{name} of the features must lie between 0 and {size - 1}: the file is damaged.")

    @property
    def n_features(self) -> int:
        """Length of the weight vector."""
        return len(self.transitions) + len(self.attributes)

    @cached_property
    def attribute_ptr(self) -> NDArray[np.int64]:
        """(n_attributes + 1,): attribute a has state features ``attribute_ptr[a]`` to ``attribute_ptr[a + 1]``."""
        return np.searchsorted(self.attributes, np.arange(self.n_attributes + 1))

    @cached_property
    def wide_rows(self) -> Ids:
        """(n_attributes,): the dense row of an attribute, -1 if it has none."""
        is_wide = np.diff(self.attribute_ptr) >= WIDE
        return np.where(is_wide, np.cumsum(is_wide) - 1, -1).astype(np.int32)

    @cached_property
    def wide_features(self) -> NDArray[np.int64]:
        """State features that stand in dense rows."""
        return np.flatnonzero(self.wide_rows[self.attributes] >= 0)

    @cached_property
    def narrow_features(self) -> NDArray[np.int64]:
        """State features that stand alone."""
        return np.flatnonzero(self.wide_rows[self.attributes] < 0)

    @cached_property
    def wide_shape(self) -> tuple[int, int]:
        """Number and width of the dense rows; the width is a whole number of vectors."""
        return int(self.wide_rows.max(initial=-1)) + 1, whole_vectors(self.n_labels, np.float32)

    @cached_property
    def wide_places(self) -> NDArray[np.int64]:
        """Flat index of each of ``wide_features`` in the dense rows."""
        rows = self.wide_rows[self.attributes[self.wide_features]].astype(np.int64)
        return rows * self.wide_shape[1] + self.labels[self.wide_features]

    @classmethod
    def all_pairs(cls, n_attributes: int, n_labels: int) -> "FeatureLayout":
        """Every label with every attribute and every label."""
        return cls(
            n_labels,
            n_attributes,
            np.arange(n_labels**2),
            np.repeat(np.arange(n_attributes, dtype=np.int32), n_labels),
            np.tile(np.arange(n_labels, dtype=np.int16), n_attributes),
        )

    @classmethod
    def observed(cls, tokens: "Tokens", gold: Ids, n_attributes: int, n_labels: int) -> "FeatureLayout":
        """Only the pairs that occur in training data, as CRFsuite does by default."""
        per_token = np.diff(tokens.token_ptr)
        keys = tokens.ids.astype(np.int64) * n_labels + np.repeat(gold.astype(np.int64), per_token)
        seen = _distinct(keys, n_attributes * n_labels)
        inside = np.ones(len(gold), bool)
        inside[tokens.offsets[:-1]] = False
        following = np.flatnonzero(inside)
        pairs = gold[following - 1].astype(np.int64) * n_labels + gold[following]
        return cls(
            n_labels,
            n_attributes,
            np.unique(pairs),
            (seen // n_labels).astype(np.int32),
            (seen % n_labels).astype(np.int16),
        )


@dataclass(frozen=True)
class Tokens:
    """Attributes of tokens in compressed rows (what ``features.Attributes`` holds), as plain arrays."""

    offsets: NDArray[np.int64]
    token_ptr: NDArray[np.int64]
    ids: Ids
    values: NDArray[np.float32] | None = None

    def take(self, which: NDArray[np.int64], lengths: NDArray[np.int64]) -> "Tokens":
        """These tokens in this order, cut into sentences of these lengths."""
        n_each = np.diff(self.token_ptr)[which]
        entry = np.repeat(self.token_ptr[which], n_each) + _counting(n_each)
        return Tokens(
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([[0], np.cumsum(n_each)]),
            self.ids[entry],
            None if self.values is None else self.values[entry],
        )


class ScoredTokens:
    """Tokens split by layout: dense rows and single weights of each, ready for the kernels."""

    def __init__(self, tokens: Tokens, layout: FeatureLayout) -> None:
        self.offsets = tokens.offsets
        n_tokens = len(tokens.token_ptr) - 1
        token = np.repeat(np.arange(n_tokens), np.diff(tokens.token_ptr))
        rows = layout.wide_rows[tokens.ids]
        wide = rows >= 0
        self.wide_ids = rows[wide]
        self.wide_ptr = _pointers(token[wide], n_tokens)
        self.wide_values = _values(tokens.values, wide)
        # The others: each occurrence of an attribute becomes one entry for each label it has a weight with.
        start, stop = layout.attribute_ptr[tokens.ids[~wide]], layout.attribute_ptr[tokens.ids[~wide] + 1]
        n_each = stop - start
        number = np.full(len(layout.attributes), -1, np.int32)
        number[layout.narrow_features] = np.arange(len(layout.narrow_features))
        self.narrow_ids = number[np.repeat(start, n_each) + _counting(n_each)]
        self.narrow_ptr = _pointers(np.repeat(token[~wide], n_each), n_tokens)
        narrow_values = _values(tokens.values, ~wide)
        self.narrow_values = np.repeat(narrow_values, n_each) if len(narrow_values) else narrow_values

    @property
    def arrays(self) -> Any:
        """A tuple of arrays in the order of the kernels' arguments."""
        return (
            self.wide_ptr, self.wide_ids, self.wide_values, self.narrow_ptr, self.narrow_ids, self.narrow_values,
        )  # fmt: skip


class Allowed(NamedTuple):
    """Label pairs (S, S), first labels (S,) and last labels (S,) that may occur."""

    pairs: NDArray[np.bool_]
    start: NDArray[np.bool_]
    end: NDArray[np.bool_]


class ChainWeights:
    """A weight vector laid out for the kernels, in float32; -inf for what is not allowed."""

    def __init__(self, weights: Floats, layout: FeatureLayout, allowed: Allowed | None = None) -> None:
        S = layout.n_labels
        n_transitions = len(layout.transitions)
        log_transition = np.zeros(S * S, np.float32)
        log_transition[layout.transitions] = weights[:n_transitions]
        if allowed is not None:
            log_transition[~allowed.pairs.reshape(-1)] = -np.inf
        self.log_transition = log_transition.reshape(S, S)
        self.potentials = chain.chain_potentials(np.zeros((1, 1, S), np.float32), self.log_transition)
        state = weights[n_transitions:].astype(np.float32)
        self.narrow = state[layout.narrow_features]
        self.narrow_labels = layout.labels[layout.narrow_features]
        self.start, self.end = np.zeros((2, layout.wide_shape[1]), np.float32)
        if allowed is not None:
            self.start[:S][~allowed.start] = -np.inf
            self.end[:S][~allowed.end] = -np.inf
        self.wide = np.zeros(layout.wide_shape, np.float32)
        self.wide.reshape(-1)[layout.wide_places] = state[layout.wide_features]

    @property
    def arrays(self) -> Any:
        """A tuple of arrays in the order of the kernels' arguments."""
        return self.wide, self.narrow, self.narrow_labels


class ChainObjective:
    """Penalised negative log-likelihood of labelled sentences and its gradient.

    Parameters
    ----------
    tokens : Tokens
    gold : ndarray of int32 (n_tokens,)
        Label ids.
    layout : FeatureLayout
    l2 : float
        c_2 above.
    weights : ndarray (n_sentences,), optional
        alpha_n above.
    allowed : Allowed, optional
        What may occur; everything by default.

    Notes
    -----
    One evaluation takes O(entries + tokens S^2) time. Inner sums are float32, sums over the corpus of losses and
    transitions float64.
    """

    def __init__(
        self,
        tokens: Tokens,
        gold: Ids,
        layout: FeatureLayout,
        *,
        l2: float = 0.0,
        weights: Floats | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        self.layout, self.l2, self.allowed = layout, l2, allowed
        lengths = np.diff(tokens.offsets)
        if lengths.min(initial=1) < 1:
            raise ValueRangeError(f"sentence {int(lengths.argmin())} is empty: leave it out.")
        # Longest first, in memory too: sentences that advance together lie side by side.
        order = np.argsort(-lengths, kind="stable")
        which = np.repeat(tokens.offsets[order], lengths[order]) + _counting(lengths[order])
        self.tokens = ScoredTokens(tokens.take(which, lengths[order]), layout)
        self.gold = np.ascontiguousarray(gold[which], np.int32)
        self.weights = np.ones(len(lengths), np.float32)
        if weights is not None:
            self.weights[:] = np.asarray(weights)[order]
        self._ranges = threads.cut(lengths[order], multiple=crf_kernels.ROWS, most=SLOTS)
        # Kept from one evaluation to the next: fresh memory costs more than clearing it.
        self._wide_gradient = np.empty((len(self._ranges), *layout.wide_shape), np.float32)
        self._narrow_gradient = np.empty((len(self._ranges), len(layout.narrow_features)), np.float32)
        self.n_features = layout.n_features

    def __call__(self, weights: Floats) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at a weight vector."""
        w = ChainWeights(weights, self.layout, self.allowed)
        S, p = self.layout.n_labels, w.potentials
        transition, shift = exp_transition(p)
        strips, strips_t = panels(p, transition), panels(p, np.ascontiguousarray(transition.T))
        wide_gradient, narrow_gradient = self._wide_gradient, self._narrow_gradient
        counts = np.zeros((len(self._ranges), 1, S, S))
        loss, safe = np.zeros(len(self.weights)), np.ones(len(self.weights), bool)
        slot = {start: k for k, (start, _) in enumerate(self._ranges)}

        def work(start: int, stop: int) -> None:
            k = slot[start]
            wide_gradient[k] = 0
            narrow_gradient[k] = 0
            compiled.loss_gradient(
                start, stop, self.tokens.offsets, self.gold, self.weights, *self.tokens.arrays, *w.arrays,
                w.start, w.end, S, transition, strips, strips_t, shift, limit(p), not p.mixing, w.log_transition,
                wide_gradient[k], narrow_gradient[k], counts[k], loss, safe,
            )  # fmt: skip

        threads.run(work, self._ranges)
        for s in np.flatnonzero(~safe):
            self._in_log_space(int(s), w, wide_gradient[0], narrow_gradient[0], counts[0, 0], loss)
        gradient = self._gather(wide_gradient, narrow_gradient, counts[:, 0].sum(axis=0))
        value = float(loss.sum())
        if self.l2:
            value += self.l2 * dot(weights, weights)
            gradient += 2 * self.l2 * weights
        return value, gradient

    def _gather(self, wide: Floats, narrow: Floats, counts: Floats) -> NDArray[np.float64]:
        """The gradient as one vector in the order of the layout."""
        layout = self.layout
        gradient = np.empty(layout.n_features)
        gradient[: len(layout.transitions)] = counts.reshape(-1)[layout.transitions]
        state = gradient[len(layout.transitions) :]
        state[layout.wide_features] = wide.sum(axis=0).reshape(-1)[layout.wide_places]
        state[layout.narrow_features] = narrow.sum(axis=0)
        return gradient

    def _in_log_space(
        self, s: int, w: ChainWeights, wide: Floats, narrow: Floats, counts: Floats, loss: NDArray[np.float64]
    ) -> None:
        """Loss and gradient of one sentence that underflows in probability space."""
        start, stop = self.tokens.offsets[s], self.tokens.offsets[s + 1]
        S, gold = self.layout.n_labels, self.gold[start:stop]
        out = np.empty((stop - start, w.wide.shape[1]), np.float32)
        compiled.scores(start, stop, *self.tokens.arrays, *w.arrays, S, out, 0)
        out[0] += w.start
        out[-1] += w.end
        p = chain.chain_potentials(out[None, :, :S], w.log_transition)
        log_z, found = chain.expectations(p, counts=True)
        weight = float(self.weights[s])
        loss[s] = weight * (log_z[0] - chain.score(p, gold[None].astype(np.int64))[0])
        residual = np.zeros((stop - start, w.wide.shape[1]), np.float32)
        assert found.marginals is not None
        assert found.counts is not None
        residual[:, :S] = weight * found.marginals[0]
        residual[np.arange(stop - start), gold] -= weight
        counts += weight * found.counts[0]
        np.subtract.at(counts, (gold[:-1], gold[1:]), weight)
        compiled.scatter(start, stop, residual, 0, *self.tokens.arrays, w.narrow_labels, wide, narrow)


def _distinct(keys: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """The distinct keys below n, sorted; by marking them where that takes less than a gigabyte."""
    if n > 1 << 30:
        return np.unique(keys)
    marks = np.zeros(n, bool)
    marks[keys] = True
    return np.flatnonzero(marks)


def _pointers(token: NDArray[np.int64], n_tokens: int) -> NDArray[np.int64]:
    """Where each token's entries begin, from the sorted token of each entry."""
    return np.concatenate([[0], np.cumsum(np.bincount(token, minlength=n_tokens))]).astype(np.int64)


def _counting(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ..., lengths[0]-1, 0, 1, ..., lengths[1]-1, ..."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _values(values: NDArray[np.float32] | None, which: NDArray[np.bool_]) -> NDArray[np.float32]:
    return np.empty(0, np.float32) if values is None else values[which]
