"""Starts of HMM language models: clusters of tokens, counts of states, and networks that are taught them."""

import tracemalloc

import numpy as np
import torch
from numpy.testing import assert_allclose
from scipy import sparse

from trelliswork.features.vectors import context_vectors
from trelliswork.models.hmm_lm import clusters as hmm_lm_clusters
from trelliswork.models.hmm_lm import start as hmm_lm_start
from trelliswork.models.hmm_lm.clusters import N_DIMS, StateCounts, clustered_counts, count, k_means, nearest
from trelliswork.models.hmm_lm.network import NetworkShape, StateNetwork
from trelliswork.models.hmm_lm.objective import Sentences
from trelliswork.models.hmm_lm.start import cluster_start, shared, teach
from trelliswork.models.hmm_lm.training import log_evidences

N_WORDS = 9  # words 0-3 and 4-7 alternate; 8 ends a sentence


def patterned_text(n=200, seed=0):
    rng = np.random.default_rng(seed)
    words, offsets = [], [0]
    for _ in range(n):
        words += [int(rng.integers(0, 4) + 4 * (t % 2)) for t in range(rng.integers(2, 7))] + [8]
        offsets.append(len(words))
    return Sentences(np.array(words), np.array(offsets))


def random_counts(S=7, V=5, seed=0, n=60):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 8, n))])
    text = Sentences(rng.integers(0, V, offsets[-1]), offsets)
    return text, count(text, rng.integers(0, S, offsets[-1]), V, S)


def test_words_with_the_same_neighbors_have_the_same_vectors():
    rng = np.random.default_rng(0)
    kind = np.arange(12) // 4  # words of a kind are followed alike
    odds = rng.dirichlet(np.full(12, 0.5), 3)
    leads, follows = context_vectors(sparse.csr_matrix(np.round(3000 * odds[kind])), N_DIMS)
    assert leads.shape == follows.shape == (12, 11)
    alike = leads @ leads.T
    assert_allclose(alike[kind[:, None] == kind[None]], 1, atol=1e-4)
    assert alike[kind[:, None] != kind[None]].max() < 0.99


def test_vectors_are_singular_vectors():
    counts = np.random.default_rng(1).poisson(40, (10, 10)).astype(float)
    counts[:5, :5] += 300  # singular values far apart
    counts[2:7, 6:] += 900
    root = np.sqrt(counts)
    scaled = root / np.sqrt((root.sum(axis=1) + 30)[:, None] * (root.sum(axis=0) + 30))
    u, s, v = np.linalg.svd(scaled)
    leads, follows = context_vectors(sparse.csr_matrix(counts), 3, n_iter=40)
    for found, want in ((leads, u[:, 1:4] * s[1:4]), (follows, v.T[:, 1:4] * s[1:4])):
        want = want / np.linalg.norm(want, axis=1, keepdims=True)
        assert_allclose(found @ found.T, want @ want.T, atol=1e-4)  # whatever the signs


def test_nearest_centers_in_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    points, centers = rng.standard_normal((20_000, 4), np.float32), rng.standard_normal((500, 4), np.float32)
    expected = ((points[:, None] - centers[None]) ** 2).sum(axis=2).argmin(axis=1)
    monkeypatch.setattr(hmm_lm_clusters, "DISTANCES", 300_000)
    tracemalloc.start()
    try:
        found = nearest(points, centers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found == expected).mean() > 0.999  # but for ties up to rounding
    assert peak < 4_000_000  # all distances at once would be 40 MB


def test_k_means_finds_what_lies_apart():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 5, 300)
    points = (10 * np.eye(5)[kind] + rng.normal(0, 0.1, (300, 5))).astype(np.float32)
    centers = k_means(points, 8, rng)
    near = nearest(points, centers)
    distances = ((points[:, None] - centers[None]) ** 2).sum(axis=2)
    assert_allclose(distances[np.arange(300), near], distances.min(axis=1), atol=1e-4)
    for c in np.unique(near):
        assert len(np.unique(kind[near == c])) == 1  # no cluster has points of two kinds
        assert_allclose(centers[c], points[near == c].mean(axis=0), atol=1e-3)
    assert k_means(points[:3], 5, rng).shape == (5, 5)  # fewer points than clusters


def test_counts_are_those_of_a_loop():
    rng = np.random.default_rng(3)
    text = Sentences(np.array([0, 1, 2, 0, 2, 1]), np.array([0, 3, 4, 6]))
    states = rng.integers(0, 3, 6)
    found = count(text, states, 4, 3)
    start, pairs, emission = np.zeros(3), np.zeros((3, 3)), np.zeros((4, 3))
    for a, b in ((0, 3), (3, 4), (4, 6)):
        start[states[a]] += 1
        for t in range(a, b):
            emission[text.words[t], states[t]] += 1
            if t > a:
                pairs[states[t - 1], states[t]] += 1
    assert_allclose(found.start, start)
    assert_allclose(found.pairs.toarray(), pairs)
    assert_allclose(found.emission.toarray(), emission)


def test_tokens_are_clustered_by_words_and_neighbors():
    text = patterned_text()
    counts = clustered_counts(text, N_WORDS, 6, n_groups=2, seed=1)
    emission = counts.emission.toarray()
    assert_allclose(emission.sum(axis=1), np.bincount(text.words, minlength=N_WORDS))
    kinds = np.stack([emission[:4].sum(axis=0), emission[4:8].sum(axis=0), emission[8]])
    assert (kinds.max(axis=0) > 0.95 * kinds.sum(axis=0)).all()  # a state has words of one kind
    assert counts.groups.shape == (6,)
    assert set(counts.groups) <= {0, 1}
    again = clustered_counts(text, N_WORDS, 6, n_groups=2, seed=1)
    assert (again.emission != counts.emission).nnz == 0


def test_sharing_features_never_lowers_the_likelihood(monkeypatch):
    _, counts = random_counts(S=12, n=200)
    pairs = counts.pairs.tocoo()
    found = []
    for n in range(8):
        monkeypatch.setattr(hmm_lm_start, "SHARING", n)
        left, right = shared(counts, 4)
        if n:  # both are counts of the same pairs
            assert_allclose(left.sum(axis=1), np.asarray(counts.pairs.sum(axis=1)).ravel(), rtol=1e-4)
            assert_allclose(right.sum(axis=1), np.asarray(counts.pairs.sum(axis=0)).ravel(), rtol=1e-4)
            assert_allclose(left.sum(axis=0), right.sum(axis=0), rtol=1e-4)
        matrix = (left / left.sum(axis=1, keepdims=True)) @ (right / right.sum(axis=0)).T
        assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
        found.append(pairs.data @ np.log(matrix[pairs.row, pairs.col]))
    assert (np.diff(found) > 0).all()


def test_emissions_are_taught_a_part_of_the_states_at_a_time(monkeypatch):
    network, counts = (
        StateNetwork(NetworkShape(7, 5, 4, 3)),
        torch.rand(7, 5, generator=torch.Generator().manual_seed(0)),
    )
    found = []
    for size in (3, 7):
        monkeypatch.setattr(hmm_lm_start, "STATES", size)
        value = hmm_lm_start._emitted(network, counts)
        output = network.word_output
        found.append([value, *torch.autograd.grad(value, [network.word_embedding, output.weight, output.bias])])
    assert_allclose(found[0][0].detach(), (counts.T * network.log_emission()).sum().detach(), rtol=1e-5)
    for one, other in zip(*found, strict=True):
        assert_allclose(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)


def test_a_network_is_taught_counts():
    rng = np.random.default_rng(5)
    start, pairs, emission = rng.integers(1, 50, 6), rng.integers(1, 90, (6, 6)), rng.integers(1, 90, (5, 6))
    pairs = np.outer(pairs.sum(axis=1), pairs.sum(axis=0))  # what a low rank can say
    network = StateNetwork(NetworkShape(6, 5, 16, 3))
    costs = teach(network, StateCounts(*(x.astype(np.float32) for x in (start, pairs, emission))), 300)
    assert costs[-1] < costs[0]
    with torch.no_grad():
        matrix, log_emission = network.transition().dense()[0], network.log_emission()
    assert_allclose(matrix, pairs / pairs.sum(axis=1, keepdims=True), atol=0.02)
    assert_allclose(log_emission.exp(), emission / emission.sum(axis=0), atol=0.02)
    assert_allclose(network.log_start().exp().detach(), start / start.sum(), atol=0.02)


def test_clusters_give_a_start():
    text, dev = patterned_text(), patterned_text(20, seed=1)
    network = StateNetwork(NetworkShape(6, N_WORDS, 16, 3))
    before = np.exp(-log_evidences(network, dev).sum() / dev.n_tokens)
    cluster_start(network, text, seed=1)
    assert np.exp(-log_evidences(network, dev).sum() / dev.n_tokens) < min(6, before)
