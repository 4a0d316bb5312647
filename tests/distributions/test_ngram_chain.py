"""Chains of label n-grams seen by their labels: every query equals enumeration of the labelings."""

import itertools

import numpy as np
import pytest
import torch

from trelliswork.distributions import LinearChain, NgramChain
from trelliswork.errors import ImpossibleError, ValueRangeError

S, T = 3, 4  # labels, positions; states: labels at the start, then pairs S + a * S + b


def chain_of(rng):
    """Random scores of labels and triples, and the chain of pairs."""
    unary, triple = rng.normal(size=(T, S)), rng.normal(size=(S, S, S))
    N = S + S * S
    emits = np.arange(N) % S
    log_unary = np.full((1, T, N), -np.inf)
    log_unary[0, 0, :S] = unary[0]
    log_unary[0, 1:, S:] = unary[1:, emits[S:]]
    log_pairwise = np.full((N, N), -np.inf)
    for a, b in itertools.product(range(S), repeat=2):
        log_pairwise[a, S + a * S + b] = 0.0
        for c in range(S):
            log_pairwise[S + a * S + b, S + b * S + c] = triple[a, b, c]
    chain = NgramChain(LinearChain(torch.from_numpy(log_unary), torch.from_numpy(log_pairwise)), emits, S)
    paths = np.array(list(itertools.product(range(S), repeat=T)))
    scores = [unary[range(T), y].sum() + sum(triple[y[t], y[t + 1], y[t + 2]] for t in range(T - 2)) for y in paths]
    return chain, paths, np.array(scores)


@pytest.mark.parametrize("seed", range(5))
def test_all_queries_equal_enumeration(seed):
    rng = np.random.default_rng(seed)
    chain, paths, scores = chain_of(rng)
    log_z = np.logaddexp.reduce(scores)
    p = np.exp(scores - log_z)
    marginals = np.stack([[p[paths[:, t] == j].sum() for j in range(S)] for t in range(T)])
    assert chain.log_partition().item() == pytest.approx(log_z, abs=1e-12)
    np.testing.assert_allclose(chain.marginals()[0].numpy(), marginals, atol=1e-12)
    assert chain.entropy().item() == pytest.approx(-(p * np.log(p)).sum(), abs=1e-10)
    best = np.argsort(-scores)
    assert chain.argmax().value[0].tolist() == paths[best[0]].tolist()
    assert chain.topk(4).value[0].tolist() == paths[best[:4]].tolist()
    np.testing.assert_allclose(chain.topk(4).log_prob[0].numpy(), np.log(p[best[:4]]), atol=1e-10)
    everything = chain.topk(len(paths) + 2)
    assert everything.value[0, -2:].tolist() == [[-1] * T] * 2
    assert everything.log_prob[0, -2:].tolist() == [-np.inf] * 2
    assert chain.mbr().value[0].tolist() == marginals.argmax(axis=1).tolist()
    for k in best[:5]:
        assert chain.log_prob(torch.from_numpy(paths[k])[None]).item() == pytest.approx(np.log(p[k]), abs=1e-10)
    known = torch.tensor([[-1, 1, -1, 2]])
    agree = (paths[:, 1] == 1) & (paths[:, 3] == 2)
    given = chain.condition(known=known)
    assert (given.log_partition() - chain.log_partition()).item() == pytest.approx(np.log(p[agree].sum()), abs=1e-10)
    allowed = torch.ones((1, T, S), dtype=torch.bool)
    allowed[0, 2, 0] = False
    rest = p * (paths[:, 2] != 0)
    got = chain.condition(allowed=allowed).marginals()[0, 0].numpy()
    np.testing.assert_allclose(got, [rest[paths[:, 0] == j].sum() / rest.sum() for j in range(S)], atol=1e-12)
    other = chain_of(rng)[0]
    q = np.array([other.log_prob(torch.from_numpy(y)[None]).item() for y in paths])
    assert chain.kl(other).item() == pytest.approx((p * (np.log(p) - q)).sum(), abs=1e-9)


def test_samples_follow_the_marginals():
    chain = chain_of(np.random.default_rng(7))[0]
    draws = chain.sample(20_000, generator=torch.Generator().manual_seed(1))
    shares = torch.nn.functional.one_hot(draws[:, 0], S).double().mean(dim=0)
    assert (shares - chain.marginals()[0]).abs().max() < 0.02
    assert chain.log_prob(draws[:6]).shape == (6, 1)
    assert chain.expand((2,)).marginals().shape == (2, T, S)


def test_padding_and_errors():
    chain = chain_of(np.random.default_rng(0))[0]
    unary, pairwise = chain._states.log_unary.expand(2, -1, -1), chain._states.log_pairwise
    padded = NgramChain(LinearChain(unary, pairwise, lengths=[2, 4]), chain._emits, S)
    assert padded.argmax().value[0, 2:].tolist() == padded.mbr().value[0, 2:].tolist() == [-1, -1]
    assert (padded.marginals()[0, 2:] == 0).all()
    with pytest.raises(ValueRangeError, match="known must be between -1 and 2"):
        chain.condition(known=torch.full((1, T), 3))
    nothing = chain.condition(allowed=torch.zeros((1, T, S), dtype=torch.bool))
    with pytest.raises(ImpossibleError):
        nothing.log_prob(torch.zeros((1, T), dtype=torch.long))
    with pytest.raises(ValueRangeError, match="emits must be labels"):
        NgramChain(chain._states, [5] * 12, S)
