"""Start on a sample: exact training on every eighth sentence, each with eight times its weight."""

import warnings
from dataclasses import replace

import numpy as np

from experiments.beams import CRFProblem, train
from trelliswork.inference.chain.beam import Beam
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.models.crf.beams.start import EVERY, FEWEST, ITERATIONS, sampled_start
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.problem import Labeling, Problem


def _repeated(problem: CRFProblem, times: int, length: int) -> Problem:
    """Return a problem with each sentence repeated ``times`` times."""
    n = len(problem.tokens.offsets) - 1
    token = (np.repeat(np.arange(n), times)[:, None] * length + np.arange(length)).reshape(-1)
    tokens = problem.tokens.take(token, np.full(n * times, length))
    return replace(problem.given, tokens=tokens, labeling=Labeling(problem.gold[token]))


def test_sample_of_repeated_sentences_equals_all_sentences() -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6)
    given = _repeated(problem, EVERY, 6)
    found, n = sampled_start(given, l2=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objective = ChainObjective(given, l2=0.1)
        expected, report = lbfgs(objective, np.zeros(problem.layout.n_features), max_iter=ITERATIONS)
    assert n == report.n_iter == ITERATIONS
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_sentence_weights_are_used() -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6)
    given = _repeated(problem, EVERY, 6)
    plain, _ = sampled_start(given, l2=0.1)
    doubled, _ = sampled_start(replace(given, weights=np.full(len(given.tokens.offsets) - 1, 2.0)), l2=0.2)
    np.testing.assert_allclose(doubled, plain, atol=2e-3)


def test_few_sentences_give_zero_weights() -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6)
    found, n = sampled_start(problem.given)
    assert n == 0
    assert not found.any()


def test_iterations_on_the_sample_count_as_iterations() -> None:
    problem = CRFProblem.draw(EVERY * FEWEST, 5, 0, n_states=6, n_symbols=8, length=9)
    run = train(problem, Beam("kl", eps=0.001, min_size=2), l2=0.01, max_iter=ITERATIONS + 4)
    assert run.report.n_iter <= 4 + ITERATIONS - ITERATIONS // 2
    assert run.report.reason == f"{ITERATIONS + 4} iterations"
