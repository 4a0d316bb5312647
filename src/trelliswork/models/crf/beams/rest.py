r"""The states outside held beams while a CRF is trained: one more state per token, and its expected features.

A held beam leaves out states that each have little probability, but are many: trained without them, weights fall until
these states have most of the probability. So one exact pass at the weights :math:`w_0` where states are chosen computes

- for each token one more state that represents all states outside (``kernels.beam_rest``), and
- for each weight k the expected counts :math:`r_k` of states and pairs outside.

.. math:: f(w) \approx \sum_n \alpha_n \big(\log Z_{n, I + \mathrm{rest}}(w) - \mathrm{score}_n(w)\big)
          + c_2 \lVert w \rVert^2

Value and gradient are exact at :math:`w_0`; ``response`` describes how the rest depends on other weights. At a fixed
point of repeated choices the exact gradient is zero: the sets only determine how far a search gets between two choices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.padding import batches, pad, unpad
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import BeamSets, Rule
from trelliswork.inference.chain.beam.kernels.select import BeamRows
from trelliswork.models.crf.beams.choice import choose
from trelliswork.models.crf.kernels import beam_rest, objective
from trelliswork.models.crf.kernels.beam_rest import Pass
from trelliswork.models.crf.kernels.beams import BeamGradient
from trelliswork.models.crf.kernels.held_beams import Rest
from trelliswork.models.crf.layout import ChainWeights, FeatureLayout, Floats, Ids, ScoredTokens, counting
from trelliswork.models.crf.objective import GradientSums

BATCH_SCORES = 1 << 23  # scores of states in one batch
LEAST_WEIGHT = 1e-20  # of a sentence: results are divided by it
NO_REST = Rest(*(np.empty(0, np.float32) for _ in Rest._fields))


class Chosen(NamedTuple):
    """Result of an exact pass: the chosen sets, the share of probability they keep, the rest, the gradient."""

    sets: BeamSets
    kept: NDArray[np.float64]
    rest: Rest
    gradient: GradientSums


@dataclass(frozen=True)
class ExactPass:
    """Sentences, longest first, with their labels and weights.

    One pass takes O(entries + tokens S^2) time, the same as an exact evaluation.
    """

    tokens: ScoredTokens
    gold: Ids
    alpha: NDArray[np.float32]
    layout: FeatureLayout

    def choose(self, w: ChainWeights, rule: Rule) -> tuple[BeamSets, NDArray[np.float64]]:
        """Return the sets by exact probabilities, and the share of each token's probability that they keep."""
        chosen = []
        for _, at, p in self._batches(w):
            marginals = chain.expectations(p)[1].marginals
            assert marginals is not None
            chosen.append(self._choose(unpad(marginals, p.lengths), at, rule))
        return _joined(chosen)

    def run(self, w: ChainWeights, rule: Rule) -> Chosen:
        """Return the same with the rest and the exact gradient."""
        gradient = GradientSums(1, self.layout, (self.layout.n_labels,) * 2)
        gradient.clear(0)
        chosen, rests = [], [NO_REST]
        for sentences, at, p in self._batches(w):
            weight = np.maximum(self.alpha[sentences], np.float32(LEAST_WEIGHT))
            forward = chain.forward(p)
            marginals = chain.backward(forward, weights=weight).marginals
            assert marginals is not None
            masses = unpad(marginals, p.lengths)
            chosen.append(self._choose(masses, at, rule))
            rests.append(self._rest(p, forward, marginals, weight, chosen[-1][0]))
            gradient.slot(0).counts[...] += chain.pair_counts(forward, marginals, weight)
            self._add(gradient.slot(0), masses, sentences, at)
        rest = Rest(*(np.concatenate(arrays) for arrays in zip(*rests, strict=True)))
        return Chosen(*_joined(chosen), rest, gradient)

    def _choose(self, masses: Floats, at: slice, rule: Rule) -> tuple[BeamSets, NDArray[np.float64]]:
        n, S = masses.shape
        flat = masses.reshape(-1).astype(np.float32, copy=False)
        return choose(BeamRows(np.arange(n + 1) * S, np.empty(0, np.int32), flat), self.gold[at], rule, S)

    def _batches(self, w: ChainWeights) -> Iterator[tuple[slice, slice, chain.Potentials]]:
        """Yield batches: a range of sentences, the range of their tokens, and their potentials."""
        S, lengths, offsets = self.layout.n_labels, np.diff(self.tokens.offsets), self.tokens.offsets
        for first, last in batches(lengths, BATCH_SCORES // S):  # longest first, so that there is little padding
            size, at = lengths[first:last], slice(int(offsets[first]), int(offsets[last]))
            unary = pad(self.tokens.scores(w, at.start, at.stop)[:, :S], size)
            unary[:, 0] += w.start[:S]
            unary[np.arange(len(size)), size - 1] += w.end[:S]
            yield slice(first, last), at, chain.chain_potentials(unary, w.log_transition, size, check_values=False)

    def _rest(
        self, p: chain.Potentials, forward: chain.Forward, marginals: Floats, weight: Floats, sets: BeamSets
    ) -> Rest:
        n_entries, n_tokens = len(sets.states), len(sets.ptr) - 1
        out = Rest(*(np.zeros(n, np.float32) for n in (n_entries, n_entries, n_tokens, n_tokens)))
        offsets, top = np.concatenate([[0], np.cumsum(p.lengths)]), p.log_unary.max(axis=2)
        exact = Pass(forward.safe, weight, forward.emission, forward.alpha, forward.scale, top, marginals)
        matrix, shift = p.transitions.matrix, p.transitions.log_shift
        threads.run(beam_rest.rest, threads.cut(p.lengths), offsets, sets, exact, matrix, shift, out)
        return out

    def _add(self, gradient: BeamGradient, masses: Floats, sentences: slice, at: slice) -> None:
        """Add the expected state features of some sentences, by their weighted ``masses``, minus all observed ones."""
        n, gold = len(masses), self.gold[at]
        residual = np.zeros((n, self.layout.wide_shape[1]), np.float32)
        residual[:, : self.layout.n_labels] = masses
        sizes = np.diff(self.tokens.offsets[sentences.start : sentences.stop + 1])
        weight = np.repeat(self.alpha[sentences], sizes)
        residual[np.arange(n), gold] -= weight
        objective.scatter(at.start, at.stop, residual, 0, self.tokens.arrays, gradient.state)
        to = np.flatnonzero(counting(sizes))  # the first token of a sentence has no pair
        np.subtract.at(gradient.counts, (gold[to - 1], gold[to]), weight[to])


def _joined(parts: list[tuple[BeamSets, NDArray[np.float64]]]) -> tuple[BeamSets, NDArray[np.float64]]:
    """Concatenate the sets and shares of batches."""
    parts = parts or [(BeamSets(np.zeros(1, np.int64), np.empty(0, np.int32)), np.empty(0))]  # without sentences
    sizes = np.concatenate([np.diff(sets.ptr) for sets, _ in parts])
    states = np.concatenate([sets.states for sets, _ in parts])
    return BeamSets(np.concatenate([[0], np.cumsum(sizes)]), states), np.concatenate([kept for _, kept in parts])
