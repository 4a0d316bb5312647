"""State sequences of the second order against enumeration; impossible sentences; threads."""

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError
from trelliswork.inference.chain import chain_potentials, expectations
from trelliswork.models.hmm.decoding import StateChain


class Sentences(NamedTuple):
    log_emission: np.ndarray  # (n_tokens, S)
    offsets: np.ndarray  # (N + 1,)
    log_trigram: np.ndarray  # (S + 1, S + 1, S + 1)


@st.composite
def sentences(draw, possible: bool = False) -> Sentences:
    """Draw up to 5 sentences of 1 to 5 tokens, and up to 3 labels; scores small and huge, some -inf."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    S = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    log_emission = rng.normal(size=(sum(lengths), S)) * draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    log_trigram = rng.normal(size=(S + 1,) * 3) * draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    if draw(st.booleans()):
        log_emission[rng.random(log_emission.shape) < 0.4] = -np.inf
        log_trigram[rng.random(log_trigram.shape) < draw(st.sampled_from([0.1, 0.4]))] = -np.inf
    if possible:
        log_emission[np.isneginf(log_emission[:, 0]), 0] = 0
        log_trigram[np.isneginf(log_trigram)] = -50
    return Sentences(log_emission, np.concatenate([[0], np.cumsum(lengths)]), log_trigram)


def chain_of(case):
    """Return the chain of some sentences, without the end of an empty sentence."""
    return StateChain(case.log_trigram, None)


def enumerate_paths(log_emission, log_trigram):
    """Return all labelings of one sentence (S^T, T) and their scores (S^T,)."""
    T, S = log_emission.shape
    paths = list(product(range(S), repeat=T))
    scores = []
    for path in paths:
        full = (S, S, *path, S)
        score = sum(log_trigram[full[t : t + 3]] for t in range(T + 1))
        scores.append(score + sum(log_emission[t, c] for t, c in enumerate(path)))
    return np.array(paths, int).reshape(len(paths), T), np.array(scores, float)


def each(case):
    """Enumerate every sentence: yield number, tokens, labelings, scores."""
    for n, (start, stop) in enumerate(pairwise(case.offsets)):
        yield n, slice(start, stop), *enumerate_paths(case.log_emission[start:stop], case.log_trigram)


def log_sum(scores):
    top = scores.max()
    return top if top == -np.inf else top + np.log(np.exp(scores - top).sum())


@given(sentences())
def test_sums_match_enumeration(case):
    evidence, marginals = chain_of(case).marginals(*case[:2])
    S = case.log_emission.shape[1]
    for n, tokens, paths, scores in each(case):
        log_z = log_sum(scores)
        assert_allclose(evidence[n], log_z, rtol=1e-10, atol=1e-10)
        weights = np.exp(scores - log_z) if log_z > -np.inf else np.zeros(len(scores))
        want = np.einsum("n,ntc->tc", weights, (paths[:, :, None] == np.arange(S)).astype(float))
        assert_allclose(marginals[tokens], want, atol=1e-7)  # scores of 1e5 have an ulp of 1e-11
    assert_array_equal(chain_of(case).log_evidence(*case[:2]), evidence)


@given(sentences())
def test_viterbi_returns_a_best_path_or_raises(case):
    paths = [(tokens, paths, scores) for _, tokens, paths, scores in each(case)]
    impossible = [n for n, (_, _, scores) in enumerate(paths) if scores.max() == -np.inf]
    if impossible:
        with pytest.raises(ImpossibleError, match=f"labeling of sequence {impossible[0]} has probability zero"):
            chain_of(case).viterbi(*case[:2])
        return
    labels = chain_of(case).viterbi(*case[:2])
    for tokens, own, scores in paths:
        index = int(np.flatnonzero((own == labels[tokens]).all(axis=1))[0])
        assert_allclose(scores[index], scores.max(), rtol=1e-10, atol=1e-10)


def test_impossible_sentences_have_no_evidence_and_no_marginals():
    log_emission = np.array([[0.0, 0.0], [-np.inf, -np.inf], [0.0, 0.0], [-1.0, -np.inf]])
    evidence, marginals = StateChain(np.zeros((3, 3, 3)), None).marginals(log_emission, np.array([0, 3, 4]))
    assert_array_equal(evidence, [-np.inf, -1])
    assert_array_equal(marginals, [[0, 0], [0, 0], [0, 0], [1, 0]])
    nothing = StateChain(np.full((2, 2, 2), -np.inf), None)
    assert_array_equal(nothing.log_evidence(np.zeros((1, 1)), np.array([0, 1])), [-np.inf])


def test_trigrams_that_ignore_the_first_label_match_the_first_order():
    """With p(c | a, b) = p(c | b) the results are those of the linear chain."""
    rng = np.random.default_rng(1)
    S, T = 4, 30
    log_start, log_pairwise, log_end = rng.normal(size=S), rng.normal(size=(S, S)), rng.normal(size=S)
    log_trigram = np.full((S + 1,) * 3, -np.inf)
    log_trigram[S, S, :S] = log_start
    log_trigram[:, :S, :S] = log_pairwise
    log_trigram[:, :S, S] = log_end
    log_emission = rng.normal(size=(T, S))
    log_unary = log_emission.copy()
    log_unary[0] += log_start
    log_unary[-1] += log_end
    log_z, want = expectations(chain_potentials(log_unary[None], log_pairwise))
    evidence, marginals = StateChain(log_trigram, None).marginals(log_emission, np.array([0, T]))
    assert_allclose(evidence, log_z, rtol=1e-10)
    assert_allclose(marginals, want.marginals[0], atol=1e-10)


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 30, 60)
    log_emission = rng.normal(size=(lengths.sum(), 12))
    log_emission[rng.random(log_emission.shape) < 0.3] = -np.inf
    log_emission[:, 0] = 0
    offsets, log_trigram = np.concatenate([[0], np.cumsum(lengths)]), rng.normal(size=(13, 13, 13))
    states, results = StateChain(log_trigram, None), []
    for n in (1, 3):
        with threads.num_threads(n):
            results.append([*states.marginals(log_emission, offsets), states.viterbi(log_emission, offsets)])
    for one, three in zip(*results, strict=True):
        assert_array_equal(one, three)
