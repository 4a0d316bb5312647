"""Probabilities of segments against the enumeration of all labelings."""

import numpy as np
import pytest

from tests.oracle.chain import enumerate_batch
from trelliswork.errors import ValueRangeError
from trelliswork.inference import chain
from trelliswork.inference.chain.segments import SegmentKinds, Segments, of_labelings

KINDS = np.array([-1, 0, 0, 1, 1])  # O, B-X, I-X, B-Y, I-Y
JOINS = np.zeros((5, 5), bool)
JOINS[1:3, 2] = JOINS[3:5, 4] = True


def read(labels) -> list[tuple[int, int, int]]:
    """Segments of one labeling by their definition: kind, first position, one past the last."""
    segments, first = [], 0
    for t in range(1, len(labels) + 1):
        if t == len(labels) or not JOINS[labels[t - 1], labels[t]]:
            if KINDS[labels[first]] >= 0:
                segments.append((int(KINDS[labels[first]]), first, t))
            first = t
    return segments


def by_enumeration(unary, pairwise, lengths) -> dict[tuple[int, int, int, int], float]:
    p: dict[tuple[int, int, int, int], float] = {}
    for b, every in enumerate(enumerate_batch(unary, pairwise, lengths)):
        for labels, probability in zip(every.labelings, every.probabilities, strict=True):
            for segment in read(labels):
                p[b, *segment] = p.get((b, *segment), 0.0) + probability
    return p


@pytest.mark.parametrize("layout", ["shared", "by position", "forbidden"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_segments_against_enumeration(layout, dtype):
    rng = np.random.default_rng(0)
    lengths = np.array([4, 1, 3])
    unary = 2 * rng.standard_normal((3, 4, 5)).astype(dtype)
    pairwise = rng.standard_normal((3, 3, 5, 5) if layout == "by position" else (5, 5)).astype(dtype)
    if layout == "forbidden":  # BIO: only B-X and I-X before I-X
        pairwise[[0, 0, 1, 2, 3, 4], [2, 4, 4, 4, 2, 2]] = -np.inf
        unary[:, 0, [2, 4]] = -np.inf
    segments = Segments(chain.chain_potentials(unary, pairwise, lengths), SegmentKinds(KINDS, JOINS))
    expected = {s: p for s, p in by_enumeration(unary, pairwise, lengths).items() if p > 0}
    rows, log_p = segments.likely()
    assert {tuple(row) for row in rows.tolist()} == set(expected)
    np.testing.assert_allclose(np.exp(log_p), [expected[tuple(row)] for row in rows.tolist()], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(segments.log_probabilities(rows), log_p, rtol=1e-9, atol=1e-9)
    some, _ = segments.likely(0.1)
    assert {tuple(row) for row in some.tolist()} == {s for s, p in expected.items() if p >= 0.1}


@pytest.mark.parametrize("layout", ["shared", "by position", "underflow"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("runs", [False, True])
def test_segments_of_labelings(layout, dtype, runs):
    """In BIO and in runs of equal labels, one labeling forms a segment."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 7, 20)
    unary = 2 * rng.standard_normal((20, 6, 5)).astype(dtype)
    pairwise = rng.standard_normal((20, 5, 5, 5) if layout == "by position" else (5, 5)).astype(dtype)
    if layout == "underflow":
        unary[3, :, 0] += 2000
        pairwise[0] -= 300
    kinds = SegmentKinds(np.arange(5), np.eye(5, dtype=bool)) if runs else SegmentKinds(KINDS, JOINS)
    if not runs:
        pairwise[..., [0, 0, 1, 2, 3, 4], [2, 4, 4, 4, 2, 2]] = -np.inf
        unary[:, 0, [2, 4]] = -np.inf
    p = chain.chain_potentials(unary, pairwise, lengths)
    found, segments = of_labelings(p, chain.viterbi(p)[0], kinds), Segments(p, kinds)
    np.testing.assert_allclose(found.p, np.exp(segments.log_probabilities(found.rows)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.log_z, segments.log_z, rtol=1e-5)
    tokens = np.zeros((20, 6), int)
    for b, kind, first, stop in found.rows.tolist():
        assert (kinds.kinds[chain.viterbi(p)[0][b, first:stop]] == kind).all()
        tokens[b, first:stop] += 1
    assert tokens.max() == 1


def test_the_probability_of_a_segment_is_not_a_product_of_marginals():
    """Two labelings, 0.5 each: B I and O O. The segment has 0.5, the product of its marginals 0.25."""
    pairwise = np.full((5, 5), -np.inf)
    pairwise[1, 2] = pairwise[0, 0] = 0.0
    segments = Segments(chain.chain_potentials(np.zeros((1, 2, 5)), pairwise), SegmentKinds(KINDS, JOINS))
    np.testing.assert_allclose(segments.log_probabilities(np.array([[0, 0, 0, 2]])), np.log(0.5))


def test_states_take_the_kinds_of_their_labels():
    kinds = SegmentKinds(KINDS, JOINS).of_states(np.array([1, 2, 2]))
    assert kinds.kinds.tolist() == [0, 0, 0]
    assert kinds.joins.tolist() == [[False, True, True]] * 3


def test_segments_outside_of_the_chains_are_an_error():
    segments = Segments(chain.chain_potentials(np.zeros((1, 2, 5)), np.zeros((5, 5))), SegmentKinds(KINDS, JOINS))
    for row in ([0, 0, 1, 3], [1, 0, 0, 1], [0, 2, 0, 1], [0, 0, 1, 1]):
        with pytest.raises(ValueRangeError, match="within the chains"):
            segments.log_probabilities(np.array([row]))
    with pytest.raises(ValueRangeError, match="different kinds"):
        SegmentKinds(KINDS, np.ones((5, 5), bool))
