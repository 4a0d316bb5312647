"""Fields without a unary."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.mrf.cases import TEXT, circle_bound, learned, make, tightened
from tests.oracle import fields
from trelliswork.errors import ValueRangeError
from trelliswork.inference.lifted import Star
from trelliswork.models import MRFLanguageModel, load
from trelliswork.models.mrf import field as mrf_field

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("form", ["UW", "URW", "full"])
@pytest.mark.parametrize("bound", ["chain", "star"])
def test_queries_without_a_unary_equal_enumeration(order, form, bound, monkeypatch, tmp_path):
    model = make(order, form=form, bound=bound, unary=False)
    log_unary, tables = learned(model)
    assert not log_unary.any()
    rho = np.concatenate([[1 - model._field.weights.sum()], model._field.weights])
    assert_allclose(rho @ model._field.unaries, 0, atol=1e-12)
    log_tau = model._field.log_tau(6)
    some = TEXT[:7]
    expected = []
    for s in some:
        ids = tuple(model._words.ids(s))
        log_z = fields.sentence_log_z(log_unary, tables, len(ids))
        expected.append(fields.sentence_score(log_unary, tables, ids) - log_z + log_tau[len(ids)])
    assert_allclose(model.log_prob(some), expected, rtol=1e-6)
    words = ["a", "___", "c", "a"]
    scores = [
        fields.sentence_score(log_unary, tables, tuple(model._words.ids([w if v == "___" else v for v in words])))
        for w in "abc"
    ]
    filled = dict(model.fill(words)[0])
    assert_allclose([filled[w] for w in "abc"], np.exp(np.array(scores) - fields.log_sum(scores)), rtol=1e-6)
    # Bounds of circles: endless ones, and of N words.
    endless = fields.long_circle_log_z(log_unary, tables, 2**18) / 2**18
    assert model._field.log_z_bound >= endless - 2e-5
    assert model._bound_kind == ("exact" if order == 1 and bound == "chain" else bound)
    if model._bound_kind == "exact":
        assert_allclose(model._field.log_z_bound, tightened(model).value, atol=1e-6)
    N = 2 * order + 1
    truth = fields.long_circle_log_z(log_unary, tables, N) / N
    assert Star(log_unary, model._field.tables).tighten(max_passes=10).value >= truth - 1e-9
    assert 0 < circle_bound(model, TEXT) + model.report_.value < 0.04  # the penalty
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert not again.unary
    assert (again.log_prob(some) == model.log_prob(some)).all()
    assert circle_bound(again, TEXT) == circle_bound(model, TEXT)
    assert again.sample(5, seed=1) == model.sample(5, seed=1)
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)  # as for a large vocabulary
    assert (model.log_prob(some) <= np.array(expected) + 1e-6).all()
    if (order, form) == (2, "UW"):
        estimate = model.estimate(some, n_samples=100, n_steps=10)
        per_token = sum(expected) / (sum(map(len, some)) + len(some))
        assert abs(estimate.per_token - per_token) < 5 * estimate.standard_error + 1e-3


def test_pseudo_likelihood_without_a_unary():
    options = {"algorithm": "pseudo-likelihood", "max_iter": 3, "learning_rate": 0.02, "batch_size": 16}
    bare = make(2, unary=False, **options)
    assert not bare._field.has_unary
    assert bare.report_.history[-1].value < bare.report_.history[0].value


def test_training_starts_from_models_with_and_without_a_unary():
    """The first iteration continues where the other training ended."""
    options = {"rank": 3, "l2": 0.05, "max_iter": 1, "tol": 0, "unknown": "error"}
    for order, bound in ((1, "chain"), (2, "chain"), (2, "star")):
        first = make(order, bound=bound, unary=False)
        bare = made(MRFLanguageModel, order, options={"bound": bound, "unary": False}, **options)
        assert first.report_.value - 0.01 < bare.fit(TEXT, start=first).report_.value <= first.report_.value + 1e-5
    made(MRFLanguageModel, 2, **options).fit(TEXT, start=make(1, unary=False))
    with pytest.raises(ValueRangeError, match="start has a unary"):
        made(MRFLanguageModel, 2, options={"unary": False}, **options).fit(TEXT, start=make(1))


def test_early_stopping_without_a_unary():
    model = MRFLanguageModel(2, rank=3, l2=0.05, tol=0, options={"unary": False}, max_iter=12).fit(TEXT, dev=TEXT[:4])
    best = max(step.dev for step in model.report_.history)
    assert_allclose(circle_bound(model, TEXT[:4]), best, atol=1e-5)
