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

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import check_count
from trelliswork.compute.kernels.random import draw, uniform
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.tree import eisner, matrix_tree, second_order, tree_potentials
from trelliswork.inference.tree.second_order.kernels.records import Parts

Doubles = NDArray[np.float64]
compiled = numba.njit(nogil=True)  # in each process: the cache is for kernels of the package
BATCHES = 10  # of each chain, for standard errors
SKIPPED = 0.1  # share of the sweeps before a chain is counted


class Model(NamedTuple):
    """Candidate arcs of one sentence and the scores of their parts."""

    n_words: Any
    heads: Any  # (A,)
    in_start: Any  # (n+2,) arcs into node i are in_arcs[in_start[i]:in_start[i + 1]]
    in_arcs: Any  # (A,)
    free: Any  # words whose heads are drawn: those with more than one candidate
    fixed: Any  # the other words
    arcs: Any  # (A,) scores
    sides: Any  # (sides, 4) as in ``Parts``
    siblings: Any  # (S,) scores
    pairs: Any  # (A, A) scores of an arc above another one
    proposal: Any  # (A,) scores of the first-order distribution of the proposals
    projective: Any
    single_root: Any


@compiled
def _is_tree(model: Model, tree):
    """Return True if the arcs (n+1,) into the words form a tree of this kind."""
    n, heads, roots = model.n_words, model.heads, 0
    for d in range(1, n + 1):
        roots += heads[tree[d]] == 0
        node = d
        for _ in range(n + 1):
            if node == 0:
                break
            node = heads[tree[node]]
        if node != 0:
            return False
    if model.single_root and roots != 1:
        return False
    if model.projective:
        for d in range(1, n + 1):
            low, high = min(heads[tree[d]], d), max(heads[tree[d]], d)
            for k in range(low + 1, high):
                if heads[tree[k]] < low or heads[tree[k]] > high:
                    return False
    return True


@compiled
def log_weight(model: Model, tree, on):
    """Return the score of a tree, given as the arcs (n+1,) into its words; ``on`` (A,) is False and stays so."""
    n, total = model.n_words, 0.0
    for d in range(1, n + 1):
        a = tree[d]
        on[a] = True
        total += model.arcs[a]
        if model.heads[a] > 0:
            total += model.pairs[tree[model.heads[a]], a]
    for row in range(len(model.sides)):
        first, step, size, part = model.sides[row]
        last = 0
        for j in range(1, size + 1):
            if on[first + step * (j - 1)]:
                total += model.siblings[part + j * (j - 1) // 2 + last]
                last = j
        total += model.siblings[part + size * (size + 1) // 2 + last]
    for d in range(1, n + 1):
        on[tree[d]] = False
    return total


@compiled
def _resample(model: Model, tree, on, d, e, values, zeros, state, sums):
    """Draw the arcs into words d and e (or d alone if they are equal) given all others.

    Add the probabilities of the arcs into d, given all words except d and e, to sums (A,).
    """
    at, into = model.in_start, model.in_arcs
    n_first, n_second = at[d + 1] - at[d], at[e + 1] - at[e] if e != d else 1
    top = -np.inf
    for i in range(n_first):
        tree[d] = into[at[d] + i]
        for j in range(n_second):
            if e != d:
                tree[e] = into[at[e] + j]
            value = log_weight(model, tree, on) if _is_tree(model, tree) else -np.inf
            values[i * n_second + j] = value
            top = max(top, value)
    total = 0.0
    for k in range(n_first * n_second):
        total += math.exp(values[k] - top)
    for i in range(n_first):
        for j in range(n_second):
            sums[into[at[d] + i]] += math.exp(values[i * n_second + j] - top) / total
    k = draw(values, zeros, n_first * n_second, top + math.log(total), state)
    tree[d] = into[at[d] + k // n_second]
    if e != d:
        tree[e] = into[at[e] + k % n_second]


@compiled
def _run(start, stop, model: Model, proposals, n_skipped, states, counts, accepted):
    """Run chains start..stop: add the probabilities of the arcs in each sweep to counts (chains, batches, A).

    ``proposals`` (chains, sweeps, n+1) are trees, the first the start, ``accepted`` (chains,) the number of accepted
    ones; ``n_skipped`` sweeps are not counted.
    """
    n, A, n_sweeps, n_batches = model.n_words, len(model.heads), proposals.shape[1], counts.shape[1]
    widest = 0
    for d in range(1, n + 1):
        widest = max(widest, model.in_start[d + 1] - model.in_start[d])
    on, values, zeros = np.zeros(A, np.bool_), np.empty(widest * widest), np.zeros(widest * widest)
    n_free, unused = len(model.free), np.empty(A)
    for c in range(start, stop):
        tree, state = proposals[c, 0].copy(), states[c : c + 1]
        for sweep in range(1, n_sweeps):
            new = proposals[c, sweep]
            gain = log_weight(model, new, on) - log_weight(model, tree, on)
            for d in range(1, n + 1):
                gain += model.proposal[tree[d]] - model.proposal[new[d]]
            if uniform(state) < math.exp(min(gain, 0.0)):
                tree[:] = new
                accepted[c] += 1
            batch = max(sweep - n_skipped, 0) * n_batches // (n_sweeps - n_skipped)
            sums = counts[c, batch] if sweep >= n_skipped else unused
            for k in range(n_free):
                other = int(uniform(state) * n_free)
                _resample(model, tree, on, model.free[k], model.free[other], values, zeros, state, sums)
            for k in range(len(model.fixed)):
                sums[tree[model.fixed[k]]] += 1


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
    """Estimate the marginals of the arcs (A,) of one sentence; see the top of the module.

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
    threads.run(_run, [(c, c + 1) for c in range(n_chains)], model, proposals, n_skipped, states, counts, accepted)
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
