"""Chains in the plain tier: their graph, for `Recursions`, which answers where probability space underflows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.checks import check_possible, check_shape, number_of_best
from trelliswork.inference.chain.potentials import Integers, Potentials
from trelliswork.inference.semirings import Lattice, Recursions, labels_of

Doubles = NDArray[np.float64]


class Sizes(NamedTuple):
    """What `edges` reads: lengths (B,), T, the number of labels, whether all positions have the same transitions."""

    lengths: Integers
    n_positions: int
    n_labels: int
    shared: bool


class Given(NamedTuple):
    """Chains as `Recursions` take them: graphs, scores of parts (B, P) and of pairs (Q,)."""

    lattice: Lattice
    parts: Doubles
    pairs: Doubles


def edges(sizes: Sizes, b: int, v: int, sources: Integers, parts: Integers, pairs: Integers) -> int:
    """List the edges into node v. Nodes are 0, then S labels of each position, and the last one."""
    S = sizes.n_labels
    t, j = (v - 1) // S, (v - 1) % S
    if t == 0:
        sources[0], parts[0], pairs[0] = 0, j, -1
        return 1
    for i in range(S):
        sources[i], parts[i], pairs[i] = v - j - S + i, -1, -1
        if t < sizes.lengths[b] and sizes.shared:
            parts[i], pairs[i] = t * S + j, i * S + j
        elif t < sizes.lengths[b]:
            parts[i] = (sizes.n_positions + (t - 1) * S + i) * S + j
    return S


CHAINS = Recursions(edges)


def graphs(p: Potentials, *, shared: bool) -> Given:
    """Return chains whose transitions are pairs if they are ``shared``, else parts of each position."""
    B, T, S = p.log_unary.shape
    lattice = Lattice(Sizes(p.lengths, T, S, shared), 2 + p.lengths * S, S, T + 2)
    parts, pairs = p.log_unary.astype(np.float64), p.log_pairwise[:1].astype(np.float64)
    if not shared:
        matrix = np.arange(B)[:, None] * p.batch_step + np.arange(T - 1) * p.time_step
        steps = parts[:, 1:, None] + p.log_pairwise[matrix]  # a transition with the label that it leads to
        parts = np.concatenate([parts, steps.reshape(B, -1, S)], axis=1)
    return Given(lattice, parts.reshape(B, -1), pairs.reshape(-1))


def log_partition(p: Potentials) -> Doubles:
    """Return log Z (B,) of each sequence."""
    return CHAINS.log_partition(*graphs(p, shared=p.shared))


def expectations(p: Potentials, *, edges: bool = False) -> tuple[Doubles, Doubles, Doubles | None, Doubles]:
    """Return log Z (B,), marginals (B, T, S), ``edges`` (B, T-1, S, S) or None, and their sums (B, S, S)."""
    B, T, S = p.log_unary.shape
    shared = p.shared and not edges
    log_z, parts, pairs = CHAINS.expectations(*graphs(p, shared=shared))
    marginals = parts[:, : T * S].reshape(B, T, S)
    if shared:
        return log_z, marginals, None, pairs.reshape(B, S, S)
    steps = parts[:, T * S :].reshape(B, T - 1, S, S)
    marginals[:, 1:] = steps.sum(axis=2)
    return log_z, marginals, steps, steps.sum(axis=1)


def topk(p: Potentials, k: int) -> tuple[Integers, Doubles]:
    """Return labels (B, k, T) and scores (B, k) of the k best labelings of each sequence, all different, best first.

    Axis 1 is shorter than k if there are fewer labelings than that, S^T. Labels are -1 in the padding and, like scores
    of -inf, where a sequence has fewer possible labelings.
    Time O(T S^2 k) in the worst case, memory O(T S k) per thread.
    """
    _, T, S = p.log_unary.shape
    paths, scores = CHAINS.topk(*graphs(p, shared=p.shared), number_of_best(k, (S, T)))
    check_possible(scores[:, 0], "no labeling to decode")
    return labels_of(paths, T, S, S), scores


def sample(p: Potentials, uniforms: Doubles) -> Integers:
    """Return exact samples: labels (n, B, T), -1 in the padding, from ``uniforms`` (n, B, T) in [0, 1)."""
    B, T, S = p.log_unary.shape
    check_shape("uniforms", uniforms.shape, "n B T", B=B, T=T)
    back = np.maximum(p.lengths[:, None] - 1 - np.arange(T + 2), 0)  # paths start at the last position
    numbers = np.take_along_axis(uniforms, np.broadcast_to(back, (len(uniforms), *back.shape)), axis=2)
    log_z, paths = CHAINS.sample(*graphs(p, shared=p.shared), numbers)
    check_possible(log_z, "nothing to sample")
    return labels_of(paths, T, S, S)
