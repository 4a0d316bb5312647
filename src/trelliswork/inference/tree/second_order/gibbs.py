r"""Marginals of second-order trees by Markov chains: unbiased in the long run, a judge of approximations.

A sweep has two kinds of moves, both with the posterior as their stationary distribution:

1. a Metropolis-Hastings step to a tree that is drawn exactly from a first-order distribution q over the candidate arcs,
   accepted with probability :math:`\min(1, p(y') q(y) / (p(y) q(y')))`; q is the final belief of the tree factor of
   belief propagation, and every tree has a positive probability, so that the chain is irreducible;
2. for each word, a Gibbs step that draws its head and that of a second, random word jointly, given all others. Single
   heads could not move the only root.

The estimates are means of the probabilities of the arcs into the first word, given all words but these two, which also
sees arcs that are too rare to be drawn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.tree import eisner, matrix_tree, second_order, tree_potentials
from trelliswork.inference.tree.second_order.kernels.gibbs import Model, run
from trelliswork.inference.tree.second_order.kernels.records import Parts

Doubles = NDArray[np.float64]
BATCHES = 10  # of each chain, for standard errors
SKIPPED = 0.1  # share of the sweeps before a chain is counted


@dataclass(frozen=True)
class ChainEstimate:
    """Estimates from several chains."""

    arcs: Doubles  # (A,) marginals
    errors: Doubles  # (A,) their standard errors, from the means of batches
    mixing: float  # largest ratio of the standard deviations of all batches and of those within chains; 1 if mixed
    accepted: float  # share of the proposed trees


def gibbs_marginals(
    parts: Parts,
    arc_scores: Doubles,
    sibling_scores: Doubles,
    grandparent_scores: Doubles,
    *,
    n_sweeps: int = 5000,
    n_chains: int = 4,
    projective: bool = True,
    single_root: bool = True,
    seed: int = 0,
) -> ChainEstimate:
    """Estimate the marginals of the arcs (A,) of one sentence; see the module.

    Time O(n k^2 (A + n^2)) per sweep for k candidate heads per word, memory O(chains sweeps n + A^2).
    """
    check_count("n_sweeps", n_sweeps)
    if n_sweeps < 2 * BATCHES:
        raise ValueRangeError(f"n_sweeps must be at least {2 * BATCHES}, got {n_sweeps}: there are {BATCHES} batches.")
    check_count("n_chains", n_chains)
    if parts.n_sentences != 1:
        raise ShapeError(f"parts must be those of one sentence, got {parts.n_sentences}.")
    n, A = int(parts.n_words[0]), len(parts.heads)
    scores = arc_scores, sibling_scores, grandparent_scores
    start = second_order.infer(parts, *scores, projective=projective, single_root=single_root, max_iter=20, damping=0.3)
    if start.log_partition[0] == -np.inf:
        raise ImpossibleError("no tree is possible: check the candidate arcs and the scores of -inf.")
    proposal = np.maximum(start.tree_scores, np.where(np.isfinite(arc_scores), arc_scores - 30.0, -np.inf))
    log_arc, number = np.full((1, n + 1, n + 1), -np.inf), np.zeros((n + 1, n + 1), np.int64)
    log_arc[0, parts.heads, parts.modifiers], number[parts.heads, parts.modifiers] = proposal, np.arange(A)
    rng: Any = np.random.default_rng(seed)
    seeds = rng.integers(1 << 62, size=(n_chains * n_sweeps, 1))
    engine = eisner if projective else matrix_tree
    heads = engine.sample(tree_potentials(log_arc, single_root=single_root), seeds)[:, 0]
    proposals = np.zeros((n_chains, n_sweeps, n + 1), np.int64)
    proposals[:, :, 1:] = number[heads, np.arange(1, n + 1)].reshape(n_chains, n_sweeps, n)
    pairs = np.zeros((A, A))
    pairs[parts.grandparent_upper, parts.grandparent_lower] = grandparent_scores
    words = np.arange(1, n + 1)
    choice = np.diff(parts.in_start)[1:] > 1
    model = Model(
        n, parts.heads.astype(np.int64), parts.in_start, parts.in_arcs, words[choice], words[~choice], arc_scores,
        parts.sides, sibling_scores, pairs, proposal, projective, single_root,
    )  # fmt: skip
    states = rng.integers(1 << 63, size=n_chains).astype(np.uint64)
    counts, accepted = np.zeros((n_chains, BATCHES, A)), np.zeros(n_chains)
    n_skipped = max(int(SKIPPED * n_sweeps), 1)
    threads.run(run, [(c, c + 1) for c in range(n_chains)], model, proposals, n_skipped, states, counts, accepted)
    first = np.searchsorted(np.arange(n_sweeps - n_skipped) * BATCHES // (n_sweeps - n_skipped), np.arange(BATCHES + 1))
    means = counts / np.diff(first)[:, None]
    within, total = means.var(axis=1, ddof=1).mean(axis=0), means.reshape(-1, A).var(axis=0, ddof=1)
    moved = within > 0
    return ChainEstimate(
        counts.sum(axis=(0, 1)) / (n_chains * (n_sweeps - n_skipped)),
        np.sqrt(total / (n_chains * BATCHES)),
        float(np.sqrt((total[moved] / within[moved]).max(initial=1.0))),
        float(accepted.sum() / (n_chains * (n_sweeps - 1))),
    )
