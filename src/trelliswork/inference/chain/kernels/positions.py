"""Compiled forward-backward for transitions that change with the position, in probability space.

The equations and the safety mark are those of ``forward_backward``; here each step has its own matrix P_t, so there is
no product to share between sequences: each matrix is exponentiated, used and dropped. Also computes edge marginals of
shared transitions.
"""

import math

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.rows import exp_row
from trelliswork.compute.simd import add, lanes, largest, load, maximum, multiply, spread, store, total
from trelliswork.compute.simd import multiply_add as fma
from trelliswork.inference.chain.kernels.forward_backward import largest_safe
from trelliswork.inference.chain.kernels.records import make_lattice


@helper
def _exp_matrix(scores, matrix):
    """Compute matrix (S, Sp) = exp(scores - max), padded with zeros; return the maximum."""
    S, Sp = scores.shape[0], matrix.shape[1]
    for i in range(S):
        for j in range(S):
            matrix[i, j] = scores[i, j]
        for j in range(S, Sp):
            matrix[i, j] = -np.inf
    return exp_row(matrix, 0, S * Sp, matrix, 0, S * Sp)


@kernel(allocates=True)
def forward(start, stop, chains, pairwise, lattice, log_z):
    """Fill the lattice and log_z (B,) for the sequences ``order[start:stop]``."""
    order, lengths, log_unary = chains
    log_pairwise, batch_step, time_step = pairwise
    place, emission, alpha, scale = lattice
    T, S, Sp, W = log_unary.shape[1], log_unary.shape[2], alpha.shape[2], lanes(alpha)
    matrix = np.empty((S, Sp), alpha.dtype)
    prior = np.empty(Sp, alpha.dtype)
    for at in range(start, stop):
        b = order[at]
        log_z[b] = 0
        prior[:] = 1
        for t in range(lengths[b]):
            if t > 0:
                log_z[b] += _exp_matrix(log_pairwise[b * batch_step + (t - 1) * time_step], matrix)
                before = alpha[place[b], t - 1]
                for k in range(0, Sp, W):
                    mass = spread(alpha, 0.0)
                    for i in range(S):
                        mass = fma(spread(alpha, before[i]), load(matrix, i * Sp + k), mass)
                    store(prior, k, mass)
            at_row = (place[b] * T + t) * Sp
            log_z[b] += exp_row(log_unary, (b * T + t) * S, S, emission, at_row, Sp)
            here = alpha[place[b], t]
            mass = spread(alpha, 0.0)
            for k in range(0, Sp, W):
                product = multiply(load(prior, k), load(emission, at_row + k))
                store(here, k, product)
                mass = add(mass, product)
            c = total(mass)
            inverse = spread(alpha, 1 / c if c > 0 else c)
            for k in range(0, Sp, W):
                store(here, k, multiply(load(here, k), inverse))
            scale[place[b], t] = c
            log_z[b] += math.log(np.float64(c)) if c > 0 else -np.inf


@kernel(allocates=True)
def backward(start, stop, chains, pairwise, lattice, safe, out, edges):
    """Fill the marginals and edges (B, T-1, S, S), add to the counts, and clear ``safe`` (B,) beyond the limit.

    An output whose axis 0 is empty is left out. Sequences already marked unsafe are skipped.
    """
    order, lengths, _ = chains
    log_pairwise, batch_step, time_step = pairwise
    place, emission, alpha, scale = lattice
    weight, slot, marginals, counts = out
    limit = largest_safe(alpha)
    T, S, Sp, W = alpha.shape[1], log_pairwise.shape[1], alpha.shape[2], lanes(alpha)
    matrix = np.empty((S, Sp), alpha.dtype)
    beta = np.empty(Sp, alpha.dtype)
    w = np.empty(Sp, alpha.dtype)
    want_edges, want_counts = edges.shape[0] > 0, counts.shape[0] > 0
    for at in range(start, stop):
        b = order[at]
        if not safe[b]:
            continue
        beta[:] = 1
        for t in range(lengths[b] - 1, -1, -1):
            here = alpha[place[b], t]
            mass = spread(alpha, 0.0)
            for k in range(0, Sp, W):
                mass = fma(load(here, k), load(beta, k), mass)
            m = total(mass)  # 1 but for rounding; dividing by it keeps long sequences from drifting
            correction = 1 / m if m > 0 else m
            if marginals.shape[0]:
                for j in range(S):
                    marginals[b, t, j] = here[j] * beta[j] * correction * weight[b]
            if t == 0:
                if not m > 0:
                    safe[b] = False
                break
            c = scale[place[b], t]
            at_row = (place[b] * T + t) * Sp
            by_scale = spread(alpha, correction / c if c > 0 else c)
            top = spread(alpha, 0.0)
            for k in range(0, Sp, W):
                ahead = multiply(load(beta, k), by_scale)
                top = maximum(ahead, top)
                store(w, k, multiply(load(emission, at_row + k), ahead))
            if not (c > 0 and m > 0 and largest(top) <= limit):
                safe[b] = False
                break
            _exp_matrix(log_pairwise[b * batch_step + (t - 1) * time_step], matrix)
            beta[:] = 0
            for i in range(S):
                mass = spread(alpha, 0.0)
                for k in range(0, Sp, W):
                    product = multiply(load(matrix, i * Sp + k), load(w, k))
                    store(matrix, i * Sp + k, product)
                    mass = add(mass, product)
                beta[i] = total(mass)
                if want_edges or want_counts:
                    x = alpha[place[b], t - 1, i] * weight[b]
                    for j in range(S):
                        p = x * matrix[i, j]
                        if want_edges:
                            edges[b, t - 1, i, j] = p
                        if want_counts:
                            counts[slot[b], i, j] += p


@kernel(allocates=True)
def forward_backward(start, stop, chains, pairwise, n_padded, log_z, safe, out, edges):
    """Run both passes sequence by sequence, so that alpha is used while it is in the cache."""
    place, log_unary = np.zeros(len(chains.lengths), np.int64), chains.scores
    lattice = make_lattice(place, 1, log_unary.shape[1], n_padded, log_unary)
    for at in range(start, stop):
        forward(at, at + 1, chains, pairwise, lattice, log_z)
        backward(at, at + 1, chains, pairwise, lattice, safe, out, edges)
