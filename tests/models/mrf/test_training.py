"""Training of Markov random field language models: early stopping, first parameters, pseudo-likelihood, errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.mrf.cases import TEXT, circle_bound, make
from trelliswork.data.moments import count_moments
from trelliswork.errors import ValueRangeError
from trelliswork.models import MRFLanguageModel
from trelliswork.models.mrf import field as mrf_field

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


def test_training_on_moments_keeps_the_best_iteration():
    moments, dev = count_moments(TEXT, 2), TEXT[:5]
    steps = []
    model = MRFLanguageModel(rank=3, l2=0.0, max_iter=30, patience=3, tol=0)
    model.fit(moments, dev=dev, callback=lambda step: steps.append(step) if step.iteration else None)
    report = model.report_
    assert report.history == steps
    best = max(steps, key=lambda step: step.dev)
    assert_allclose(circle_bound(model, dev), best.dev, atol=1e-5)
    assert (report.dev, report.metric, report.value) == (best.dev, "bound", best.value)
    assert report.converged == (len(steps) == best.iteration + 3)
    with pytest.raises(ValueRangeError, match="expected moments with K=1, got K=2"):
        MRFLanguageModel(1).fit(moments)


@pytest.mark.parametrize(("patience", "n_iter"), [(2, 3), (30, 6)])
def test_only_early_stopping_counts_as_converged(patience, n_iter, monkeypatch):
    worse = iter(range(-1, -100, -1))
    monkeypatch.setattr("trelliswork.models.mrf.training.MomentObjective.bound", lambda *_: next(worse))
    report = MRFLanguageModel(rank=3, max_iter=6, patience=patience, tol=0).fit(TEXT, dev=TEXT[:5]).report_
    assert (report.n_iter, report.converged) == (n_iter, n_iter < 6)
    assert report.value == report.history[0].value


def test_the_time_limit_ends_training():
    report = MRFLanguageModel(rank=3, tol=0).fit(TEXT, max_minutes=1e-9).report_
    assert (report.n_iter, report.reason, report.converged) == (1, "time limit of 1e-09 minutes", False)


def test_training_starts_from_the_exact_model_of_order_1():
    first = make(1, max_iter=40)
    weighted = {"rank": 3, "l2": 0.0, "cover_weights": (0.97, 0.03), "max_iter": 1, "unknown": "error"}
    started = made(MRFLanguageModel, 2, tol=0, **weighted).fit(TEXT, start=first)
    assert started.report_.history[0].value < make(2, **weighted).report_.history[0].value
    with pytest.raises(ValueRangeError, match="rank as here"):
        MRFLanguageModel(2, rank=4, unknown="error").fit(TEXT, start=first)


def test_pseudo_likelihood_decreases_its_objective(monkeypatch):
    model = make(2, algorithm="pseudo-likelihood", max_iter=8, learning_rate=0.02, batch_size=16)
    values = [step.value for step in model.report_.history]
    assert values[-1] < values[0]
    assert (model.report_.value, model.report_.n_iter) == (values[-1], 8)
    truth = model.log_prob(TEXT[:7])
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)
    assert (model.log_prob(TEXT[:7]) <= truth + 1e-9).all()
    pseudo = MRFLanguageModel(2, algorithm="pseudo-likelihood")
    with pytest.raises(ValueRangeError, match="needs the text"):
        pseudo.fit(count_moments(TEXT, 2))
    with pytest.raises(ValueRangeError, match="leave start out"):  # before the text is read
        pseudo.fit("there/is/no/such/file", start=model)
    with pytest.raises(ValueRangeError, match="needs the text"):
        pseudo.fit("there/is/no/such/file", dev=count_moments(TEXT, 2))


@pytest.mark.parametrize(("patience", "n_epochs"), [(1, 2), (2, 3), (20, 6)])
def test_patience_of_pseudo_likelihood_is_in_epochs(patience, n_epochs, monkeypatch):
    worse = iter(range(-1, -100, -1))
    monkeypatch.setattr("trelliswork.models.mrf.pseudo_likelihood.mean_log_p", lambda *_: next(worse))
    model = MRFLanguageModel(1, rank=3, algorithm="pseudo-likelihood", max_iter=6, patience=patience)
    model.fit(TEXT, dev=TEXT[:5])
    assert model.report_.n_iter == n_epochs
    assert model.report_.converged == (n_epochs < 6)
    assert model.report_.value == model.report_.history[0].value  # of the epoch that is kept


def test_counting_is_announced(tmp_path):
    (tmp_path / "text").write_text("\n".join(" ".join(s) for s in TEXT))
    stages = []
    model = MRFLanguageModel(1, rank=2, max_iter=2)
    model.fit(tmp_path / "text", dev=TEXT[:3], callback=lambda step: stages.append((step.iteration, step.stage)))
    sizes = [sum(map(len, text)) for text in (TEXT, TEXT[:3])]
    for size in sizes:
        assert (0, f"counting: {size} tokens, 100%") in stages
    assert [iteration for iteration, _ in stages if iteration] == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "WU"}, "form must be 'UW', 'URW' or 'full'"),
        ({"bound": "tree"}, "bound must be 'chain' or 'star'"),
        ({"cover_weights": (0.9, 0.9)}, "cover_weights must be window=2 positive numbers"),
        ({"bound": "star", "cover_weights": (0.5, 0.5)}, "star cover has fixed weights"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"algorithm": "pseudo-likelihood", "form": "full"}, "needs form='UW'"),
        ({"algorithm": "pseudo-likelihood", "bound": "star"}, "bound has no effect with algorithm='pseudo"),
        ({"algorithm": "pseudo-likelihood", "cover_weights": np.array([0.5, 0.5])}, "cover_weights has no effect"),
        ({"algorithm": "pseudo-likelihood", "tol": 0.5}, "tol has no effect"),
        ({"learning_rate": 0.1}, "learning_rate has no effect with algorithm='lifted'"),
        ({"batch_size": 3}, "batch_size has no effect"),
        ({"form": "full", "rank": 4}, "form='full' has no rank"),
    ],
)
def test_parameters_that_exclude_each_other_are_an_error(options, message):
    with pytest.raises(ValueRangeError, match=message):
        made(MRFLanguageModel, 2, **options).fit(TEXT)


def test_moments_fix_the_vocabulary():
    for limits in ({"min_count": 2}, {"max_words": 2}, {"unknown": "error"}):
        with pytest.raises(ValueRangeError, match="leave min_count, max_words and unknown out"):
            made(MRFLanguageModel, 2, **limits).fit(count_moments(TEXT, 2))
    with pytest.raises(ValueRangeError, match="another vocabulary"):
        MRFLanguageModel(2).fit(TEXT, dev=count_moments([["x", "y"]], 2))
