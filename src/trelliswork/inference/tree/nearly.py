r"""Trees that may have crossing arcs, at a cost: between projective trees and all spanning trees.

.. math:: p(y) \propto \exp\Big(\sum_d s(h_d, d) - \gamma\, [y \text{ has crossing arcs}]\Big), \quad \gamma \ge 0

Its sums are those of both kinds of trees, :math:`Z = (1 - e^{-\gamma}) Z_{proj} + e^{-\gamma} Z_{all}`, so that it is
a mixture of the two distributions with the same scores. A share c of all trees,
:math:`p = (1 - c)\, p_{proj} + c\, p_{all}`, is the cost :math:`\gamma = \log(1 + (1 - c) Z_{all} / (c Z_{proj}))`,
which differs by sentence and stays the same given evidence.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trelliswork.inference.tree.passes import eisner, matrix_tree
from trelliswork.inference.tree.potentials import Doubles, Integers, Potentials, are_trees

LEAST_SHARE = 1e-12  # of all trees in a mixture, so that crossing arcs stay possible


@dataclass(frozen=True)
class NearlyProjective:
    """Queries on trees whose crossing arcs have a cost: those of `Passes`, with two passes each."""

    cost: Doubles  # (B,) of a tree with crossing arcs, at least 0

    def rows(self, which: NDArray[np.integer]) -> "NearlyProjective":
        """Return the queries on the sentences ``which``, which may be repeated."""
        return NearlyProjective(self.cost[which])

    def log_partition(self, potentials: Potentials) -> Doubles:
        """Return log Z (B,) of each sentence; -inf where no tree is possible."""
        return self._total(eisner.log_partition(potentials), matrix_tree.log_partition(potentials))[0]

    def expectations(self, potentials: Potentials) -> tuple[Doubles, Doubles]:
        """Return log Z (B,) and arc marginals (B, n+1, n+1)."""
        (flat, few), (full, many) = (engine.expectations(potentials) for engine in (eisner, matrix_tree))
        log_z, weight = self._total(flat, full)
        return log_z, _mixed(few, many, weight)

    def penalties(self, heads: Integers, lengths: Integers) -> Doubles:
        """Return the cost (B,) of trees (B, n): 0 if they have no crossing arcs."""
        return np.where(are_trees(heads, lengths, projective=True, single_root=False), 0.0, self.cost)

    def best(self, potentials: Potentials) -> tuple[Integers, Doubles]:
        """Return the best tree of each sentence: heads (B, n), -1 in the padding, and scores (B,)."""
        heads, scores = matrix_tree.best(potentials)
        scores = scores - self.penalties(heads, potentials.lengths)
        which = np.flatnonzero(eisner.log_partition(potentials) > -np.inf)
        if which.size:
            flat, lower = eisner.best(potentials.take(which))
            better = lower >= scores[which]
            heads[which[better]], scores[which[better]] = flat[better], lower[better]
        return heads, scores

    def topk(self, potentials: Potentials, labels: Doubles, k: int) -> tuple[Integers, Integers, Doubles]:
        """Return the k best trees as `Passes.topk` does.

        Exact, since of the k best trees of all, each is as good here if it crosses, and better if it does not: a
        crossing tree beyond them is not among the k best.
        """
        heads, ranks, scores = matrix_tree.topk(potentials, labels, k)
        B, found, n = heads.shape
        lengths = np.repeat(potentials.lengths, found)
        flat = are_trees(heads.reshape(-1, n), lengths, projective=True, single_root=False).reshape(B, found)
        scores = np.where(flat, -np.inf, scores - self.cost[:, None])
        which = np.flatnonzero(eisner.log_partition(potentials) > -np.inf)
        if which.size:
            own = eisner.topk(potentials.take(which), labels[which], k)
            more = own[0].shape[1]
            heads = np.concatenate([np.full((B, more, n), -1), heads], axis=1)
            ranks = np.concatenate([np.full((B, more, n), -1), ranks], axis=1)
            scores = np.concatenate([np.full((B, more), -np.inf), scores], axis=1)
            heads[which, :more], ranks[which, :more], scores[which, :more] = own
        order = np.argsort(-scores, axis=1, kind="stable")[:, :found]
        heads, ranks = (np.take_along_axis(trees, order[..., None], axis=1) for trees in (heads, ranks))
        scores = np.take_along_axis(scores, order, axis=1)
        missing = (scores == -np.inf)[..., None]
        return np.where(missing, -1, heads), np.where(missing, -1, ranks), scores

    def sample(self, potentials: Potentials, seeds: Integers) -> Integers:
        """Return exact draws: heads (k, B, n), -1 in the padding, from ``seeds`` (k, B)."""
        flat = eisner.log_partition(potentials)
        _, weight = self._total(flat, matrix_tree.log_partition(potentials))
        heads = matrix_tree.sample(potentials, seeds)
        which = np.flatnonzero(flat > -np.inf)
        if which.size:
            without = eisner.sample(potentials.take(which), np.ascontiguousarray(seeds[:, which]))
            draws = np.array([np.random.default_rng(int(seed) & (2**63 - 1)).random() for seed in seeds[:, which].flat])
            chosen = draws.reshape(len(seeds), -1) < weight[which]
            heads[:, which] = np.where(chosen[..., None], without, heads[:, which])
        return heads

    def _total(self, flat: Doubles, full: Doubles) -> tuple[Doubles, Doubles]:
        """Return log Z (B,), and the weight of projective trees in the mixture (B,), from log Z of both kinds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            first = np.log(-np.expm1(-self.cost)) + flat
            log_z = np.logaddexp(first, full - self.cost)
            weight = np.exp(first - log_z)
        return log_z, np.where(first > -np.inf, weight, 0.0)


def mixture(potentials: Potentials, share: float) -> tuple[NearlyProjective, Doubles]:
    """Return the mixture of projective trees and a share of all trees, and its arc marginals (B, n+1, n+1).

    Sentences without a projective tree have all trees, at no cost. Time O(n^3) per sentence.
    """
    share = max(share, LEAST_SHARE)
    (flat, few), (full, many) = (engine.expectations(potentials) for engine in (eisner, matrix_tree))
    possible = flat > -np.inf
    if share >= 1:
        return NearlyProjective(np.zeros(len(flat))), many
    odds = np.log((1 - share) / share) + np.where(possible, full - np.where(possible, flat, 0.0), -np.inf)
    return NearlyProjective(np.logaddexp(0.0, odds)), _mixed(few, many, np.where(possible, 1 - share, 0.0))


def _mixed(few: Doubles, many: Doubles, weight: Doubles) -> Doubles:
    """Return the marginals of a mixture; those of an impossible distribution are not read."""
    at = weight[:, None, None]
    return np.where(at > 0, at * few, 0.0) + (1 - at) * many
