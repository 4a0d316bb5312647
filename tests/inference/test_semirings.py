"""Recursions that are compiled from the edges of a graph: a chain as the example of a structure of one's own."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.oracle.chain import enumerate_batch
from trelliswork.compute import threads
from trelliswork.inference.semirings import Lattice, Recursions


class Sizes(NamedTuple):
    lengths: Any
    n_labels: int


def edges(sizes, b, v, sources, parts, pairs):
    S, last = sizes.n_labels, 1 + sizes.lengths[b] * sizes.n_labels
    t, j = (v - 1) // S, (v - 1) % S
    if t == 0:
        sources[0], parts[0], pairs[0] = 0, j, -1
        return 1
    for i in range(S):
        sources[i] = 1 + (t - 1) * S + i
        parts[i], pairs[i] = (-1, -1) if v == last else (t * S + j, i * S + j)
    return S


CHAINS = Recursions(edges)


def chain(seed, B=3, T=4, S=3):
    rng = np.random.default_rng(seed)
    unary, pairwise, lengths = rng.normal(size=(B, T, S)), rng.normal(size=(S, S)), rng.integers(1, T + 1, B)
    lattice = Lattice(Sizes(lengths, S), 2 + lengths * S, S, T + 2)
    return unary, pairwise, lengths, (lattice, unary.reshape(B, -1), pairwise.ravel())


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_has_the_answers_of_enumeration(seed):
    unary, pairwise, lengths, given = chain(seed)
    found = CHAINS.expectations(*given)
    paths, scores = CHAINS.topk(*given, 3)
    for b, want in enumerate(enumerate_batch(unary, pairwise, lengths)):
        n = lengths[b]
        assert CHAINS.log_partition(*given)[b] == pytest.approx(want.log_z, abs=1e-12)
        np.testing.assert_allclose(found.parts[b].reshape(4, 3)[:n], want.marginals(3), atol=1e-12)
        np.testing.assert_allclose(found.pairs[b].reshape(3, 3), want.edges(3).sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(scores[b], np.sort(want.scores)[::-1][:3], atol=1e-12)
        labels = (paths[b, 0, 1 : n + 1][::-1] - 1) % 3
        np.testing.assert_array_equal(labels, want.labelings[want.scores.argmax()])


def test_impossible_sequences_have_no_paths():
    _, _, _, (lattice, parts, pairs) = chain(0)
    parts[1] = -np.inf
    assert np.isneginf(CHAINS.log_partition(lattice, parts, pairs)[1])
    found = CHAINS.expectations(lattice, parts, pairs)
    assert not found.parts[1].any()
    assert not found.pairs[1].any()
    paths, scores = CHAINS.topk(lattice, parts, pairs, 2)
    assert np.isneginf(scores[1]).all()
    assert (paths[1] == -1).all()


def test_the_number_of_structures_is_the_sum_of_ones():
    _, _, lengths, (lattice, parts, pairs) = chain(1)
    counts = np.exp(CHAINS.log_partition(lattice, 0 * parts, 0 * pairs))
    np.testing.assert_allclose(counts, 3.0**lengths)


def test_results_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    _, _, _, given = chain(2, B=9)
    with threads.num_threads(1):
        one = CHAINS.expectations(*given)
    with threads.num_threads(2):
        two = CHAINS.expectations(*given)
    assert all(x.tobytes() == y.tobytes() for x, y in zip(one, two, strict=True))
