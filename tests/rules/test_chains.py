"""Chains under rules against enumeration: log Z, marginals, the best labelings, spans, P(rules), entropy, gradients."""

from dataclasses import dataclass
from itertools import pairwise as neighbors
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.oracle.chain import Enumerated, enumerate_chain, sparse_chain
from tests.oracle.rules import BIO, BIOES, PLAIN, random_rule, satisfies
from trelliswork.data.schemes import detect_scheme, spans
from trelliswork.distributions import LinearChain
from trelliswork.errors import ImpossibleError, LimitError
from trelliswork.inference.chain import chain_potentials, score
from trelliswork.inference.chain.beam.sparse import SparseTransitions
from trelliswork.inference.chain.potentials import Potentials
from trelliswork.inference.chain.queries import best_labels
from trelliswork.models.spans import SpanLabels
from trelliswork.rules import AtMostOnce, Before, Count, Pattern, Rule
from trelliswork.rules.chains import Ruled

LIMITS = {np.float64: 1e-9, np.float32: 2e-4}


@dataclass
class Case:
    """A chain of one sequence, a rule, and all labelings that satisfy it, with their scores."""

    rule: Rule
    labels: tuple[str, ...]
    scores: Any
    unary: np.ndarray
    pairwise: np.ndarray
    plain: Enumerated
    under: Enumerated

    @property
    def ruled(self) -> Ruled:
        return Ruled.of(self.rule, self.labels)


def random_case(seed: int, dtype=np.float64) -> Case:
    """Return a chain with shared transitions, transitions by position, or of the second order."""
    rng = np.random.default_rng(seed)
    labels = [PLAIN, BIO, BIOES][rng.integers(3)]
    S, T = len(labels), int(rng.integers(1, 6 if len(labels) < 6 else 5))
    rule = random_rule(rng, labels)
    unary = rng.normal(0, 2, (T, S)).astype(dtype)
    known = rng.random(T) < 0.2  # evidence
    unary[known[:, None] & (rng.random((T, S)) < 0.5)] = -np.inf
    kind = rng.integers(3)
    lengths = np.array([T])
    if kind == 2:
        transitions = SparseTransitions.ngrams(S, 2)
        weights = rng.normal(0, 1, len(transitions.targets)).astype(dtype)
        start, end = rng.normal(size=(2, transitions.n_states)).astype(dtype)
        scores: Any = sparse_chain(unary[None], transitions, weights, lengths, log_start=start, log_end=end)
        found = np.array(list(product(range(S), repeat=T)))
        values = unary.astype(float)[np.arange(T), found].sum(axis=1)
        for n, row in enumerate(found):
            states = transitions.states(row, lengths)
            values[n] += start[states[0]] + end[states[-1]]
            values[n] += weights[transitions.entries(states[:-1], states[1:])].sum()
        plain, pairwise = Enumerated(found, values), np.empty(0)
    else:
        pairwise = rng.normal(0, 1, (S, S) if kind == 0 else (1, max(T - 1, 0), S, S)).astype(dtype)
        pairwise[rng.random(pairwise.shape) < 0.05] = -np.inf
        scores = chain_potentials(unary[None], pairwise, lengths)
        steps = np.broadcast_to(pairwise, (1, max(T - 1, 0), S, S))[0]
        plain = enumerate_chain(unary.astype(float), steps.astype(float))
    good = np.array([satisfies(rule, [labels[j] for j in row]) for row in plain.labelings])
    return Case(rule, labels, scores, unary, pairwise, plain, Enumerated(plain.labelings[good], plain.scores[good]))


def check(case: Case, limit: float, worst: dict[str, float] | None = None) -> bool:
    """Compare everything; return whether anything was possible. ``worst`` gets the largest error of each answer."""
    ruled, under, n = case.ruled if case.under.scores.size else None, case.under, case.unary.shape[0]
    if not under.scores.size or under.log_z == -np.inf:
        if case.plain.log_z > -np.inf and under.scores.size:
            assert ruled.log_partition(case.scores)[0] == -np.inf
        with pytest.raises(ImpossibleError):
            Ruled.of(case.rule, case.labels).necessary(case.scores)
        return False

    def same(what: str, found: Any, wanted: Any) -> None:
        """An error is relative to 1 + the value."""
        assert_allclose(found, wanted, limit, limit, err_msg=f"{what} under {case.rule!r}")
        if worst is not None:
            error = np.abs(np.asarray(found) - wanted) / (1 + np.abs(wanted))
            worst[what] = max(worst.get(what, 0.0), float(np.max(error, initial=0)))

    every, (_, marginals) = ruled._sums(case.scores), ruled.label_marginals(case.scores)
    same("log Z", every.log_z[0], under.log_z)
    same("P(rules)", ruled.hold(case.scores)[0], np.exp(under.log_z - case.plain.log_z))
    same("log Z", every.plain[0], case.plain.log_z)
    assert every.lost[0] <= 1e-12
    same("marginals", marginals[0], under.marginals(len(case.labels)))
    order = np.argsort(-under.scores, kind="stable")[:5]
    order = order[under.scores[order] > -np.inf]
    same("best", under.scores[_row(under, ruled.best_labels(case.scores)[0])], under.scores[order[0]])
    ((rows, log_p),) = ruled.best_labelings(case.scores, 5)
    same("p of 5 best", np.exp(log_p), under.probabilities[order])
    same("5 best", under.scores[[_row(under, row) for row in rows]], under.scores[order])
    assert len({tuple(row) for row in rows.tolist()}) == len(order)
    if isinstance(case.scores, Potentials):
        chain = LinearChain(case.scores.log_unary, case.pairwise if case.pairwise.ndim == 2 else case.pairwise[:1])
        same("entropy", chain.condition(rules=case.rule, labels=case.labels).entropy().item(), under.entropy())
    if detect_scheme(case.labels):
        labels = [case.labels[j] for j in rows[0]]
        (found,) = SpanLabels.of(case.labels).confidences(ruled.dense_parts(case.scores), [labels])
        sentences = [[case.labels[j] for j in row] for row in under.labelings]
        for span, p in found:
            hits = [span in spans(s, detect_scheme(case.labels)) for s in sentences]
            same("spans", p, under.probabilities[hits].sum())
    return n > 0


def _row(under: Enumerated, labels: np.ndarray) -> int:
    (row,) = np.flatnonzero((under.labelings == labels[: under.labelings.shape[1]]).all(axis=1))
    return int(row)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_random_chains_under_random_rules(dtype):
    possible = [check(random_case(seed, dtype), LIMITS[dtype]) for seed in range(60)]
    assert 20 < sum(possible) < 60


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_two_thousand_random_chains_under_random_rules(dtype):
    worst: dict[str, float] = {}
    possible = [check(random_case(seed, dtype), LIMITS[dtype], worst) for seed in range(1000, 3000)]
    print(f"{sum(possible):,} possible of 2,000; largest errors {worst}")
    assert sum(possible) > 1200


def many(seed=0, n=8, T=6, dtype=np.float64):
    """Return a ragged batch and "at most once" for each label: more rules than are multiplied in at once."""
    rng = np.random.default_rng(seed)
    unary, pairwise = rng.normal(0, 3, (n, T, 4)).astype(dtype), rng.normal(size=(4, 4)).astype(dtype)
    lengths = rng.integers(1, T + 1, n)
    labels = ("A", "B", "C", "D")
    return AtMostOnce(*labels), labels, unary, pairwise, lengths


@pytest.mark.parametrize("shared", [True, False])
def test_only_rules_that_matter_are_multiplied_in(shared):
    rule, labels, unary, pairwise, lengths = many()
    unary[0, :, 1:] = unary[0, :, :1] - 50  # the other labels have a share of exp(-50)
    lengths[0] = 6
    given = pairwise if shared else np.broadcast_to(pairwise, (8, 5, 4, 4))
    scores, ruled = chain_potentials(unary, given, lengths), Ruled.of(rule, labels)
    every, (_, marginals) = ruled._sums(scores), ruled.label_marginals(scores)
    assert not every.active.all()
    assert every.lost.max() <= 1e-12
    labels_of = ruled.best_labels(scores)
    found = list(ruled.best_labelings(scores, 3))
    for b, n in enumerate(lengths):
        plain = enumerate_chain(unary[b, :n], np.broadcast_to(pairwise, (n - 1, 4, 4)))
        good = np.array([satisfies(rule, [labels[j] for j in row]) for row in plain.labelings])
        under = Enumerated(plain.labelings[good], plain.scores[good])
        assert_allclose(every.log_z[b], under.log_z, 1e-11)
        assert_allclose(marginals[b, :n], under.marginals(4), 1e-9, 1e-11)
        assert_allclose(under.scores[_row(under, labels_of[b])], under.scores.max())
        assert_allclose(np.exp(found[b][1]), np.sort(under.probabilities)[::-1][:3], 1e-9, 1e-11)


def test_a_rule_that_matters_only_under_the_others_is_added():
    """A D A is nearly certain; B C B, which breaks the rule about B, is as probable as A B C among all the rest."""
    labels, pairwise = ("A", "B", "C", "D"), np.full((1, 2, 4, 4), -np.inf)
    for t, a, b, log_p in ((0, 0, 3, 0), (1, 3, 0, 0), (0, 1, 2, -32), (1, 2, 1, 0), (0, 0, 1, -32), (1, 1, 2, 0)):
        pairwise[0, t, a, b] = log_p
    scores, ruled = (
        chain_potentials(np.zeros((1, 3, 4)), pairwise, np.array([3])),
        Ruled.of(AtMostOnce(*labels), labels),
    )
    assert_allclose(ruled.log_partition(scores), -32)
    assert_allclose(ruled.label_marginals(scores)[1][0].max(axis=1), 1)
    assert ruled.best_labels(scores).tolist() == [[0, 1, 2]]


def test_products_that_would_be_too_large_give_a_bound(monkeypatch):
    rule, labels, unary, pairwise, lengths = many(1)
    scores = chain_potentials(unary, pairwise, lengths)
    exact = Ruled.of(rule, labels).log_partition(scores)
    monkeypatch.setattr("trelliswork.rules.chains.MOST_TRANSITIONS", 100)
    every = Ruled.of(rule, labels)._sums(scores)
    assert every.lost.max() > 1e-3
    assert (every.log_z >= exact - 1e-9).all()
    sure = every.lost < 1
    assert (every.log_z[sure] + np.log1p(-every.lost[sure]) <= exact[sure] + 1e-9).all()


def test_thirty_rules_at_once():
    """Bounded time: labels and tokens of a record, all rules broken by a random chain."""
    rng = np.random.default_rng(3)
    labels = tuple(f"L{n}" for n in range(15))
    rule = AtMostOnce(*labels)
    for a, b in neighbors(labels):
        rule &= Before(a, b)
    assert len(rule.parts) == 29
    wild = chain_potentials(rng.normal(0, 1, (3, 12, 15)), rng.normal(size=(15, 15)))
    ruled = Ruled.of(rule, labels)
    every = ruled._sums(wild)
    assert ((every.log_z <= every.plain) & (every.log_z > -np.inf)).all()
    assert (every.lost > 1e-12).all()  # a bound
    with pytest.raises(LimitError, match=r"rules matter at once, too many for one automaton: AtMostOnce"):
        ruled.best_labels(wild)
    unary = np.repeat(np.eye(15), 2, axis=0)[None, :20] * 8 + rng.normal(0, 1.5, (3, 20, 15))
    scores = chain_potentials(unary, rng.normal(size=(15, 15)))
    best, plain = ruled.best_labels(scores), best_labels(scores)
    assert ruled.broken(plain, scores.lengths).any()
    assert not ruled.broken(best, scores.lengths).any()
    assert score(scores, best).sum() < score(scores, plain).sum()


def test_impossible_rules_are_named():
    unary, pairwise = np.zeros((2, 3, 3)), np.zeros((3, 3))
    scores = chain_potentials(unary, pairwise, [1, 3])
    with pytest.raises(ImpossibleError, match=r"no labeling satisfies this rule"):
        Ruled.of(Count("A", 1) & Count("A", maximum=0) | Count("B", 9) & ~Count("B", 2), PLAIN)
    rule = AtMostOnce("B") & Count("A", 1, of="tokens") & Pattern(".{2,}")
    for query in ("best_labels", "necessary"):
        with pytest.raises(ImpossibleError, match=r'1 words satisfies Pattern\(".\{2,\}"\)') as caught:
            getattr(Ruled.of(rule, PLAIN), query)(scores)
        assert caught.value.sentence == 0
    with pytest.raises(
        ImpossibleError, match=r'3 words satisfies Count\("A", minimum=1\) & Count\("A", maximum=0\)'
    ) as caught:
        Ruled.of(Count("A", 1) & Count("A", maximum=0), PLAIN).best_labels(chain_potentials(unary, pairwise))
    unary[1, :, 0] = -np.inf
    with pytest.raises(ImpossibleError, match=r'3 words satisfies Count\("A", minimum=1\)\.') as caught:
        Ruled.of(Count("A", 1) & AtMostOnce("A", "B"), PLAIN).best_labels(chain_potentials(unary, pairwise))
    assert caught.value.sentence == 1
    assert Ruled.of(Count("A", 1), PLAIN).log_partition(chain_potentials(unary, pairwise))[1] == -np.inf
