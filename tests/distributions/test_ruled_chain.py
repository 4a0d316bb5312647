"""Distributions under rules against enumeration, by every query of the interface."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.oracle.chain import Enumerated, enumerate_chain
from tests.oracle.rules import PLAIN, random_rule, satisfies
from trelliswork.distributions import LinearChain, NgramChain
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.rules import AtMostOnce, Before, Count


def case(seed, by_position=False, T=4):
    rng = np.random.default_rng(seed)
    unary, pairwise = rng.normal(0, 1, (1, T, 3)), rng.normal(size=(1, T - 1, 3, 3) if by_position else (3, 3))
    plain = enumerate_chain(unary[0], np.broadcast_to(pairwise, (1, T - 1, 3, 3))[0])
    while True:
        rule = random_rule(rng)
        good = np.array([satisfies(rule, [PLAIN[j] for j in row]) for row in plain.labelings])
        if 4 < good.sum() < len(good):
            break
    return LinearChain(unary, pairwise), rule, plain, Enumerated(plain.labelings[good], plain.scores[good])


@pytest.mark.parametrize("by_position", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_queries_under_rules(seed, by_position):
    chain, rule, plain, under = case(seed, by_position)
    ruled = chain.condition(rules=rule, labels=PLAIN)
    assert ruled.kind == "exact"
    assert_allclose(ruled.log_partition().item(), under.log_z, 1e-10)
    log_p = ruled.log_partition() - chain.log_partition()
    assert_allclose(log_p.exp().item(), plain.probabilities[np.isin(plain.scores, under.scores)].sum(), 1e-9)
    assert_allclose(ruled.marginals()[0], under.marginals(3), 1e-9, 1e-12)
    assert_allclose(ruled.entropy().item(), under.entropy(), 1e-9, 1e-10)
    order = np.argsort(-under.scores)[:5]
    best = ruled.topk(5)
    assert best.value[0, : len(order)].tolist() == under.labelings[order].tolist()
    assert_allclose(best.log_prob[0, : len(order)].exp(), under.probabilities[order], 1e-9)
    assert ruled.argmax().value[0].tolist() == under.labelings[order[0]].tolist()
    draws = ruled.sample(2000, generator=torch.Generator().manual_seed(0))
    assert all(satisfies(rule, [PLAIN[j] for j in row]) for row in draws[:100, 0].tolist())
    assert_allclose((draws == 0).double().mean(dim=(0, 1)), under.marginals(3)[:, 0], atol=0.05)
    known = torch.full((1, 4), -1)
    known[0, 1] = under.labelings[0, 1]
    hit = under.labelings[:, 1] == under.labelings[0, 1]
    want = Enumerated(under.labelings[hit], under.scores[hit]).log_z
    assert_allclose(ruled.condition(known=known).log_partition().item(), want, 1e-10)
    assert_allclose(chain.condition(known=known, rules=repr(rule), labels=PLAIN).log_partition().item(), want, 1e-10)
    worse = next(row for row in plain.labelings if not satisfies(rule, [PLAIN[j] for j in row]))
    assert ruled.log_prob(torch.tensor(worse[None])).item() == -np.inf


def test_gradients_under_rules():
    chain, rule, _, under = case(0)
    unary, pairwise = (x.clone().requires_grad_() for x in (chain.log_unary, chain.log_pairwise))
    LinearChain(unary, pairwise).condition(rules=rule, labels=PLAIN).log_partition().sum().backward()
    assert_allclose(unary.grad[0], under.marginals(3), 1e-9, 1e-12)
    assert_allclose(pairwise.grad, under.edges(3).sum(axis=0), 1e-9, 1e-12)


def test_rules_about_the_labels_of_ngrams_and_within_beams():
    chain, _, plain, _ = case(1)
    emits = [0, 1, 1]
    names = ["A", "B"]
    ruled = NgramChain(chain, emits, 2).condition(rules=AtMostOnce("A") & Before("A", "B"), labels=names)
    good = [satisfies(ruled.rule, [names[emits[j]] for j in row]) for row in plain.labelings]
    assert_allclose(ruled.log_partition().item(), Enumerated(plain.labelings[good], plain.scores[good]).log_z, 1e-10)
    beam = chain.within("size=2").condition(rules=AtMostOnce("A"), labels=PLAIN)
    assert beam.kind == "lower"
    assert beam.log_partition() <= chain.condition(rules=AtMostOnce("A"), labels=PLAIN).log_partition()


def test_rules_none_of_which_matters():
    """All labelings but those of one label are improbable, so that nothing is multiplied in."""
    unary, labels = np.full((1, 3, 4), -1e3), ["A", "B", "C", "D"]
    unary[:, :, 0] = 0
    chain = LinearChain(unary, np.zeros((4, 4)))
    ruled = chain.condition(rules=AtMostOnce(*labels), labels=labels)
    assert ruled.kind == "exact"
    assert_allclose(ruled.log_partition(), chain.log_partition(), atol=1e-12)
    assert ruled.topk(2).value[0, 0].tolist() == [0, 0, 0]
    assert all(AtMostOnce(*labels).holds([labels[j] for j in row]) for row in ruled.topk(9).value[0].tolist())


def test_more_rules_can_follow_and_kl_needs_the_same():
    chain, *_ = case(2)
    one = chain.condition(rules=AtMostOnce("A"), labels=PLAIN)
    two = one.condition(rules=Count("B", 1))
    both = chain.condition(rules=AtMostOnce("A") & Count("B", 1), labels=PLAIN)
    assert two.rule == both.rule
    assert_allclose(two.log_partition(), both.log_partition())
    other = LinearChain(chain.log_unary * 0.5, chain.log_pairwise).condition(rules=AtMostOnce("A"), labels=PLAIN)
    assert one.kl(other).item() > 0
    with pytest.raises(ShapeError, match="same rules"):
        one.kl(two)


def test_names_of_labels_are_needed():
    chain, *_ = case(3)
    with pytest.raises(ValueRangeError, match="pass labels="):
        chain.condition(rules=AtMostOnce("A"))
    with pytest.raises(ShapeError, match="names of all labels"):
        chain.condition(rules=AtMostOnce("A"), labels=["A", "B"])
