"""Markov chains over the second-order trees of one sentence; see ``second_order.gibbs``."""

import math
from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.random import draw, uniform


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


@helper
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


@helper
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


@helper
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


@kernel(allocates=True)
def run(start, stop, model: Model, proposals, n_skipped, states, counts, accepted):
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
