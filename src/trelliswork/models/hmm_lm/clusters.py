"""Initial hidden states without sums over states: tokens clustered by their words and neighbors.

Words have vectors of their left and right contexts (a singular value decomposition of scaled neighbor counts). The
vector of a token consists of its word's two vectors and, with less weight, those of its neighbors; k-means assigns a
state to each token. On Penn Treebank text this takes seconds to minutes, and an HMM of the counted states is as good as
one after an epoch of gradient steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from trelliswork.data.counting import pair_counts
from trelliswork.features.vectors import context_vectors
from trelliswork.models.hmm_lm.objective import Sentences

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
N_DIMS = 48  # dimensions of a word vector
NEIGHBOR = 0.5  # weight of the neighbors' vectors relative to the word's own
SAMPLE = 40  # tokens per state in the sample for k-means
MAX_SAMPLE = 1 << 18  # maximum number of tokens in that sample
N_ITER = 10  # iterations of k-means
BLOCK = 8192  # tokens processed at once
DISTANCES = 1 << 24  # distances computed at once: 64 MB


@dataclass(frozen=True)
class StateCounts:
    """Counts of states at sentence starts, of pairs of states, and of states with words, sparse or dense."""

    start: Floats  # (S,)
    pairs: Any  # (S, S): ``pairs[i, j]``, state j directly after state i
    emission: Any  # (V, S)
    groups: Ints | None = None  # (S,): similar states have the same number; initializes a low-rank transition


def clustered_counts(
    sentences: Sentences, n_words: int, n_states: int, *, n_groups: int | None = None, seed: int = 0
) -> StateCounts:
    """Return counts of clustered tokens; with ``n_groups``, states are clustered into that number of groups.

    Time O(min(SAMPLE S, MAX_SAMPLE) S N_ITER + N S) times the dimensions (4 N_DIMS).
    """
    rng = np.random.default_rng(seed)
    tokens = _Tokens(sentences, n_words, seed)
    N = sentences.n_tokens
    chosen = np.sort(rng.permutation(N)[: min(SAMPLE * n_states, max(MAX_SAMPLE, n_states))])
    centers = k_means(tokens.points(chosen), n_states, rng)
    blocks = [nearest(tokens.points(np.arange(k, min(k + BLOCK, N))), centers) for k in range(0, N, BLOCK)]
    states = np.concatenate([np.zeros(0, np.int64), *blocks])
    groups = None if n_groups is None else nearest(centers, k_means(centers, n_groups, rng))
    return count(sentences, states, n_words, n_states, groups)


def count(sentences: Sentences, states: Ints, n_words: int, n_states: int, groups: Ints | None = None) -> StateCounts:
    """Return the counts of tokens whose states (N,) are known."""
    first = np.zeros(sentences.n_tokens, bool)
    first[sentences.offsets[:-1]] = True
    at = np.flatnonzero(~first)
    pairs = pair_counts(states[at - 1], states[at], (n_states, n_states), np.float32)
    emission = pair_counts(sentences.words, states, (n_words, n_states), np.float32)
    start = np.bincount(states[first], minlength=n_states)
    return StateCounts(start.astype(np.float32), pairs, emission, groups)


class _Tokens:
    """Vectors of tokens, computed on demand, since all of them would take a gigabyte."""

    def __init__(self, sentences: Sentences, n_words: int, seed: int) -> None:
        words, offsets = sentences.words, sentences.offsets
        end = n_words - 1  # also precedes the first word
        self.words = words
        self.before, self.after = np.roll(words, 1), np.roll(words, -1)
        self.before[offsets[:-1]] = end
        self.after[offsets[1:] - 1] = n_words  # nothing follows the end of a sentence
        bigrams = pair_counts(self.before, words, (n_words, n_words), np.float32)
        leads, follows = context_vectors(bigrams, N_DIMS, seed)
        self.own = np.concatenate([leads, follows], axis=1)
        self.leads = NEIGHBOR * leads
        self.follows = np.concatenate([NEIGHBOR * follows, np.zeros((1, follows.shape[1]), np.float32)])

    def points(self, which: Ints) -> Floats:
        words, before, after = self.words[which], self.before[which], self.after[which]
        return np.concatenate([self.own[words], self.leads[before], self.follows[after]], axis=1)


def k_means(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Return cluster centers (k, D) of points (n, D); a cluster that loses all points restarts at a random one."""
    centers = points[rng.permutation(len(points))[np.arange(k) % len(points)]]
    for _ in range(N_ITER):
        near = nearest(points, centers)
        n = np.bincount(near, minlength=k)
        members = sparse.csr_matrix(
            (np.ones(len(points), np.float32), (near, np.arange(len(points)))), (k, len(points))
        )
        centers = (members @ points) / np.maximum(n, 1)[:, None].astype(np.float32)
        centers[n == 0] = points[rng.integers(0, len(points), int((n == 0).sum()))]
    return centers


def nearest(points: Floats, centers: Floats) -> Ints:
    """Return the nearest center of each point (n,), computing DISTANCES numbers at once."""
    half = (centers**2).sum(axis=1) / 2
    step = max(1, DISTANCES // len(centers))
    clusters = np.empty(len(points), np.int64)
    for k in range(0, len(points), step):
        scores = points[k : k + step] @ centers.T
        scores -= half
        scores.argmax(axis=1, out=clusters[k : k + step])
    return clusters
