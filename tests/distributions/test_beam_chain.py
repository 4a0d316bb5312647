"""Chains within a beam: exact on fewer labels, and a lower bound on log Z."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.distributions.backends import computed_by
from trelliswork import LinearChain
from trelliswork.distributions import Beam
from trelliswork.errors import ValueRangeError

seeds = st.integers(0, 10_000)
beams = st.sampled_from(["kl=0.1,min=1", "size=2", "threshold=1,min=1", "kl=0.05,min=2,refine"])


def random_chain(seed, *, S=4, T=5, B=3, own=False, requires_grad=False):
    rng = np.random.default_rng(seed)
    unary = torch.from_numpy(2 * rng.normal(size=(B, T, S)))
    pairwise = torch.from_numpy(rng.normal(size=(B, T - 1, S, S) if own else (S, S)))
    lengths = rng.integers(1, T + 1, B)
    if requires_grad:
        unary.requires_grad_()
        pairwise.requires_grad_()
    return LinearChain(unary, pairwise, lengths=lengths)


@given(seeds, beams, st.booleans())
def test_lower_bound_and_exact_within_the_beam(seed, text, own):
    chain = random_chain(seed, own=own)
    beam = chain.within(text)
    inside = beam.marginals() > 0
    masked = chain.condition(allowed=inside)
    assert beam.kind == "lower"
    assert (beam.log_partition() <= chain.log_partition() + 1e-12).all()
    assert_close(beam.log_partition(), masked.log_partition())
    assert_close(beam.marginals(), masked.marginals())
    assert_close(beam.entropy(), masked.entropy())
    valid = beam._inside(beam.log_unary.shape[1])
    assert_close(beam.marginals().sum(dim=2)[valid], torch.ones(int(valid.sum()), dtype=torch.float64))
    assert (beam.sizes[valid] >= 1).all()
    assert (beam.kept[valid] <= 1).all()
    assert beam.statistics.mean_size == pytest.approx(beam.sizes[valid].double().mean().item())
    assert beam.statistics.max_size == beam.sizes.max()
    assert beam.statistics.gap_estimate == pytest.approx(-beam.kept.log().sum().item())
    best = beam.argmax()
    assert (chain.log_prob(best.value) <= chain.argmax().log_prob + 1e-12).all()
    drawn = beam.sample(20)
    assert inside.expand(20, -1, -1, -1).gather(3, drawn.clamp(min=0)[..., None])[..., 0][:, valid].all()


@given(seeds)
def test_beam_with_all_states_is_exact(seed):
    chain = random_chain(seed)
    beam = chain.within(Beam("kl", eps=0))
    assert_close(beam.log_partition(), chain.log_partition(), rtol=1e-12, atol=1e-12)
    assert_close(beam.marginals(), chain.marginals(), rtol=1e-12, atol=1e-12)
    assert_close(beam.mode, chain.mode)
    assert beam.statistics.kept == pytest.approx(1)


def test_marginals_are_the_gradient_of_log_z():
    chain = random_chain(0, requires_grad=True)
    beam = chain.within("size=2")
    (gradient,) = torch.autograd.grad(beam.log_partition().sum(), chain.log_unary)
    assert_close(gradient, beam.marginals().detach())
    assert (gradient == 0).any()


def test_divergence_is_bounded():
    beam = random_chain(1, S=30, T=20).within("kl=0.01,min=1")
    assert (-beam.kept.log() <= 0.01 + 1e-9).all()


def test_evidence_leads_to_a_new_beam():
    chain = random_chain(3)
    forced = chain.marginals()[:, 0].argmin(dim=1)
    labels = torch.full(chain.log_unary.shape[:2], -1)
    labels[:, 0] = forced
    given = chain.within("size=1").condition(known=labels)
    assert given.kind == "lower"
    assert_close(given.marginals()[:, 0].argmax(dim=1), forced)


def test_auto_returns_the_chain_where_exact_inference_is_faster():
    chain = random_chain(4)
    assert chain.within("auto") is chain
    assert random_chain(4, S=120, T=3).within("auto").kind == "lower"


def test_invalid_arguments():
    with pytest.raises(ValueRangeError, match="cannot be read"):
        random_chain(0).within("kl")
    with pytest.raises(ValueRangeError, match="CPU"):
        computed_by("torch", LinearChain(torch.zeros(1, 2, 3), torch.zeros(3, 3))).within("size=2")
