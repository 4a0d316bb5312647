"""Calibration: temperatures, and what they leave unchanged."""

import math
from copy import copy

import numpy as np
import pytest

import trelliswork as t
from tests.models.fitted import fitted
from trelliswork.errors import DataError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models.calibration import Calibration, fit_temperature

DEV = t.bundled.load("dev")[:40]
WORDS, TAGS = [list(s.words) for s in DEV], [list(s.tags) for s in DEV]
CHUNKS, TREES = [list(s.chunks) for s in DEV], [list(zip(s.heads, s.relations, strict=True)) for s in DEV]
PAIRS = [list(zip(s.words, s.tags, strict=True)) for s in DEV]
SHORT = [n for n, words in enumerate(WORDS) if 3 <= len(words) < 12]
DATA = {
    "CRF": (WORDS, TAGS),
    "HMM": (WORDS, TAGS),
    "MRFTagger": (WORDS, TAGS),
    "FactorialCRF": (WORDS, {"pos": TAGS, "chunk": CHUNKS}),
    "DependencyParser": (PAIRS, TREES),
    "PCFG": ([WORDS[n] for n in SHORT], [DEV[n].tree for n in SHORT]),
}
CHAINS = ("CRF", "HMM", "MRFTagger")


def calibrated(name: str):
    """A calibrated copy of a shared model."""
    return t.calibrate(copy(fitted(name)), *DATA[name])


def flat(marginals):
    """All tables of probabilities that sum to 1."""
    return [table for sentence in marginals for table in sentence]


@pytest.mark.parametrize("name", DATA)
def test_every_model_with_marginals_is_calibrated_and_saved(name, tmp_path):
    model = calibrated(name)
    assert all(0.05 <= value <= 20 for value in model.calibration_.temperatures.values())
    assert fitted(name).calibration_ is None  # a copy was changed
    X = DATA[name][0][:3]
    marginals = model.predict_marginals(X)
    if name != "PCFG":
        layers = marginals.values() if isinstance(marginals, dict) else [marginals]
        assert all(sum(p.values()) == pytest.approx(1, abs=1e-4) for layer in layers for p in flat(layer))
    model.save(tmp_path / "model")
    again = t.load(tmp_path / "model")
    assert again.calibration_ == model.calibration_
    assert again.predict_marginals(X) == marginals


@pytest.mark.parametrize("name", CHAINS)
def test_the_temperature_maximizes_the_likelihood(name):
    """The loss is convex: no temperature of a grid is better, and the loss at the middle is below the mean."""
    model = calibrated(name)
    best = model.calibration_.temperatures["all"]

    def log_likelihood(temperature: float) -> float:
        model.calibration_ = Calibration({"all": temperature}, 1)
        log_p = model.log_prob(WORDS, observed)
        return float(log_p[np.isfinite(log_p)].sum())

    observed = [[tag if tag in model.labels_ else None for tag in row] for row in TAGS]
    grid = best * np.exp(np.linspace(-1, 1, 9))
    values = [log_likelihood(temperature) for temperature in grid]
    assert values[4] == max(values)
    assert abs(log_likelihood(best * 1.01) - values[4]) < 0.01 * abs(values[4])
    low, middle, high = (log_likelihood(1 / b) for b in (0.5 / best, 1 / best, 1.5 / best))
    assert middle >= (low + high) / 2


@pytest.mark.parametrize("name", CHAINS)
def test_all_queries_of_a_calibrated_tagger_agree(name):
    model = calibrated(name)
    X = WORDS[:3]
    assert model.predict(X) == fitted(name).predict(X)  # the most probable labeling is the same
    for sentence, marginals, ranked in zip(X, model.predict_marginals(X), model.predict_topk(X, 2), strict=True):
        posterior = model.posterior(sentence)
        expected = posterior.marginals()[0].numpy()
        assert expected.dtype == np.float64
        same = 2e-6 if name == "CRF" else 1e-12  # CRFs tag in float32
        np.testing.assert_allclose([[p[name] for name in model.labels_] for p in marginals], expected, atol=same)
        log_p = model.log_prob([sentence] * len(ranked), [labels for labels, _ in ranked])
        np.testing.assert_allclose(np.exp(log_p), [p for _, p in ranked], rtol=1e-4)
    assert marginals != fitted(name).predict_marginals(X)[-1]


def test_a_temperature_sharpens_or_flattens_the_posterior():
    model = copy(fitted("CRF"))
    entropies = []
    for temperature in (0.5, 1.0, 2.0):
        model.calibration_ = Calibration({"all": temperature}, 1)
        entropies.append(float(model.posterior(WORDS[0]).entropy()[0]))
    assert entropies == sorted(entropies)


def test_language_model_queries_are_not_calibrated():
    before, model = fitted("HMM"), calibrated("HMM")
    np.testing.assert_array_equal(model.log_prob(WORDS), before.log_prob(WORDS))
    assert model.predict_next(WORDS[0][:2], 3) == before.predict_next(WORDS[0][:2], 3)
    grammar = calibrated("PCFG")
    sentence = DATA["PCFG"][0][0]
    assert grammar.log_prob([sentence]) == fitted("PCFG").log_prob([sentence])
    p = grammar.posterior(sentence).marginals()[0].sum(-1).numpy()
    for (start, stop), probability in grammar.predict_marginals([sentence])[0].items():
        assert probability == pytest.approx(float(p[start, stop - 1]), abs=1e-6)


def test_higher_orders_and_beams_have_temperatures():
    X, y = WORDS[:12], TAGS[:12]
    for model in (t.HMM(order=2), t.CRF("U:%x[0,0]", order=2, tol=0.1), t.CRF("U:%x[0,0]", beam="size=30", tol=0.1)):
        t.calibrate(model.fit(X, y), X[:4], y[:4])
        assert model.calibration_.temperatures["all"] < 1  # on its training data
        rows = model.predict_marginals(X[:1])[0]
        assert all(sum(p.values()) == pytest.approx(1, abs=1e-4) for p in rows)
        posterior = model.posterior(X[0])
        assert posterior.marginals().shape == (1, len(X[0]), len(model.labels_))
        by_label = [[p[name] for name in model.labels_] for p in rows]
        np.testing.assert_allclose(by_label, posterior.marginals()[0].numpy(), atol=1e-5)
    assert fitted("CRF").calibration_ is None


def test_fit_removes_the_calibration():
    model = t.HMM().fit(WORDS, TAGS)
    assert t.calibrate(model, WORDS, TAGS).calibration_ is not None
    assert model.fit(WORDS, TAGS).calibration_ is None


def test_errors():
    with pytest.raises(ValueRangeError, match="no marginals"):
        t.calibrate(fitted("KneserNey"), WORDS, TAGS)
    with pytest.raises(NotFittedError):
        t.calibrate(t.CRF(), WORDS, TAGS)
    with pytest.raises(ShapeError):
        t.calibrate(copy(fitted("CRF")), WORDS, TAGS[:-1])
    with pytest.raises(ValueRangeError, match="no label that the model knows"):
        t.calibrate(copy(fitted("HMM")), [["a"]], [["of another tag set"]])
    with pytest.raises(ShapeError, match="a tree for each"):
        t.calibrate(copy(fitted("PCFG")), WORDS, [])
    assert fitted("CRF").calibration_ is None


def test_a_damaged_calibration_is_refused(tmp_path):
    for plain in ({"temperatures": {"all": -1.0}}, {"span_thresholds": {"": 0.0}}):
        with pytest.raises(ValueRangeError):
            Calibration.from_dict({"temperatures": {"all": 1.0}, "n_sentences": 1} | plain)
    model = calibrated("HMM")
    object.__setattr__(model.calibration_, "temperatures", {"all": math.inf})
    model.save(tmp_path / "model")
    with pytest.raises(DataError, match="damaged"):
        t.load(tmp_path / "model")


def test_the_temperature_is_the_minimum_of_a_convex_loss():
    assert fit_temperature(lambda b: (b - 0.4) ** 2) == pytest.approx(2.5, rel=1e-3)
    assert fit_temperature(lambda b: b) == pytest.approx(20, rel=1e-2)  # at its limit
