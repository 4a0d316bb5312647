"""Random HMMs of low rank, as tensors, and their enumeration."""

from itertools import pairwise, product

import numpy as np
import torch

from trelliswork.inference.lowrank import Dense, LowRank


def random_hmm(S=5, R=3, W=4, *, seed=0, band=0, dtype=torch.float64, peaked=1.0):
    """Return log_start (S,), a LowRank transition and log_emission (W, S), all normalized."""
    g = torch.Generator().manual_seed(seed)
    left, right = (torch.exp(peaked * torch.randn(S, R, generator=g, dtype=torch.float64)) for _ in range(2))
    extra = None
    if band:
        extra = torch.exp(peaked * torch.randn(S, 2 * band + 1, generator=g, dtype=torch.float64))
        for z in range(S):
            for k in range(-band, band + 1):
                if not 0 <= z + k < S:
                    extra[z, k + band] = 0
    sums = left @ right.sum(0) + (0 if extra is None else extra.sum(1))
    left = left / sums[:, None]
    extra = None if extra is None else (extra / sums[:, None]).to(dtype)
    log_start = torch.log_softmax(torch.randn(S, generator=g, dtype=torch.float64), 0)
    log_emission = torch.log_softmax(peaked * torch.randn(W, S, generator=g, dtype=torch.float64), 0)
    return log_start.to(dtype), LowRank(left.to(dtype), right.to(dtype), extra), log_emission.to(dtype)


def dense(transition):
    return Dense(transition.dense())


def random_words(W=4, lengths=(3, 1, 4, 2), *, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.integers(0, W, offsets[-1]), offsets


def enumerate_states(log_start, matrix, log_emission, words):
    """Return log p(words), p(z_t | words) (T, S), the best states and their log p, by enumeration."""
    log_start, log_a, log_emission = (np.asarray(x, float) for x in (log_start, matrix.log(), log_emission))
    S, T = len(log_start), len(words)
    paths = list(product(range(S), repeat=T))
    scores = np.array(
        [
            log_start[p[0]]
            + sum(log_a[a, b] for a, b in pairwise(p))
            + sum(log_emission[w, z] for w, z in zip(words, p, strict=True))
            for p in paths
        ]
    )
    log_z = np.logaddexp.reduce(scores)
    marginals = np.zeros((T, S))
    for p, s in zip(paths, scores, strict=True):
        marginals[np.arange(T), p] += np.exp(s - log_z)
    return log_z, marginals, list(paths[int(scores.argmax())]), scores.max()
