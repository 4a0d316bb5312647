"""HMMs with many states against enumeration, the dense model of one block, and finite differences."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.inference.lowrank.cases import dense, enumerate_states, one_block, random_blocks, random_hmm, random_words
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.lowrank import (
    Blocks,
    Dense,
    LowRank,
    Messages,
    Open,
    groups,
    log_evidence,
    moves,
    pack,
    posteriors,
    queries,
    reference,
    score,
    viterbi,
)

ALL = np.zeros(1, np.int64)  # the open blocks of a model with one


def opened(emission, words):
    """Return the evidence of words in a model with one block."""
    return [Open(ALL, emission[w : w + 1]) for w in words]


def patterns(model, tokens):
    """Return the evidence of tokens, each a word, a tuple of words, or None for any word."""
    found = []
    for token in tokens:
        words = np.arange(len(model.blocks)) if token is None else np.atleast_1d(token)
        blocks = np.unique(model.blocks[words])
        rows = [model.log_emission[words[model.blocks[words] == c]].logsumexp(0) for c in blocks]
        found.append(Open(blocks, torch.stack(rows)))
    return found


def marginals(start, transition, emission, words, offsets, blocks=None):
    found = torch.zeros(len(words), emission.shape[1], dtype=emission.dtype)
    for at, p in posteriors(start, transition, emission, words, offsets, blocks):
        found[at] = p
    return found


@pytest.mark.parametrize("seed", range(3))
def test_reference_and_passes_match_enumeration(seed):
    start, transition, emission = random_hmm(4, 2, seed=seed)
    words, offsets = random_words(seed=seed)
    log_z, found = (
        score(start, transition, emission, words, offsets),
        marginals(start, transition, emission, words, offsets),
    )
    for n, (a, b) in enumerate(itertools.pairwise(offsets)):
        want = enumerate_states(start, transition.dense()[0], emission, words[a:b])
        assert_allclose(log_z[n], want[0], rtol=1e-12)
        assert_allclose(found[a:b], want[1], atol=1e-12)
        states, value = viterbi(start, transition, opened(emission, words[a:b]))
        assert states == want[2]
        assert_allclose(value, want[3], rtol=1e-12)
        rows = emission.exp().numpy()[words[a:b]]
        value, gamma = reference.marginals(start.exp().numpy(), transition.left.numpy(), transition.right.numpy(), rows)
        assert_allclose(value, want[0], rtol=1e-12)
        assert_allclose(gamma, want[1], atol=1e-12)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_match_enumeration(seed, features):
    model = random_blocks(seed=seed, features=features)
    start, matrix, emission = one_block(model)
    assert_allclose(matrix.dense()[0].sum(1), 1, rtol=1e-12)
    words, offsets = random_words(7, (3, 1, 4, 2), seed=seed)
    log_z = score(*model[:3], words, offsets, model.blocks)
    found = marginals(*model[:3], words, offsets, model.blocks)
    for n, (a, b) in enumerate(itertools.pairwise(offsets)):
        want = enumerate_states(start, matrix.dense()[0], emission, words[a:b])
        assert_allclose(log_z[n], want[0], rtol=1e-12)
        posterior = want[1].reshape(-1, 3, 2)[np.arange(b - a), model.blocks[words[a:b]]]
        assert_allclose(found[a:b], posterior, atol=1e-12)
        evidence = patterns(model, words[a:b])
        assert_allclose(Messages(*model[:2], evidence).log_z, want[0], rtol=1e-12)
        states, value = viterbi(*model[:2], evidence)
        assert states == want[2]
        assert_allclose(value, want[3], rtol=1e-12)


@pytest.mark.parametrize("at_once", [queries.AT_ONCE, 12])
@pytest.mark.parametrize("features", [False, True])
def test_sets_of_words_and_any_word_match_enumeration(features, at_once, monkeypatch):
    monkeypatch.setattr(queries, "AT_ONCE", at_once)  # a few pairs of blocks at a time
    model = random_blocks(seed=4, features=features)
    start, matrix, emission = one_block(model)
    tokens = [(0, 1, 3), None, 2, None, None]
    every = [range(7) if t is None else np.atleast_1d(t).tolist() for t in tokens]
    rows = torch.stack([emission[list(words)].logsumexp(0) for words in every])
    want = enumerate_states(start, matrix.dense()[0], rows, range(5))
    evidence = patterns(model, tokens)
    found = Messages(*model[:2], evidence)
    assert_allclose(found.log_z, want[0], rtol=1e-12)
    assert_allclose(Messages(start, matrix, opened(rows, range(5))).log_z, want[0], rtol=1e-12)
    for t, beta in enumerate(found.backward()):
        posterior = np.zeros((3, 2))
        posterior[evidence[t].blocks] = found.alpha[t] * beta
        assert_allclose(posterior.ravel(), want[1][t], atol=1e-12)
    states, value = viterbi(*model[:2], evidence)
    assert states == want[2]
    assert_allclose(value, want[3], rtol=1e-12)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 6), st.integers(1, 90))
def test_low_rank_matches_the_dense_model(seed, S, R, n_sentences):
    start, transition, emission = random_hmm(S, R, 6, seed=seed)
    lengths = np.random.default_rng(seed).integers(1, 9, n_sentences)
    words, offsets = random_words(6, lengths, seed=seed)
    one = log_evidence(start, transition, emission, words, offsets)
    other = log_evidence(start, dense(transition), emission, words, offsets)
    assert_allclose(one, other, rtol=1e-8)
    assert_allclose(score(start, transition, emission, words, offsets), other, rtol=1e-8)


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 4), st.integers(1, 90), st.booleans())
def test_blocks_match_the_dense_model(seed, C, k, n_sentences, features):
    model = random_blocks(C, k, 9, seed=seed, features=features)
    lengths = np.random.default_rng(seed).integers(1, 9, n_sentences)
    words, offsets = random_words(9, lengths, seed=seed)
    want = score(*one_block(model), words, offsets)
    assert_allclose(score(*model[:3], words, offsets, model.blocks), want, rtol=1e-10)
    needed = moves(words, offsets, model.blocks)
    assert len(needed.pairs) <= C * C
    if len(needed.pairs):
        found = log_evidence(*model[:1], model.transition.between(needed.pairs), model[2], words, offsets, needed)
        assert_allclose(found, want, rtol=1e-10)


def test_gradients_by_finite_differences():
    start, transition, emission = random_hmm(4, 3, seed=1)
    words, offsets = random_words(4, (3, 1, 5, 2, 5))
    leaves = [x.clone().requires_grad_() for x in (start, emission, transition.left, transition.right)]
    assert torch.autograd.gradcheck(lambda s, e, u, v: log_evidence(s, LowRank(u, v), e, words, offsets), leaves)
    leaves = [x.clone().requires_grad_() for x in (start, emission, transition.dense()[0])]
    assert torch.autograd.gradcheck(lambda s, e, m: log_evidence(s, Dense(m), e, words, offsets), leaves)


@pytest.mark.parametrize("features", [False, True])
def test_gradients_of_blocks_by_finite_differences(features):
    model = random_blocks(3, 2, 5, 3, seed=1, features=features)
    words, offsets = random_words(5, (3, 1, 5, 2, 5))
    needed = moves(words, offsets, model.blocks)
    t = model.transition
    leaves = [x.clone().requires_grad_() for x in (model[0], model[2], t.left, t.right, t.bias, t.log_leave)]

    def value(start, emission, *parts):
        given = Blocks(*parts, features).between(needed.pairs)
        return log_evidence(start, given, emission, words, offsets, needed)

    assert torch.autograd.gradcheck(value, leaves)


def test_counts_of_many_groups_add_up():
    model = random_blocks(4, 8, 30, seed=5)
    words, offsets = random_words(30, np.random.default_rng(1).integers(1, 60, 90), seed=5)
    leaf, needed = model.log_emission.clone().requires_grad_(), moves(words, offsets, model.blocks)
    transition = model.transition.between(needed.pairs)
    log_evidence(model.log_start, transition, leaf, words, offsets, needed).sum().backward()
    assert_allclose(leaf.grad.sum(dim=1), np.bincount(words, minlength=30), rtol=1e-10)  # one state per word
    assert len(groups(offsets)) == 4


@pytest.mark.parametrize("C", [1, 6])
def test_results_do_not_depend_on_threads(C):
    model = random_blocks(C, 30 // C, 20, 5, seed=2, dtype=torch.float32)
    words, offsets = random_words(20, np.random.default_rng(0).integers(1, 30, 70), seed=2)
    needed, found = moves(words, offsets, model.blocks), []
    for n in (1, 2, 3):
        t = model.transition
        leaves = [x.clone().requires_grad_() for x in (t.left, t.right, t.bias, t.log_leave)]
        with threads.num_threads(n):
            given = Blocks(*leaves).between(needed.pairs)
            log_evidence(model.log_start, given, model.log_emission, words, offsets, needed).sum().backward()
        found.append([leaf.grad.numpy().tobytes() for leaf in leaves])
    assert found[0] == found[1] == found[2]


def test_a_thousand_words_in_single_precision():
    words, offsets = random_words(50, (1000, 700, 3), seed=3)
    double = random_hmm(400, 16, 50, seed=3, peaked=3.0)
    single = random_hmm(400, 16, 50, seed=3, peaked=3.0, dtype=torch.float32)
    assert_allclose(score(*single, words, offsets), score(*double, words, offsets), rtol=1e-4 / 20)
    double, single = (random_blocks(10, 20, 50, 8, seed=3, dtype=dtype) for dtype in (torch.float64, torch.float32))
    want = score(*double[:3], words, offsets, double.blocks)
    assert_allclose(score(*single[:3], words, offsets, single.blocks), want, rtol=1e-6)


def test_sentences_that_underflow_are_scored_in_double_precision():
    tiny = torch.tensor([[1.0, 1e-30], [1e-30, 1.0]])
    transition = Dense(torch.tensor([[1.0, 1e-30], [1e-30, 1.0]]))
    emission = tiny.log().T.contiguous()
    words, offsets = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 6])
    start = torch.tensor([1.0, 1e-30]).log()
    assert_allclose(score(start, transition, emission, words, offsets)[0], np.log(3e-30 + 1e-30), rtol=0.05)


def test_impossible_sentences():
    start, transition, emission = random_hmm()
    emission[2] = -np.inf
    words, offsets = np.array([0, 2, 1]), np.array([0, 2, 3])
    found = score(start, transition, emission, words, offsets)
    assert found[0] == -np.inf
    assert np.isfinite(found[1])
    leaf = emission.clone().requires_grad_()
    log_evidence(start, transition, leaf, words, offsets).sum().backward()
    assert torch.isfinite(leaf.grad).all()
    evidence = opened(emission, words[:2])
    assert Messages(start, transition, evidence).log_z == -np.inf
    with pytest.raises(ImpossibleError, match="nothing"):
        Messages(start, transition, evidence).possible("nothing follows.")
    with pytest.raises(ImpossibleError, match="probability zero"):
        viterbi(start, transition, evidence)


def test_next_states():
    model = random_blocks(seed=3)
    start, matrix, emission = one_block(model)
    found = Messages(*model[:2], patterns(model, [1, 3])).following(3)
    evidence = score(start, matrix, emission, np.array([1, 3, 2, 1, 3]), np.array([0, 3, 5]))
    assert_allclose(float(found.sum()), 1)
    assert_allclose(float(found.reshape(-1) @ emission[2].exp()), np.exp(evidence[0] - evidence[1]))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_packing_keeps_every_word(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    packed = pack(offsets)
    rows = [packed.at[packed.offsets[:-1][packed.sizes > b] + b] for b in range(len(lengths))]
    for own, n in zip(rows, packed.order, strict=True):
        assert own.tolist() == list(range(offsets[n], offsets[n + 1]))
    assert sorted(map(len, rows), reverse=True) == [len(row) for row in rows]
    seen = sorted(n for part in groups(offsets) for n in part.order)
    assert seen == list(range(len(lengths)))


def test_errors():
    start, transition, emission = random_hmm()
    words, offsets = random_words()
    with pytest.raises(ShapeError, match="same shape"):
        LowRank(transition.left, transition.right[:, :1])
    with pytest.raises(ShapeError, match=r"\(S, S\)"):
        Dense(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="S=5"):
        log_evidence(start[:2], transition, emission, words, offsets)
    with pytest.raises(ValueRangeError, match="rows of log_emission"):
        log_evidence(start, transition, emission, words + 9, offsets)
    with pytest.raises(ShapeError, match="offsets"):
        log_evidence(start, transition, emission, words, offsets[:-1])
    with pytest.raises(ShapeError, match="move into each word"):
        log_evidence(start, transition, emission, words, offsets, moves(words[:3], np.array([0, 3]), words * 0))
    with pytest.raises(ValueRangeError, match="no words"):
        pack(np.array([0, 0, 10]))
    with pytest.raises(ShapeError, match="no sentence"):
        pack(np.array([0]))
