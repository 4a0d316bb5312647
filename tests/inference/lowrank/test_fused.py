"""The fused sweep against the plain one, threads against each other, and tiles against matrix products."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.compiled import from_python
from tests.inference.lowrank.cases import random_hmm, random_words
from trelliswork.compute import threads
from trelliswork.compute.kernels.products import Factor
from trelliswork.inference.lowrank import LowRank, expectations, fused, groups, log_evidence, pack, score
from trelliswork.inference.lowrank.fused import Fused
from trelliswork.inference.lowrank.kernels.products import ROWS, lay_columns, lay_rows, multiply, width
from trelliswork.inference.lowrank.packing import merge
from trelliswork.inference.lowrank.sweep import Counts, Sweep

call_lay_columns = from_python(lay_columns)
call_multiply = from_python(multiply)


def swept(kind, hmm, words, offsets, **options):
    """Return log evidence and counts, with a different weight for each sentence."""
    log_start, transition, log_emission = hmm
    start, emission = log_start.exp(), log_emission.exp() / log_emission.exp().amax(dim=1, keepdim=True)
    packed = pack(words, offsets)
    sweep = kind(packed, start, transition, emission, **options)
    counts = Counts(torch.zeros_like(start), torch.zeros_like(emission), transition.zeros())
    log_z = sweep.forward()
    sweep.backward(np.linspace(1, 2, packed.n_sentences)[packed.order], counts)
    return [log_z, *(x.numpy() for x in (counts.start, counts.emission, *counts.transition))]


@settings(max_examples=30)
@given(st.integers(0, 1000), st.integers(1, 130), st.integers(1, 40), st.integers(1, 30))
def test_fused_matches_the_plain_sweep(seed, S, R, n_sentences):
    """Sizes on both sides of a tile, a panel and a group."""
    words, offsets = random_words(6, np.random.default_rng(seed).integers(1, 12, n_sentences), seed=seed)
    hmm = random_hmm(S, R, 6, seed=seed)
    for found, want in zip(swept(Fused, hmm, words, offsets), swept(Sweep, hmm, words, offsets), strict=True):
        assert_allclose(found, want, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_blocks_and_chunks_on_any_number_of_threads(dtype, monkeypatch):
    monkeypatch.setattr(fused, "LEAST_GROUPS", 1)
    monkeypatch.setattr(fused, "LEAST_WORK", 1)
    hmm = random_hmm(500, 30, 20, seed=1, dtype=dtype)
    words, offsets = random_words(20, np.random.default_rng(1).integers(1, 25, 40), seed=1)
    found = []
    for n in (1, 2, 3, 20):
        with threads.num_threads(n):
            found.append(swept(Fused, hmm, words, offsets))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert_array_equal(one, two)
    plain = swept(Sweep, random_hmm(500, 30, 20, seed=1), words, offsets)
    for one, two in zip(found[0], plain, strict=True):
        assert_allclose(one, two, rtol=1e-4 if dtype == torch.float32 else 1e-10, atol=1e-6)


def test_log_emissions_match_probabilities():
    """Emissions as logarithms minus a shift; and a second backward pass, which recomputes the states."""
    log_start, transition, log_emission = random_hmm(110, 7, 9, seed=2)
    words, offsets = random_words(9, (4, 1, 6), seed=2)
    leaves = [x.clone().requires_grad_() for x in (log_start, log_emission, *transition.tensors())]
    value = log_evidence(leaves[0], LowRank(*leaves[2:]), leaves[1], words, offsets).sum()
    first = torch.autograd.grad(value, leaves, retain_graph=True)
    again = torch.autograd.grad(value, leaves)
    log_z, counts = expectations(groups(words, offsets), log_start.exp(), transition, log_emission.exp(), 1.0)
    assert_allclose(value.item(), log_z.sum(), rtol=1e-12)
    for one, two, three in zip(first, again, (counts.start, counts.emission, *counts.transition), strict=True):
        assert_array_equal(one, two)
        assert_allclose(one, three, rtol=1e-9, atol=1e-13)


def test_improbable_sentences_use_the_plain_sweep():
    """Sentence 1 has a word that is nearly impossible after the one before: its counts are those of the plain sweep."""
    tiny = 1e-25
    half = torch.eye(2)
    transition = LowRank(torch.tensor([[1 - tiny, tiny], [tiny, 1 - tiny]]), half)
    log_emission = torch.tensor([[1.0, tiny], [tiny, 1.0]]).log()
    words, offsets = np.array([0, 0, 0, 1, 1]), np.array([0, 2, 5])
    leaves = [x.clone().requires_grad_() for x in (log_emission, *transition.tensors())]
    log_start = torch.tensor([0.5, 0.5]).log()
    value = log_evidence(log_start, LowRank(*leaves[1:]), leaves[0], words, offsets)
    value.sum().backward()
    double = [x.detach().double() for x in leaves]
    want = score(log_start.double(), LowRank(*double[1:]), double[0], words, offsets)
    assert np.isneginf(Fused(pack(words, offsets), log_start.exp(), transition, log_emission.exp()).forward()).any()
    assert_allclose(value.detach(), want, rtol=1e-4)
    assert_allclose(leaves[0].grad.sum(), 5, rtol=1e-5)  # one state per word


@given(st.lists(st.integers(1, 7), min_size=1, max_size=70))
def test_merged_groups_hold_all_sentences(lengths):
    words, offsets = np.arange(sum(lengths)), np.concatenate([[0], np.cumsum(lengths)])
    merged = merge(groups(words, offsets))
    assert merged.lengths.tolist() == sorted(lengths, reverse=True)
    for b, n in enumerate(merged.order):
        assert merged.words[merged.rows(b)].tolist() == words[offsets[n] : offsets[n + 1]].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth", [1, 5])
def test_tiles(dtype, depth):
    rng = np.random.default_rng(depth)
    out = np.ones(1000, dtype)
    w = width(out)
    a, x = rng.random((ROWS, depth)).astype(dtype), rng.random((depth, w)).astype(dtype)
    call_multiply(Factor(a, 0, depth, 1), x, 0, depth, out, 7, w + 2, False)
    rows = out[7 : 7 + ROWS * (w + 2)].reshape(ROWS, w + 2)
    assert_allclose(rows[:, :w], 1 + a @ x, rtol=1e-6)
    rows[:, :w] = 1
    assert (out == 1).all()
    matrix = rng.random((depth + w, w + 3)).astype(dtype)
    panels = np.empty((2, w + 3, w), dtype)
    lay_rows(0, 2, matrix, panels)
    assert_array_equal(panels[0], matrix[:w].T)
    assert_array_equal(panels[1, :, :depth], matrix[w:].T)
    assert (panels[1, :, depth:] == 0).all()
    laid = np.empty(2 * depth * w, dtype)
    call_lay_columns(matrix, 2, depth, laid)
    laid = laid.reshape(2, depth, w)
    assert_array_equal(laid[0], matrix[2 : 2 + depth, :w])
    assert_array_equal(laid[1, :, :3], matrix[2 : 2 + depth, w:])
    assert (laid[1, :, 3:] == 0).all()
