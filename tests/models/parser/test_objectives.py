"""Training of the second order on the beliefs that decoding uses."""

import numpy as np
import pytest

from tests.models.parser.corpus import SMALL, treebank
from tests.models.parser.test_subtrees import is_projective
from trelliswork import DependencyParser, load
from trelliswork.compute.threads import num_threads

X, Y = treebank("train", 40)
PARTIAL = [[pair if d % 3 else (None, None) for d, pair in enumerate(tree)] for tree in Y]
SETTINGS = {**SMALL, "hash_bits": 12, "max_iter_labels": 1}


@pytest.mark.parametrize("objective", ["log-score", "accuracy"])
@pytest.mark.parametrize("projective", [True, False])
def test_parsers_learn_stay_the_same_by_threads_and_are_saved(objective, projective, tmp_path):
    y = Y if projective else PARTIAL
    parser = DependencyParser(2, **SETTINGS, objective=objective, projective=projective)
    with num_threads(1):
        parser.fit(X, y)
    losses = [step.value for step in parser.report_.history if step.stage == "second order"]
    assert losses[-1] < 0.6 * losses[0]
    assert parser.score(X, [[head for head, _ in tree] for tree in y]) > 0.95
    other = DependencyParser(**parser.get_params())
    with num_threads(2):
        other.fit(X, y)
    assert all((a == b).all() for a, b in zip(parser.weights_, other.weights_, strict=True))
    likelihood = DependencyParser(**parser.get_params() | {"objective": "likelihood"}).fit(X, y)
    assert all((a != b).any() for a, b in zip(parser.weights_[1:], likelihood.weights_[1:], strict=True))
    parser.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.objective == objective
    assert again.parse(X[:5]) == parser.parse(X[:5])


def test_the_loss_of_an_epoch_is_that_of_the_beliefs():
    """With steps of almost 0, the loss is the log score, or the expected number of errors, of the start."""
    start = {**SETTINGS, "learning_rate_second_order": 1e-12, "calibrated": False, "max_iter_second_order": 1}
    heads = [[head for head, _ in tree] for tree in Y]
    some = [n for n, tree in enumerate(heads) if is_projective(tree)]  # crossing arcs would be unknown
    words, heads = [X[n] for n in some], [heads[n] for n in some]
    for objective in ("log-score", "accuracy"):
        parser = DependencyParser(2, **start, objective=objective).fit(words, heads)
        p = np.array([table.get(h, 0.0) for t, g in zip(parser.predict_marginals(words), heads, strict=True)
                      for table, h in zip(t, g, strict=True)])  # fmt: skip
        assert p.min() > 0  # pruning has kept all gold arcs
        want = -np.log(p).sum() if objective == "log-score" else (1 - p).sum()
        assert parser.report_.value == pytest.approx(want, rel=1e-3)


def test_a_stopped_run_is_resumed_to_the_same_parser(tmp_path):
    settings, path = {**SETTINGS, "objective": "log-score"}, tmp_path / "checkpoint"
    whole = DependencyParser(2, **settings).fit(X, Y)
    DependencyParser(2, **settings).fit(X, Y, checkpoint=path, callback=lambda step: step.stage == "second order")
    resumed = DependencyParser(2, **settings).fit(X, Y, checkpoint=path)
    assert all((a == b).all() for a, b in zip(whole.weights_, resumed.weights_, strict=True))
