"""Compiled recursions of segmentations against the reference, and the reference against enumeration."""

import numpy as np
import pytest

from tests.oracle.segments import Segmented
from trelliswork.inference import segment
from trelliswork.inference.segment import reference
from trelliswork.inference.semirings import labels_of


def random_case(seed, forbidden=0.0):
    rng = np.random.default_rng(seed)
    B, T, L, S = rng.integers(1, 5, 4)
    log_segment, log_pairwise = rng.normal(size=(B, T, L, S)), rng.normal(size=(S, S))
    log_segment[rng.random(log_segment.shape) < forbidden] = -np.inf
    log_pairwise[rng.random((S, S)) < forbidden] = -np.inf
    return log_segment, log_pairwise, rng.integers(1, T + 1, B)


def arguments(log_segment, log_pairwise, lengths):
    _, T, L, S = log_segment.shape
    graph = segment.lattice(lengths, T, L, S)
    return graph, log_segment.reshape(len(lengths), -1), log_pairwise.ravel()


@pytest.mark.parametrize("seed", range(20))
def test_reference_is_the_sum_and_the_maximum_of_all_segmentations(seed):
    log_segment, log_pairwise, lengths = random_case(seed)
    for b, n in enumerate(lengths):
        want = Segmented(log_segment[b], n, log_pairwise)
        assert reference.forward(log_segment[b, :n], log_pairwise) == pytest.approx(want.log_z, abs=1e-12)
        best = reference.forward(log_segment[b, :n], log_pairwise, add=np.max)
        assert best == pytest.approx(want.scores.max(), abs=1e-12)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(20))
def test_recursions_match_enumeration(seed, forbidden):
    log_segment, log_pairwise, lengths = case = random_case(seed, forbidden)
    _, T, _, S = log_segment.shape
    given = arguments(*case)
    log_z = segment.SEGMENTATIONS.log_partition(*given)
    found = segment.SEGMENTATIONS.expectations(*given)
    paths, scores = segment.SEGMENTATIONS.topk(*given, 5)
    labels = labels_of(paths, T, S, 2 * S)
    for b, n in enumerate(lengths):
        want = Segmented(log_segment[b], n, log_pairwise)
        np.testing.assert_allclose([log_z[b], found.log_z[b]], want.log_z, atol=1e-12)
        np.testing.assert_allclose(found.parts[b], want.marginals().ravel(), atol=1e-12)
        np.testing.assert_allclose(found.pairs[b], want.transition_counts().ravel(), atol=1e-12)
        k = min(scores.shape[1], int(np.isfinite(want.scores).sum()))
        np.testing.assert_allclose(scores[b, :k], np.sort(want.scores)[::-1][:k], atol=1e-12)
        assert (scores[b, k:] == -np.inf).all()
        row_of = {row.tobytes(): score for row, score in zip(want.structures, want.scores, strict=True)}
        assert len({row.tobytes() for row in labels[b, :k]}) == k
        np.testing.assert_allclose([row_of[row.tobytes()] for row in labels[b, :k]], scores[b, :k], atol=1e-12)


def test_samples_have_their_probabilities():
    log_segment, log_pairwise, lengths = case = random_case(3)
    graph, parts, pairs = arguments(*case)
    uniforms = np.random.default_rng(0).random((20_000, len(lengths), graph.longest))
    log_z, paths = segment.SEGMENTATIONS.sample(graph, parts, pairs, uniforms)
    T, S = log_segment.shape[1::2]
    drawn = labels_of(paths, T, S, 2 * S)
    for b, n in enumerate(lengths):
        want = Segmented(log_segment[b], n, log_pairwise)
        assert log_z[b] == pytest.approx(want.log_z, abs=1e-12)
        rows, counts = np.unique(drawn[:, b], axis=0, return_counts=True)
        p = {row.tobytes(): p for row, p in zip(want.structures, want.probabilities, strict=True)}
        for row, count in zip(rows, counts, strict=True):
            assert count / len(drawn) == pytest.approx(p[row.tobytes()], abs=0.02)
