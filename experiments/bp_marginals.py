"""Approximate marginals of trained second-order parsers: variants of belief propagation against the exact posterior."""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import fractional
from experiments.tables import Say, Table
from experiments.tree_chains import ChainEstimate, gibbs_marginals
from trelliswork.compute import threads
from trelliswork.data import bundled
from trelliswork.inference.tree import second_order
from trelliswork.inference.tree.potentials import is_tree
from trelliswork.models import DependencyParser

Doubles = NDArray[np.float64]
MOST_TREES = 120_000  # combinations of heads that are enumerated
HELD_OUT = 200  # test sentences for temperatures
NO_FIGURE = "the paper has no figure"


class Sentence(NamedTuple):
    """Candidate parts of one sentence under a trained parser, and its posterior."""

    parts: second_order.Parts
    scores: tuple[Doubles, Doubles, Doubles]  # of arcs, siblings and grandparents
    truth: Doubles  # (A,) marginals of arcs
    gold: NDArray[np.bool_]  # (A,) arcs of the gold tree
    n_words: int
    chains: ChainEstimate | None  # None: by enumeration

    @property
    def exact(self) -> bool:
        """Whether the posterior is enumerated."""
        return self.chains is None


def bp_marginals(
    *,
    n_train: int = 1000,
    n_test: int = 120,
    n_sweeps: int = 5000,
    longest: int = 20,
    calibrated: bool = False,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Table:
    """Measure errors of arc marginals on sentences of the bundled test part, by a parser trained on the bundled corpus.

    Up to six words, and wherever the candidates allow it, the posterior is enumerated. Up to ``longest`` words it is
    estimated by four Markov chains of ``n_sweeps`` sweeps each (``tree_chains``); the standard errors from the
    means of batches tell how good that is. The log score is the mean log-probability of gold heads that pruning has
    kept. ``calibrated`` fits temperatures first.

    All variants have the same error to first order in the scores of pairs: a pair of arcs is a loop through the tree
    factor, in which the arcs are correlated, and its messages see each arc by itself, whatever their damping or weight.
    """
    train, test = bundled.load("train"), bundled.load("test")
    parser = DependencyParser(2, hash_bits=18, batch_size=8, calibrated=False, seed=seed)
    parser.fit(*_arrays(train[:n_train]))
    if calibrated:
        parser._calibrate_temperature(*_arrays(test[-HELD_OUT:]))
    say(f"trained on {n_train} sentences: {parser.report_.details['temperatures']}")
    chosen = [s for s in test[:-HELD_OUT] if 2 <= len(s.words) <= longest][:n_test]
    sentences = []
    for k, s in enumerate(chosen):
        sentences.append(_sentence(parser, s, n_sweeps, seed + k))
        if k % 20 == 0:
            say(f"posterior of sentence {k + 1} of {len(chosen)}")
    n_exact = sum(one.exact for one in sentences)
    chains = [one.chains for one in sentences if one.chains is not None]
    errors = np.concatenate([np.zeros(1), *(one.errors for one in chains)])
    table = Table(
        "Arc marginals of a trained second-order parser, by method",
        ["method", "iterations", "kind", "exact: mean error", "exact: max", "sampled: mean error", "sampled: max",
         "log score", "ms per sentence"],
        notes=[
            f"Parser trained on {n_train} sentences of the bundled corpus, temperatures "
            f"{'fitted' if calibrated else '1'}; {len(sentences)} test sentences of at most {longest} words, "
            f"{n_exact} of them enumerated, the others by "
            f"4 Markov chains of {n_sweeps} sweeps (standard errors of marginals: mean {errors.mean():.4f}, largest "
            f"{errors.max():.4f}; deviation of batches over that within chains: at most "
            f"{max((one.mixing for one in chains), default=1.0):.2f}; accepted proposals: at least "
            f"{min((one.accepted for one in chains), default=1.0):.0%}).",
            "weight: counting number of the factors of siblings and grandparents; 1 is loopy belief propagation. "
            "Weights below 1 are computed by a slow reference, so that they have no time.",
        ],
    )  # fmt: skip
    exact_row = _measure(sentences, lambda one: one.truth)
    table.rows.append(["posterior", None, "exact, sampled", *exact_row[:4], exact_row[4], None])
    for name, iterations, method, timed in _methods():
        found = _measure(sentences, method)
        ms = _milliseconds(sentences, method) if timed else None
        table.rows.append([name, iterations, "estimate", *found, ms])
        table.add(f"{name}, {iterations} iterations: mean error", None, found[0], "absolute", None, NO_FIGURE)
        table.add(f"{name}, {iterations} iterations: log score", None, found[4], "nats per word", None, NO_FIGURE)
        say(f"{name}, {iterations} iterations: mean error {found[0]:.4f}, log score {found[4]:.4f}")
    return table


def _methods() -> list[tuple[str, int, Callable[[Sentence], Doubles], bool]]:
    """Return name, iterations and function of each method, and whether its time is that of compiled code."""
    methods: list[tuple[str, int, Callable[[Sentence], Doubles], bool]] = []
    for name, iterations, options in (
        ("tree every 2nd iteration", 5, {"tree_every": 2}),
        ("tree every 2nd iteration", 10, {"tree_every": 2}),
        ("loopy", 5, {}),
        ("loopy", 10, {}),
        ("loopy", 20, {}),
        ("damped 0.3", 10, {"damping": 0.3}),
        ("damped 0.5", 20, {"damping": 0.5}),
    ):
        methods.append((name, iterations, partial(_loopy, max_iter=iterations, **options), True))
    for weight in (0.9, 0.75, 0.5):
        methods.append((f"weight {weight:g}", 10, partial(_fractional, weight=weight, max_iter=10, damping=0.3), False))
    return methods


def _loopy(sentence: Sentence, **options: Any) -> Doubles:
    return second_order.infer(sentence.parts, *sentence.scores, tolerance=1e-6, **options).arcs


def _fractional(sentence: Sentence, **options: Any) -> Doubles:
    return fractional.beliefs(sentence.parts, *sentence.scores, **options)


def _measure(sentences: list[Sentence], method: Callable[[Sentence], Doubles]) -> list[float]:
    """Return mean and largest error of enumerated and of sampled sentences, and the mean log score of gold heads."""
    errors: dict[bool, list[Doubles]] = {True: [np.zeros(1)], False: [np.zeros(1)]}
    scores = []
    for one in sentences:
        arcs = method(one)
        errors[one.exact].append(np.abs(arcs - one.truth))
        scores.append(np.log(np.clip(arcs[one.gold], 1e-12, 1.0)))
    joined = [np.concatenate(errors[exact]) for exact in (True, False)]
    return [float(f(error)) for error in joined for f in (np.mean, np.max)] + [float(np.concatenate(scores).mean())]


def _milliseconds(sentences: list[Sentence], method: Callable[[Sentence], Doubles]) -> float:
    with threads.num_threads(1):
        start = time.thread_time()
        for one in sentences:
            method(one)
        return 1000 * (time.thread_time() - start) / len(sentences)


def _arrays(sentences: Any) -> tuple[list[Any], list[Any]]:
    X = [list(zip(s.words, s.tags, strict=True)) for s in sentences]
    return X, [list(s.heads) for s in sentences]


def _sentence(parser: DependencyParser, s: Any, n_sweeps: int, seed: int) -> Sentence:
    """Return the parts of a sentence, with the posterior by enumeration or by Markov chains."""
    parsing = parser._parsing([list(zip(s.words, s.tags, strict=True))], None)
    scorer = parsing.scorer
    scored = scorer.scored(parsing.tokens, np.array([0]))
    assert scored.candidates is not None
    assert scored.scores is not None
    parts, kinds = scored.candidates.parts, ("arcs", "siblings", "grandparents")
    a, b, c = (v / scorer.temperature(kind) for v, kind in zip(scored.scores, kinds, strict=True))
    n = len(s.words)
    gold = np.array([s.heads[m - 1] == h for h, m in zip(parts.heads, parts.modifiers, strict=True)])
    number = {(int(h), int(m)): k for k, (h, m) in enumerate(zip(parts.heads, parts.modifiers, strict=True))}
    possible = [[int(h) for h, m in number if m == d] for d in range(1, n + 1)]
    if np.prod([float(len(heads)) for heads in possible]) > MOST_TREES:
        chains = gibbs_marginals(parts, a, b, c, n_sweeps=n_sweeps, seed=seed)
        return Sentence(parts, (a, b, c), chains.arcs, gold, n, chains)
    trees = [t for t in product(*possible) if is_tree(np.array(t), projective=True, single_root=True)]
    on = [[number[h, d] for d, h in enumerate(tree, 1)] for tree in trees]
    log_p = np.array([_score(parts, arcs, a, b, c) for arcs in on])
    weights = np.exp(log_p - log_p.max())
    truth = np.zeros(len(a))
    for arcs, w in zip(on, weights / weights.sum(), strict=True):
        truth[arcs] += w
    return Sentence(parts, (a, b, c), truth, gold, n, None)


def _score(parts: second_order.Parts, arcs: list[int], a: Doubles, b: Doubles, c: Doubles) -> float:
    """Return the score of a tree, given as its arcs."""
    on = np.zeros(len(a), np.bool_)
    on[arcs] = True
    total = float(a[arcs].sum() + c[on[parts.grandparent_upper] & on[parts.grandparent_lower]].sum())
    for begin, step, size, part in parts.sides.tolist():
        steps = [0, *(j for j in range(1, size + 1) if on[begin + step * (j - 1)]), size + 1]
        total += sum(float(b[part + j * (j - 1) // 2 + i]) for i, j in pairwise(steps))
    return total
