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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.padding import unpad
from trelliswork.inference import chain
from trelliswork.inference.chain.beam import BeamSets, Rule
from trelliswork.models.crf.beams.choice import all_states, choose, joined
from trelliswork.models.crf.kernels import beam_rest, objective
from trelliswork.models.crf.kernels.beam_rest import Pass
from trelliswork.models.crf.kernels.held_beams import Rest
from trelliswork.models.crf.layout import Floats, Ids
from trelliswork.models.crf.objective import GradientSums
from trelliswork.models.crf.problem import counting
from trelliswork.models.crf.weights import ChainWeights, ScoredTokens, Scorer

LEAST_WEIGHT = 1e-20  # of a sentence: results are divided by it
NO_REST = Rest(*(np.empty(0, np.float32) for _ in Rest._fields))


class Completed(NamedTuple):
    """Result of an exact pass: the chosen sets, the share of probability they keep, the rest, the gradient."""

    sets: BeamSets
    kept: NDArray[np.float64]
    rest: Rest
    gradient: GradientSums


def exact_pass(
    scorer: Scorer, tokens: ScoredTokens, gold: Ids, alpha: NDArray[np.float32], w: ChainWeights, rule: Rule
) -> Completed:
    """Choose sets of states by exact probabilities; return them with the rest and the exact gradient.

    ``tokens`` are those of the scorer, with labels ``gold`` and the weights ``alpha`` of the sentences. Time
    O(entries + tokens S^2), the same as an exact evaluation.
    """
    S = w.n_labels
    gradient = GradientSums(1, scorer.layout, (S, S))
    gradient.clear(0)
    sums, chosen, rests, first, start = gradient.slot(0), [], [NO_REST], 0, 0
    for p in scorer.potentials(w):
        assert isinstance(p, chain.Potentials)
        last, stop = first + len(p.lengths), start + int(p.lengths.sum())
        weight = np.maximum(alpha[first:last], np.float32(LEAST_WEIGHT))
        forward = chain.forward(p)
        marginals = chain.backward(forward, weights=weight).marginals
        assert marginals is not None
        masses, own = unpad(marginals, p.lengths), gold[start:stop]
        chosen.append(choose(all_states(masses), own, rule, S))
        rests.append(_rest(p, forward, marginals, weight, chosen[-1][0]))
        # Expected minus observed features.
        sums.counts[...] += chain.pair_counts(forward, marginals, weight)
        residual = np.zeros((stop - start, w.wide.shape[1]), np.float32)
        residual[:, :S] = masses
        by_token = np.repeat(alpha[first:last], p.lengths)
        residual[np.arange(len(own)), own] -= by_token
        objective.scatter(start, stop, residual, 0, tokens.arrays, sums.state)
        to = np.flatnonzero(counting(p.lengths))  # the first token of a sentence has no pair
        np.subtract.at(sums.counts, (own[to - 1], own[to]), by_token[to])
        first, start = last, stop
    return Completed(*joined(chosen), Rest(*map(np.concatenate, zip(*rests, strict=True))), gradient)


def _rest(p: chain.Potentials, forward: chain.Forward, marginals: Floats, weight: Floats, sets: BeamSets) -> Rest:
    """Return the rest of a batch of sentences."""
    n_entries, n_tokens = len(sets.states), len(sets.ptr) - 1
    out = Rest(*(np.zeros(n, np.float32) for n in (n_entries, n_entries, n_tokens, n_tokens)))
    offsets, top = np.concatenate([[0], np.cumsum(p.lengths)]), p.log_unary.max(axis=2)
    exact = Pass(forward.safe, weight, forward.emission, forward.alpha, forward.scale, top, marginals)
    threads.run(
        beam_rest.rest, threads.cut(p.lengths), offsets, sets, exact, p.transitions.matrix, p.transitions.log_shift, out
    )
    return out
