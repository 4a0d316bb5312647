r"""What lies outside held beams while a CRF is trained: a state of each token, and the features expected there.

A beam that is held leaves out states that each have little probability, but are many: trained without them, weights
fall until these states have most of it. So one exact pass at the weights :math:`w_0` where states are chosen tells

- for each token one more state that stands for all states outside (``beam_rest_kernels``), and
- for each weight k the counts :math:`r_k` that are expected of states and pairs outside.

.. math:: f(w) \approx \sum_n \alpha_n \big(\log Z_{n, I + \mathrm{rest}}(w) - \mathrm{score}_n(w)\big)
          + c_2 \lVert w \rVert^2

Value and gradient are exact at :math:`w_0`; how the rest answers to other weights is the matter of ``beam_response``.
Where a search that chooses again and again comes to rest, the exact gradient is zero: the sets only tell how far it
gets between two choices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import BeamSets, Rule
from trelliswork.inference.chain.layout import exp_transition
from trelliswork.models.crf.beams.choice import choose
from trelliswork.models.crf.beams.layout import BeamWeights
from trelliswork.models.crf.kernels import beam_rest as beam_rest_kernels
from trelliswork.models.crf.kernels import objective as crf_kernels
from trelliswork.models.crf.layout import FeatureLayout, Floats, Ids, ScoredTokens, counting

compiled: Any = beam_rest_kernels  # mypy cannot count starred arguments
compiled_scores: Any = crf_kernels
BATCH_SCORES = 1 << 23  # of states, whose posterior is computed together
LEAST_WEIGHT = 1e-20  # of a sentence, so that it can be divided by


class Rest(NamedTuple):
    """The scores of what is outside, as the kernels take them; all empty: left out.

    Attributes
    ----------
    into, out_of : ndarray (n_entries,)
        For each state of the sets: from it into the rest of the next token, from the rest of the token before into it.
    stay, log_scale : ndarray (n_tokens,)
        From rest to rest; the score of being there.
    """

    into: NDArray[np.float32]
    out_of: NDArray[np.float32]
    stay: NDArray[np.float32]
    log_scale: NDArray[np.float32]

    @classmethod
    def none(cls) -> "Rest":
        """Left out."""
        return cls(*(np.empty(0, np.float32) for _ in cls._fields))

    @classmethod
    def joined(cls, parts: "list[Rest]") -> "Rest":
        """Those of several batches, one after the other."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


class Gradients(NamedTuple):
    """Expected minus observed features, as the kernels sum them."""

    wide: NDArray[np.float32]
    narrow: NDArray[np.float32]
    counts: NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """What an exact pass found: the sets of a rule, the share of probability they keep, the rest, the gradient."""

    sets: BeamSets
    kept: NDArray[np.float64]
    rest: Rest
    gradients: Gradients


@dataclass(frozen=True)
class ExactPass:
    """Sentences, longest first, with their labels and weights.

    One pass takes O(entries + tokens S^2) time, as an exact evaluation does.
    """

    tokens: ScoredTokens
    gold: Ids
    alpha: NDArray[np.float32]
    layout: FeatureLayout

    def choose(self, w: BeamWeights, rule: Rule) -> tuple[BeamSets, NDArray[np.float64]]:
        """Sets by exact probabilities, and the share of each token's probability that they keep."""
        found = []
        for _, at, p in self._batches(w):
            marginals = chain.expectations(p)[1].marginals
            assert marginals is not None
            found.append(self._chosen(marginals[_inside(p)], at, rule))
        return _joined(found)

    def run(self, w: BeamWeights, rule: Rule) -> Chosen:
        """The same, with what is outside and the exact gradient."""
        layout, S = self.layout, self.layout.n_labels
        total = Gradients(
            np.zeros(layout.wide_shape, np.float32),
            np.zeros(len(layout.narrow_features), np.float32),
            np.zeros((S, S)),
        )
        found, rests = [], []
        for sentences, at, p in self._batches(w):
            weight = np.maximum(self.alpha[sentences], np.float32(LEAST_WEIGHT))
            forward = chain.forward(p)
            marginals = chain.backward(forward, weights=weight).marginals
            assert marginals is not None
            masses = marginals[_inside(p)]
            found.append(self._chosen(masses, at, rule))
            rests.append(self._rest(p, forward, marginals, weight, found[-1][0]))
            total.counts[...] += chain.pair_counts(forward, marginals, weight)
            self._add(total, masses, sentences, at, w)
        return Chosen(*_joined(found), Rest.joined(rests), total)

    def _chosen(self, masses: Floats, at: slice, rule: Rule) -> tuple[BeamSets, NDArray[np.float64]]:
        n, S = masses.shape
        everything = np.arange(n + 1) * S, np.empty(0, np.int32), masses.reshape(-1).astype(np.float32, copy=False)
        return choose(*everything, self.gold[at], rule, S)

    def _batches(self, w: BeamWeights) -> Iterator[tuple[slice, slice, chain.Potentials]]:
        """Sentences that fit together, their tokens, and their potentials."""
        S, lengths, offsets = self.layout.n_labels, np.diff(self.tokens.offsets), self.tokens.offsets
        first = 0
        while first < len(lengths):  # longest first, so that batches have little padding
            last = min(len(lengths), first + max(1, BATCH_SCORES // (S * int(lengths[first]))))
            size, at = lengths[first:last], slice(int(offsets[first]), int(offsets[last]))
            unary = np.zeros((len(size), int(size.max()), S), np.float32)
            unary[np.arange(unary.shape[1]) < size[:, None]] = self._scores(w, at.start, at.stop)[:, :S]
            unary[:, 0] += w.state.start[:S]
            unary[np.arange(len(size)), size - 1] += w.state.end[:S]
            yield slice(first, last), at, chain.chain_potentials(unary, w.log_transition, size, check_values=False)
            first = last

    def _scores(self, w: BeamWeights, first: int, last: int) -> NDArray[np.float32]:
        """Scores (n, whole vectors) of the labels at tokens ``first`` to ``last``."""
        width = w.state.wide.shape[1]
        out = np.empty((last - first, width), np.float32)

        def work(start: int, stop: int) -> None:
            given = (*self.tokens.arrays, *w.state.arrays, self.layout.n_labels)
            compiled_scores.scores(first + start, first + stop, *given, out, start * width)

        threads.run(work, threads.cut(np.ones(len(out), np.int64), least=max(1, threads.LEAST_WORK // width)))
        return out

    def _rest(
        self, p: chain.Potentials, forward: chain.Forward, marginals: Floats, weight: Floats, sets: BeamSets
    ) -> Rest:
        n_entries, n_tokens = len(sets.states), len(sets.ptr) - 1
        out = Rest(*(np.zeros(n, np.float32) for n in (n_entries, n_entries, n_tokens, n_tokens)))
        matrix, shift = exp_transition(p)
        offsets, top = np.concatenate([[0], np.cumsum(p.lengths)]), p.log_unary.max(axis=2)
        threads.run(
            lambda start, stop: compiled.rest(
                start, stop, offsets, *sets, forward.safe, weight, forward.alpha, forward.emission, forward.scale,
                top, marginals, matrix, shift, *out,
            ),
            threads.cut(p.lengths),
        )  # fmt: skip
        return out

    def _add(self, total: Gradients, masses: Floats, sentences: slice, at: slice, w: BeamWeights) -> None:
        """Expected state features of some sentences, by their weighted ``masses``, and observed features of all."""
        n, gold = len(masses), self.gold[at]
        residual = np.zeros((n, self.layout.wide_shape[1]), np.float32)
        residual[:, : self.layout.n_labels] = masses
        sizes = np.diff(self.tokens.offsets[sentences.start : sentences.stop + 1])
        weight = np.repeat(self.alpha[sentences], sizes)
        residual[np.arange(n), gold] -= weight
        compiled_scores.scatter(
            at.start, at.stop, residual, 0, *self.tokens.arrays, w.state.narrow_labels, total.wide, total.narrow
        )
        to = np.flatnonzero(counting(sizes))  # the first of a sentence has no pair
        np.subtract.at(total.counts, (gold[to - 1], gold[to]), weight[to])


def _inside(p: chain.Potentials) -> NDArray[np.bool_]:
    """(B, T): whether a position is one of its sentence."""
    return np.arange(p.log_unary.shape[1]) < p.lengths[:, None]


def _joined(parts: list[tuple[BeamSets, NDArray[np.float64]]]) -> tuple[BeamSets, NDArray[np.float64]]:
    """Sets and shares of batches, one after the other."""
    sizes = np.concatenate([np.diff(sets.ptr) for sets, _ in parts])
    states = np.concatenate([sets.states for sets, _ in parts])
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), states), np.concatenate([kept for _, kept in parts])
