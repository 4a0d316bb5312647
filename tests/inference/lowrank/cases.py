"""Random HMMs of low rank and with blocks, as tensors, and their enumeration."""

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import torch

from trelliswork.inference.lowrank import Blocks, Dense, LowRank


def random_hmm(S=5, R=3, W=4, *, seed=0, dtype=torch.float64, peaked=1.0):
    """Return log_start (S,), a LowRank transition and log_emission (W, S), all normalized."""
    g = torch.Generator().manual_seed(seed)
    left, right = (torch.exp(peaked * torch.randn(S, R, generator=g, dtype=torch.float64)) for _ in range(2))
    left = left / (left @ right.sum(0))[:, None]
    log_start = torch.log_softmax(torch.randn(S, generator=g, dtype=torch.float64), 0)
    log_emission = torch.log_softmax(peaked * torch.randn(W, S, generator=g, dtype=torch.float64), 0)
    return log_start.to(dtype), LowRank(left.to(dtype), right.to(dtype)), log_emission.to(dtype)


class Blocked(NamedTuple):
    """A model with blocks of states."""

    log_start: torch.Tensor  # (C, k)
    transition: Blocks
    log_emission: torch.Tensor  # (W, k)
    blocks: np.ndarray  # (W,)


def random_blocks(C=3, k=2, W=7, D=4, *, seed=0, features=False, dtype=torch.float64):
    """Return a random model with C blocks of k states; words are dealt out to the blocks."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    blocks = np.arange(W) % C
    scores = normal(W, k)
    sums = torch.stack([scores[blocks == c].logsumexp(0) for c in range(C)])
    leave = torch.log_softmax(normal(C, k, C), 2)
    start = torch.log_softmax(normal(C * k), 0).reshape(C, k)
    transition = Blocks(normal(C, k, D), normal(C, k, D), normal(C, k), leave, features)
    return Blocked(start, transition, scores - sums[blocks], blocks)


def one_block(model):
    """Return the same model as one block of all states: log_start (S,), Dense, log_emission (W, S)."""
    (C, k), W = model.log_start.shape, len(model.blocks)
    pairs = np.array(list(product(range(C), repeat=2)))
    matrix = model.transition.between(pairs).dense(pairs).reshape(C, C, k, k).transpose(1, 2).reshape(C * k, C * k)
    emission = torch.full((W, C, k), -torch.inf, dtype=model.log_emission.dtype)
    emission[torch.arange(W), torch.from_numpy(model.blocks)] = model.log_emission
    return model.log_start.reshape(-1), Dense(matrix), emission.reshape(W, C * k)


def dense(transition):
    return Dense(transition.dense()[0])


def random_words(W=4, lengths=(3, 1, 4, 2), *, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.integers(0, W, offsets[-1]), offsets


def enumerate_states(log_start, matrix, log_emission, words):
    """Return log p(words), p(z_t | words) (T, S), the best states and their log p, by enumeration."""
    log_start, log_a, log_emission = (np.asarray(x, float) for x in (log_start, matrix.log(), log_emission))
    S, T = len(log_start), len(words)
    paths = np.array(list(product(range(S), repeat=T)))
    words = np.asarray(words)
    scores = log_start[paths[:, 0]] + log_emission[words, paths].sum(1)
    for t, u in pairwise(range(T)):
        scores = scores + log_a[paths[:, t], paths[:, u]]
    log_z = np.logaddexp.reduce(scores)
    marginals = np.zeros((T, S))
    for t in range(T):
        np.add.at(marginals[t], paths[:, t], np.exp(scores - log_z))
    return log_z, marginals, paths[int(scores.argmax())].tolist(), scores.max()
