"""Compiled recursions of alignments against the reference, and the reference against enumeration."""

import numpy as np
import pytest

from tests.oracle.alignments import Aligned
from trelliswork.inference import alignment
from trelliswork.inference.alignment import reference


def random_case(seed, forbidden=0.0):
    rng = np.random.default_rng(seed)
    B, N, M = rng.integers(1, 4, 3)
    log_moves, log_pairwise = rng.normal(size=(B, N + 1, M + 1, 3)), rng.normal(size=(3, 3))
    log_moves[rng.random(log_moves.shape) < forbidden] = -np.inf
    log_pairwise[rng.random((3, 3)) < forbidden] = -np.inf
    return log_moves, log_pairwise, rng.integers(1, [N + 1, M + 1], (B, 2))


def arguments(log_moves, log_pairwise, lengths):
    graph = alignment.lattice(lengths, log_moves.shape[2] - 1)
    return graph, log_moves.reshape(len(lengths), -1), log_pairwise.ravel()


@pytest.mark.parametrize("seed", range(20))
def test_reference_is_the_sum_and_the_maximum_of_all_alignments(seed):
    log_moves, log_pairwise, lengths = random_case(seed)
    for scores, (n, m) in zip(log_moves, lengths, strict=True):
        want, inside = Aligned(scores, (n, m), log_pairwise), scores[: n + 1, : m + 1]
        assert reference.forward(inside, log_pairwise) == pytest.approx(want.log_z, abs=1e-12)
        assert reference.forward(inside, log_pairwise, add=np.max) == pytest.approx(want.scores.max(), abs=1e-12)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(20))
def test_recursions_match_enumeration(seed, forbidden):
    log_moves, log_pairwise, lengths = case = random_case(seed, forbidden)
    given = arguments(*case)
    found = alignment.ALIGNMENTS.expectations(*given)
    paths, scores = alignment.ALIGNMENTS.topk(*given, 5)
    moves = alignment.moves_of(paths, sum(log_moves.shape[1:3]) - 2)
    for b, (n, m) in enumerate(lengths):
        want = Aligned(log_moves[b], (n, m), log_pairwise)
        np.testing.assert_allclose(found.log_z[b], want.log_z, atol=1e-12)
        np.testing.assert_allclose(found.parts[b], want.marginals().ravel(), atol=1e-12)
        np.testing.assert_allclose(found.pairs[b], want.transition_counts().ravel(), atol=1e-12)
        k = min(scores.shape[1], int(np.isfinite(want.scores).sum()))
        np.testing.assert_allclose(scores[b, :k], np.sort(want.scores)[::-1][:k], atol=1e-12)
        assert (scores[b, k:] == -np.inf).all()
        score_of = {row.tobytes(): score for row, score in zip(want.structures, want.scores, strict=True)}
        assert len({row.tobytes() for row in moves[b, :k]}) == k
        np.testing.assert_allclose([score_of[row.tobytes()] for row in moves[b, :k]], scores[b, :k], atol=1e-12)


def test_samples_have_their_probabilities():
    log_moves, log_pairwise, lengths = case = random_case(5)
    graph, parts, pairs = arguments(*case)
    uniforms = np.random.default_rng(0).random((20_000, len(lengths), graph.longest))
    _, paths = alignment.ALIGNMENTS.sample(graph, parts, pairs, uniforms)
    drawn = alignment.moves_of(paths, sum(log_moves.shape[1:3]) - 2)
    for b, (n, m) in enumerate(lengths):
        want = Aligned(log_moves[b], (n, m), log_pairwise)
        rows, counts = np.unique(drawn[:, b], axis=0, return_counts=True)
        p = {row.tobytes(): p for row, p in zip(want.structures, want.probabilities, strict=True)}
        for row, count in zip(rows, counts, strict=True):
            assert count / len(drawn) == pytest.approx(p[row.tobytes()], abs=0.02)
