"""Label n-grams of a CRF of higher order, and rules: sparse transitions between states, and their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.automata import Automaton
from trelliswork.inference.chain.beam.sparse import SparseChain, SparseTransitions
from trelliswork.inference.chain.product import product
from trelliswork.models.crf.layout import Floats

Codes = NDArray[np.int64]
MOST_STATES = 1 << 20  # of n-grams: each has one transition per label


@dataclass(frozen=True)
class Structure:
    """Sparse transitions and their weights.

    They are the first ``n_weights`` numbers of the weight vector; the state features of the layout, which has no
    transitions of its own, follow. The score of an entry is the sum of K weights, which entries may share.
    """

    transitions: SparseTransitions
    weight_ids: NDArray[np.int64]  # (K, n_entries), -1 for none
    n_weights: int
    grams: tuple[Codes, ...] = ()  # codes of the pairs, triples, ... that have a weight, in the order of the weights
    last: NDArray[np.bool_] | None = None  # (S,) possible last states; all

    def under(self, automaton: Automaton) -> "Structure":
        """Return the structure of the labelings that an automaton accepts, with the same weights."""
        s = self.transitions
        entries, start = np.arange(len(s.targets), dtype=np.float64), np.where(s.first, 0, -np.inf)
        unary, lengths = np.zeros((1, 1, s.n_labels)), np.ones(1, np.int64)
        whole = SparseChain(unary, s, entries, start, np.zeros(s.n_states), lengths)
        made: Any = product(whole, automaton)[0]
        ids = self.weight_ids[:, made.log_weights.astype(np.int64)]
        return replace(self, transitions=made.transitions, weight_ids=ids, last=made.log_end == 0)

    @classmethod
    def ngrams(cls, n_labels: int, grams: Sequence[NDArray[np.int64]]) -> "Structure":
        """Return a structure with one weight per n-gram; states hold one label less than the longest n-gram.

        ``grams`` are the codes of pairs of labels, triples, and so on (``observed_ngrams``), ascending. A transition is
        scored by all n-grams that end with it.
        """
        L, order = n_labels, len(grams)
        if L**order > MOST_STATES:
            raise ValueRangeError(
                f"order={order} with {L} labels has {L**order:,} states, more than the limit of {MOST_STATES:,}: "
                "use a lower order."
            )
        for n, codes in enumerate(grams, start=2):
            if len(codes) and (codes[0] < 0 or codes[-1] >= L**n or (np.diff(codes) <= 0).any()):
                raise ValueRangeError(f"codes of {n}-grams must be ascending and between 0 and {L**n - 1}.")
        transitions = SparseTransitions.ngrams(L, order)
        # The number of a state that holds k labels is their code plus the number of states with fewer labels.
        base = np.cumsum([0] + [L**k for k in range(1, order + 1)])
        seen = np.searchsorted(base, transitions.sources, side="right")
        history = transitions.sources - base[seen - 1]
        ids, first = np.full((order, len(transitions.targets)), -1), 0
        for k, codes in enumerate(grams):  # n-grams of k + 2 labels: k + 1 before the last
            keys = (history % L ** (k + 1)) * L + transitions.emits[transitions.targets]
            at = np.minimum(np.searchsorted(codes, keys), max(len(codes) - 1, 0))
            hit = (codes[at] == keys if len(codes) else np.zeros(len(keys), bool)) & (seen > k)
            ids[k, hit] = first + at[hit]
            first += len(codes)
        return cls(transitions, ids, first, tuple(grams))

    def scores(self, weights: Floats) -> NDArray[np.float32]:
        """Return the scores (n_entries,) of the transitions."""
        padded = np.append(weights, 0).astype(np.float32)  # index -1 is the last
        total = padded[self.weight_ids[0]]
        for ids in self.weight_ids[1:]:
            total += padded[ids]
        return total

    def gather(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the counts of the entries summed by weight, (n_weights,)."""
        total = np.zeros(self.n_weights + 1)
        for ids in self.weight_ids:
            total += np.bincount(ids + 1, counts, minlength=self.n_weights + 1)
        return total[1:]


def observed_ngrams(gold: NDArray[np.integer], offsets: NDArray[np.integer], n_labels: int, order: int) -> list[Codes]:
    """Return the codes of the pairs, triples, ... of neighboring labels that occur, up to ``order + 1`` labels.

    A code is y_1 L^(n-1) + ... + y_n; codes are ascending.
    """
    position = np.arange(len(gold)) - np.repeat(offsets[:-1], np.diff(offsets))
    codes = gold.astype(np.int64)
    grams = []
    for n in range(2, order + 2):
        longer = codes.copy()
        longer[1:] = codes[:-1] * n_labels + gold[1:]
        codes = longer
        grams.append(np.unique(codes[position >= n - 1]))
    return grams
