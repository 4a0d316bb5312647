"""Start on a sample: exact training on every eighth sentence, each with eight times its weight."""

import warnings

import numpy as np
import pytest

from experiments.beams import CRFProblem, train
from trelliswork.inference.chain.beam import Beam
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.models.crf.beams.start import EVERY, FEWEST, ITERATIONS, sampled_start
from trelliswork.models.crf.layout import Labeling
from trelliswork.models.crf.objective import ChainObjective


def _repeated(problem: CRFProblem, times: int, length: int) -> tuple:
    """Return tokens and labels with each sentence repeated ``times`` times."""
    n = len(problem.tokens.offsets) - 1
    token = (np.repeat(np.arange(n), times)[:, None] * length + np.arange(length)).reshape(-1)
    return problem.tokens.take(token, np.full(n * times, length)), problem.gold[token]


@pytest.mark.parametrize("own", [False, True])
def test_sample_of_repeated_sentences_equals_all_sentences(own: bool) -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6, own=own)
    tokens, gold = _repeated(problem, EVERY, 6)
    found, n = sampled_start(tokens, Labeling(gold), problem.layout, l2=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objective = ChainObjective(tokens, gold, problem.layout, l2=0.1)
        expected, report = lbfgs(objective, np.zeros(problem.layout.n_features), max_iter=ITERATIONS)
    assert n == report.n_iter == ITERATIONS
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_sentence_weights_are_used() -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6)
    tokens, gold = _repeated(problem, EVERY, 6)
    plain, _ = sampled_start(tokens, Labeling(gold), problem.layout, l2=0.1)
    doubled, _ = sampled_start(
        tokens, Labeling(gold), problem.layout, l2=0.2, weights=np.full(len(tokens.offsets) - 1, 2.0)
    )
    np.testing.assert_allclose(doubled, plain, atol=2e-3)


def test_few_sentences_give_zero_weights() -> None:
    problem = CRFProblem.draw(FEWEST, 1, 0, n_states=5, n_symbols=8, length=6)
    found, n = sampled_start(problem.tokens, Labeling(problem.gold), problem.layout)
    assert n == 0
    assert not found.any()


def test_iterations_on_the_sample_count_as_iterations() -> None:
    problem = CRFProblem.draw(EVERY * FEWEST, 5, 0, n_states=6, n_symbols=8, length=9)
    run = train(problem, Beam("kl", eps=0.001, min_size=2), l2=0.01, max_iter=ITERATIONS + 4)
    assert run.report.n_iter <= 4 + ITERATIONS - ITERATIONS // 2
    assert run.report.reason == f"{ITERATIONS + 4} iterations"
