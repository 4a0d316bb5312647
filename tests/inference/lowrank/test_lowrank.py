"""Low-rank HMMs against enumeration, the dense model and finite differences."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.inference.lowrank.cases import dense, enumerate_states, random_hmm, random_words
from trelliswork.compute import threads
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError
from trelliswork.inference.lowrank import (
    Dense,
    LowRank,
    following,
    groups,
    log_evidence,
    marginals,
    pack,
    passes,
    rank_space,
    reference,
    sample_states,
    score,
    viterbi,
)


@pytest.mark.parametrize("band", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_reference_and_kernels_match_enumeration(seed, band):
    start, transition, emission = random_hmm(4, 2, seed=seed, band=band)
    words, offsets = random_words(seed=seed)
    log_z, found = marginals(start, transition, emission, words, offsets)
    states, values = viterbi(start, transition, emission, words, offsets)
    for n, (a, b) in enumerate(itertools.pairwise(offsets)):
        want = enumerate_states(start, transition.dense(), emission, words[a:b])
        assert_allclose(log_z[n], want[0], rtol=1e-12)
        assert_allclose(found[a:b], want[1], atol=1e-12)
        assert states[a:b].tolist() == want[2]
        assert_allclose(values[n], want[3], rtol=1e-12)
        if not band:
            rows = emission.exp().numpy()[words[a:b]]
            value, gamma = reference.marginals(
                start.exp().numpy(), transition.left.numpy(), transition.right.numpy(), rows
            )
            assert_allclose(value, want[0], rtol=1e-12)
            assert_allclose(gamma, want[1], atol=1e-12)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 6), st.integers(0, 2), st.integers(1, 90))
def test_low_rank_matches_the_dense_model(seed, S, R, band, n_sentences):
    start, transition, emission = random_hmm(S, R, 6, seed=seed, band=band)
    lengths = np.random.default_rng(seed).integers(1, 9, n_sentences)
    words, offsets = random_words(6, lengths, seed=seed)
    one = log_evidence(start, transition, emission, words, offsets)
    other = log_evidence(start, dense(transition), emission, words, offsets)
    assert_allclose(one, other, rtol=1e-8)
    assert_allclose(score(start, transition, emission, words, offsets), other, rtol=1e-8)


@pytest.mark.parametrize("every", [None, 1, 2, 3, 50])
@pytest.mark.parametrize("band", [0, 1])
def test_gradients_by_finite_differences(band, every):
    start, transition, emission = random_hmm(4, 3, seed=1, band=band)
    words, offsets = random_words(4, (3, 1, 5, 2, 5))
    parts = [part.clone().requires_grad_() for part in transition.tensors()]
    leaves = [start.requires_grad_(), emission.requires_grad_(), *parts]

    def value(start, emission, *parts):
        return log_evidence(start, LowRank(*parts), emission, words, offsets, every=every)

    assert torch.autograd.gradcheck(value, leaves)


@pytest.mark.parametrize("every", [None, 2])
def test_gradients_of_the_dense_model(every):
    start, transition, emission = random_hmm(4, 3, seed=1)
    words, offsets = random_words(4, (3, 1, 5, 2, 5))
    leaves = [start.requires_grad_(), emission.requires_grad_(), transition.dense().requires_grad_()]
    assert torch.autograd.gradcheck(lambda s, e, m: log_evidence(s, Dense(m), e, words, offsets, every=every), leaves)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_recomputed_states_give_the_same_gradients(every):
    start, transition, emission = random_hmm(30, 5, 20, seed=2)
    words, offsets = random_words(20, np.random.default_rng(0).integers(1, 30, 70), seed=2)
    found = []
    for choice in (None, every):
        leaves = [x.clone().requires_grad_() for x in (start, emission, *transition.tensors())]
        log_evidence(leaves[0], LowRank(*leaves[2:]), leaves[1], words, offsets, every=choice).sum().backward()
        found.append([x.grad for x in leaves])
    for one, other in zip(*found, strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_blocks_of_positions_add_up():
    """More rows than one block of the backward pass holds, and several groups."""
    start, transition, emission = random_hmm(8, 3, 10, seed=5)
    words, offsets = random_words(10, np.random.default_rng(1).integers(1, 60, 90), seed=5)
    leaf = emission.clone().requires_grad_()
    log_evidence(start, transition, leaf, words, offsets).sum().backward()
    assert_allclose(leaf.grad.sum(dim=1), np.bincount(words, minlength=10), rtol=1e-10)  # one state per word
    assert len(groups(words, offsets)) == 4


def test_results_do_not_depend_on_threads():
    start, transition, emission = random_hmm(50, 5, 20, seed=2, dtype=torch.float32)
    words, offsets = random_words(20, np.random.default_rng(0).integers(1, 30, 70), seed=2)
    found = []
    for n in (1, 2, 3):
        leaves = [x.clone().requires_grad_() for x in transition.tensors()]
        with threads.num_threads(n):
            log_evidence(start, LowRank(*leaves), emission, words, offsets).sum().backward()
        found.append([leaf.grad.numpy().tobytes() for leaf in leaves])
    assert found[0] == found[1] == found[2]


def test_a_thousand_words_in_single_precision():
    words, offsets = random_words(50, (1000, 700, 3), seed=3)
    double = random_hmm(400, 16, 50, seed=3, peaked=3.0)
    single = random_hmm(400, 16, 50, seed=3, peaked=3.0, dtype=torch.float32)
    assert_allclose(score(*single, words, offsets), score(*double, words, offsets), rtol=1e-4 / 20)


@given(st.integers(0, 1000), st.integers(1, 40))
def test_rank_space_matches_state_space(seed, n_sentences):
    start, transition, emission = random_hmm(9, 3, 6, seed=seed)
    lengths = np.random.default_rng(seed).integers(1, 9, n_sentences)
    words, offsets = random_words(6, lengths, seed=seed)
    want = passes.score(start, transition, emission, words, offsets)
    for operators in ([0, 1, 2, 3, 4, 5], [4, 1], [0]):
        found = rank_space.score(start, transition, emission, words, offsets, operators=np.array(operators))
        assert_allclose(found, want, rtol=1e-10)


def test_rank_space_is_chosen_by_cost():
    words = np.repeat([0, 1, 2], [5000, 10, 1])
    _, small, _ = random_hmm(1000, 8, 3)
    assert rank_space.frequent(small, words, 3).tolist() == [0, 1]
    _, wide, _ = random_hmm(100, 90, 3)
    assert rank_space.frequent(wide, words, 3).tolist() == []
    assert rank_space.frequent(dense(small), words, 3).tolist() == []
    assert rank_space.frequent(random_hmm(1000, 8, 3, band=1)[1], words, 3).tolist() == []


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
    for question in (
        lambda: following(start, transition, emission, words[:2]),
        lambda: viterbi(start, transition, emission, words[:2], np.array([0, 2])),
        lambda: sample_states(start, transition, emission, words[:2], 1, np.random.default_rng(0)),
    ):
        with pytest.raises(ImpossibleError, match="probability zero"):
            question()


def test_next_states():
    start, transition, emission = random_hmm()
    assert_allclose(following(start, transition, emission, np.array([], int)), start.exp())
    words = np.array([1, 3])
    found = following(start, transition, emission, words)
    evidence = score(start, transition, emission, np.array([1, 3, 2, 1, 3]), np.array([0, 3, 5]))
    assert_allclose(float(found.sum()), 1)
    assert_allclose(float(found @ emission[2].exp()), np.exp(evidence[0] - evidence[1]))


@pytest.mark.parametrize("band", [0, 1])
def test_samples_follow_the_posterior(band):
    start, transition, emission = random_hmm(3, 2, seed=4, band=band)
    words = np.array([1, 3, 0])
    drawn = sample_states(start, transition, emission, words, 4000, np.random.default_rng(0))
    want = enumerate_states(start, transition.dense(), emission, words)[1]
    for t in range(3):
        assert_allclose(np.bincount(drawn[:, t], minlength=3) / 4000, want[t], atol=0.03)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (drawn[:, 0], drawn[:, 1]), 1 / 4000)
    alpha = (start + emission[1]).exp()
    beta = transition.dense() @ emission[0].exp()
    both = alpha[:, None] * transition.dense() * (emission[3].exp() * beta)[None]
    assert_allclose(pairs, both / both.sum(), atol=0.03)


def test_rows_and_columns():
    _, transition, _ = random_hmm(6, 2, band=2)
    matrix = transition.dense()
    assert_allclose(matrix.sum(1), 1)
    for z in range(6):
        assert_allclose(transition.row(z), matrix[z])
        assert_allclose(transition.column(z), matrix[:, z])


@given(st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_packing_keeps_every_word(lengths):
    words, offsets = np.arange(sum(lengths)), np.concatenate([[0], np.cumsum(lengths)])
    packed = pack(words, offsets)
    assert packed.lengths.tolist() == sorted(lengths, reverse=True)
    for b, n in enumerate(packed.order):
        assert packed.words[packed.rows(b)].tolist() == words[offsets[n] : offsets[n + 1]].tolist()
    seen = sorted(n for part in groups(words, offsets) for n in part.order)
    assert seen == list(range(len(lengths)))


def test_errors():
    start, transition, emission = random_hmm()
    words, offsets = random_words()
    with pytest.raises(ShapeError, match="same shape"):
        LowRank(transition.left, transition.right[:, :1])
    with pytest.raises(ShapeError, match="2 K"):
        LowRank(transition.left, transition.right, torch.zeros(5, 2))
    with pytest.raises(ShapeError, match=r"\(S, S\)"):
        Dense(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="S=5"):
        log_evidence(start[:2], transition, emission, words, offsets)
    with pytest.raises(ValueRangeError, match="rows of log_emission"):
        log_evidence(start, transition, emission, words + 9, offsets)
    with pytest.raises(ShapeError, match="offsets"):
        log_evidence(start, transition, emission, words, offsets[:-1])
    with pytest.raises(ValueRangeError, match="every"):
        log_evidence(start, transition, emission, words, offsets, every=0)
    with pytest.raises(ValueRangeError, match="no words"):
        pack(words, np.array([0, 0, 10]))
    with pytest.raises(ShapeError, match="no sentence"):
        pack(words, np.array([0]))
