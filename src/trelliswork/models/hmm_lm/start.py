"""Initialization of kernels over all states: a network fitted to the counts of token clusters."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from trelliswork.models.hmm_lm.clusters import StateCounts, clustered_counts
from trelliswork.models.hmm_lm.network import StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.training import torch_threads

TEACHING_RATE = 1e-2
BACKING = (20.0, 0.1)  # pseudo-counts per clustered state: maximum, and maximum as a share of its mean count
SHARING = 20  # EM iterations that assign transitions to features
STRAY = 0.5  # initial share of a state's transitions assigned to features outside its group
CHUNK = 1 << 14  # pairs of states processed at once
STATES = 512  # whose words are scored at a time

Floats = NDArray[np.float32]


def cluster_start(network: StateNetwork, sentences: Sentences, *, n_steps: int = 100, seed: int = 0) -> StateCounts:
    """Cluster tokens into states and fit a network with features to the counts by ``n_steps`` gradient steps.

    `StateNetwork.start_with` should have been called with the word frequencies. The steps are cheap, since they need no
    sums over sentences.
    """
    shape = network.shape
    n_groups = min(shape.n_features, shape.n_states)
    counts = clustered_counts(sentences, shape.n_words, shape.n_states, n_groups=n_groups, seed=seed)
    teach(network, counts, n_steps, backing=min(BACKING[0], BACKING[1] * sentences.n_tokens / shape.n_states))
    return counts


def teach(network: StateNetwork, counts: StateCounts, n_steps: int, *, backing: float = 0.0) -> list[float]:
    """Maximize the expected log-likelihood of counts by gradients, and return the cost per emission of each step.

    ``backing`` pseudo-counts are added to each state, distributed by the frequencies of words and of next states. A
    step costs O(V S hidden + S R hidden). Features are fitted as intermediate classes: p(feature | state) and
    p(next state | feature).
    """
    dense = counts.emission if isinstance(counts.emission, np.ndarray) else counts.emission.toarray()
    words = torch.from_numpy(dense.sum(axis=1, dtype=np.float32))
    emission = torch.from_numpy(dense.T.astype(np.float32)) + words * (backing / float(words.sum().clamp_min(1e-30)))
    start, total = torch.from_numpy(counts.start), float(emission.sum(dtype=torch.float64))
    follow = _featured(network, counts, backing)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], TEACHING_RATE, weight_decay=0)
    costs = []
    with torch_threads(network):
        for k in range(n_steps):
            optimizer.param_groups[0]["lr"] = TEACHING_RATE * (1 + math.cos(math.pi * k / n_steps)) / 2
            loss = -(start @ network.log_start() + follow() + _emitted(network, emission)) / total
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            costs.append(float(loss.detach()))
    return costs


def _featured(network: StateNetwork, counts: StateCounts, backing: float) -> Callable[[], Tensor]:
    """Return a function that computes the expected log-likelihood of transitions.

    Features are classes between a state and the next.
    """
    left, right = (torch.from_numpy(x) for x in shared(counts, network.shape.n_features, backing))

    def log_likelihood() -> Tensor:
        log_left, log_right = network.log_factors()
        log_sums = torch.logsumexp(log_right, dim=0)
        return (left * torch.log_softmax(log_left + log_sums, dim=1)).sum() + (right * (log_right - log_sums)).sum()

    return log_likelihood


def _emitted(network: StateNetwork, counts: Tensor) -> Tensor:
    """Return the expected log-likelihood of counts (S, V) of words."""
    output, parts = network.word_output, zip(network.emitting().split(STATES), counts.split(STATES), strict=True)
    # One matrix as large as the counts is kept, log p; those beside it are of some states only.
    return torch.stack([(own * torch.log_softmax(output(vectors), dim=1)).sum() for vectors, own in parts]).sum()


def shared(counts: StateCounts, n_features: int, backing: float = 0.0) -> tuple[Floats, Floats]:
    """Return counts of states with the features that follow them and that precede them, (S, R) each.

    Feature r initially leads to the states of group r. EM of p(r | i) p(j | r) over pairs of states then reassigns
    them, with q(r | i, j) in proportion to both factors: O(pairs R) per iteration.
    """
    pairs = sparse.csr_matrix(counts.pairs)
    S = pairs.shape[0]
    inside = np.full((S, n_features), STRAY / n_features, np.float32)
    inside[np.arange(S), np.arange(S) % n_features if counts.groups is None else counts.groups] += 1 - STRAY
    left, right = pairs @ inside, (np.asarray(pairs.sum(axis=0)).ravel() + 1)[:, None] * inside
    listed = pairs.tocoo()
    for _ in range(SHARING):
        a, b = _backed(left, backing), _backed(right.T, backing).T
        expected = np.empty(listed.nnz, np.float32)
        for k in range(0, listed.nnz, CHUNK):
            at = slice(k, k + CHUNK)
            np.einsum("kr,kr->k", a[listed.row[at]], b[listed.col[at]], out=expected[at])
        ratio = sparse.csr_matrix((listed.data / expected, (listed.row, listed.col)), pairs.shape)
        left, right = a * (ratio @ b), b * (ratio.T @ a)
    return np.asarray(left, np.float32), np.asarray(right, np.float32)


def _backed(table: Floats, backing: float) -> Floats:
    """Return rows of probabilities from counts (n, m) with ``backing`` more per row, in proportion to column sums."""
    sums = table.sum(axis=0)
    more = table + (backing / sums.sum()) * sums + 1e-10  # no row is empty
    return np.asarray(more / more.sum(axis=1, keepdims=True), np.float32)
