"""Queries of semi-Markov chains. Random problems against enumeration: ``tests/inference/test_differential.py``."""

import numpy as np
import pytest
import torch

from tests.oracle.segments import Segmented
from trelliswork.distributions import LinearChain, SemiMarkovChain
from trelliswork.errors import ImpossibleError, ShapeError, ValueRangeError


def random_chain(seed=0, B=3, T=5, L=3, S=2, **options):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(B, T, L, S, generator=generator, dtype=torch.float64)
    pairs = torch.randn(S, S, generator=generator, dtype=torch.float64)
    return scores, pairs, SemiMarkovChain(scores, pairs, **options)


def test_segments_of_one_position_are_a_linear_chain():
    scores, pairs, chain = random_chain(L=1, lengths=[5, 2, 1])
    same = LinearChain(scores[:, :, 0], pairs, lengths=[5, 2, 1])
    torch.testing.assert_close(chain.log_partition(), same.log_partition())
    torch.testing.assert_close(chain.marginals()[:, :, 0], same.marginals())
    torch.testing.assert_close(chain.transition_counts(), same.transition_counts())
    torch.testing.assert_close(chain.entropy(), same.entropy())
    assert torch.equal(chain.mode, same.mode)


def test_marginals_are_the_gradient_of_log_z():
    scores, pairs, _ = random_chain()
    scores.requires_grad_()
    pairs.requires_grad_()
    chain = SemiMarkovChain(scores, pairs, lengths=[5, 3, 4])
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    by_scores, by_pairs = torch.autograd.grad((chain.log_partition() * weights).sum(), (scores, pairs))
    with torch.no_grad():
        log_z, marginals, counts = chain.expectations()
    torch.testing.assert_close(log_z, chain.log_partition().detach())
    torch.testing.assert_close(by_scores, marginals * weights[:, None, None, None])
    torch.testing.assert_close(by_pairs, torch.einsum("b,bij->ij", weights, counts))


def test_all_queries_can_be_differentiated_twice():
    scores, pairs, _ = random_chain(B=2, T=4, L=2)
    values = torch.tensor([[0, -1, 1, 1], [1, 1, 0, -1]])

    def queries(scores, pairs):
        chain = SemiMarkovChain(scores, pairs, lengths=[4, 3])
        other = SemiMarkovChain(2 * scores, pairs, lengths=[4, 3])
        return chain.log_partition(), chain.marginals(), chain.entropy(), chain.log_prob(values), chain.kl(other)

    inputs = scores.requires_grad_(), pairs.requires_grad_()
    assert torch.autograd.gradcheck(queries, inputs)
    assert torch.autograd.gradgradcheck(lambda *x: SemiMarkovChain(*x).log_partition(), inputs)


def test_samples_follow_the_distribution():
    scores, pairs, chain = random_chain(B=1, T=3)
    draws = chain.sample(20_000, generator=torch.Generator().manual_seed(1))[:, 0].numpy()
    want = Segmented(scores[0].numpy(), 3, pairs.numpy())
    rows, counts = np.unique(draws, axis=0, return_counts=True)
    p = {row.tobytes(): p for row, p in zip(want.structures, want.probabilities, strict=True)}
    assert all(abs(c / len(draws) - p[row.tobytes()]) < 0.02 for row, c in zip(rows, counts, strict=True))
    again = chain.sample(5, generator=torch.Generator().manual_seed(1))[:, 0].numpy()
    assert (again == chain.sample(5, generator=torch.Generator().manual_seed(1))[:, 0].numpy()).all()


def test_mbr_has_the_most_expected_segments():
    _, _, chain = random_chain(lengths=[5, 2, 4])
    best = chain.mbr()
    marginals = chain.marginals()
    hits = SemiMarkovChain(marginals, torch.zeros(2, 2).double(), lengths=chain.lengths)
    for b, labels in enumerate(best.value):
        starts = (labels >= 0).nonzero()[:, 0].tolist()
        ends = [*starts[1:], int(chain.lengths[b])]
        found = sum(marginals[b, s, e - s - 1, labels[s]] for s, e in zip(starts, ends, strict=True))
        assert hits._viterbi()[1][b] == pytest.approx(float(found))


def test_padding_may_hold_anything():
    scores, pairs, _ = random_chain()
    padded = scores.clone()
    padded[1, 3:] = torch.nan
    one, two = (SemiMarkovChain(x, pairs, lengths=[5, 3, 5]) for x in (scores, padded))
    assert torch.equal(one.log_partition(), two.log_partition())
    with pytest.raises(ValueRangeError, match="log_segment must hold finite scores"):
        SemiMarkovChain(padded, pairs)


def test_evidence_multiplies_probabilities():
    _, _, chain = random_chain(B=1)
    value = chain.sample()
    known = chain.condition(known=torch.where(torch.arange(5) < 3, value, -1))
    allowed = chain.condition(allowed=torch.ones(1, 5, 3, 2, dtype=torch.bool))
    assert known.log_partition() <= chain.log_partition() + 1e-12
    torch.testing.assert_close(
        known.log_prob(value) + known.log_partition(), chain.log_prob(value) + chain.log_partition()
    )
    torch.testing.assert_close(allowed.marginals(), chain.marginals())


@pytest.mark.parametrize("value", [[-1, 0, 0, 0, 0], [0, -1, -1, -1, 0]])
def test_impossible_segmentations_have_no_probability(value):
    _, _, chain = random_chain(B=1)
    assert torch.isneginf(chain.log_prob(torch.tensor([value])))


def test_errors_say_what_was_expected():
    scores, pairs, chain = random_chain()
    with pytest.raises(ShapeError, match=r"log_segment must have shape \(B, T, L, S\)"):
        SemiMarkovChain(scores[0], pairs)
    with pytest.raises(ShapeError, match="log_pairwise must have shape"):
        SemiMarkovChain(scores, pairs[:1])
    with pytest.raises(ValueRangeError, match="labels must be between -1 and 1, got 2"):
        chain.log_prob(torch.full((3, 5), 2))
    with pytest.raises(ShapeError, match="segmentations of the same shape"):
        chain.kl(random_chain(T=4)[2])
    nothing = SemiMarkovChain(torch.full((1, 2, 1, 1), -torch.inf), torch.zeros(1, 1))
    with pytest.raises(ImpossibleError, match="segmentation of sequence 0"):
        nothing.argmax()
