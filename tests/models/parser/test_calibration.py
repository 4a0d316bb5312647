"""Temperatures of a parser: fitted on development data, stored, applied to trees and labels."""

from dataclasses import replace

import numpy as np
import pytest

from tests.estimators import made
from tests.models.parser.corpus import SMALL, heads_of, treebank
from trelliswork import DependencyParser, load
from trelliswork.errors import TrellisworkError
from trelliswork.models.parser.labels import tempered
from trelliswork.models.parser.scoring import check_temperatures

X, Y = treebank("train", 200)
X_DEV, Y_DEV = treebank("test", 150)


@pytest.fixture(scope="module", params=[1, 2])
def calibrated(request):
    """A parser of each order with temperatures."""
    return made(DependencyParser, request.param, **SMALL).fit(X, Y, dev=(X_DEV, Y_DEV))


def log_score(parser, heads):
    rows = zip(parser.predict_marginals(X_DEV), heads, strict=True)
    return np.mean([np.log(max(table.get(h, 0), 1e-12)) for row, hs in rows for table, h in zip(row, hs, strict=True)])


def test_temperatures_of_each_kind_are_fitted_stored_and_reported(calibrated, tmp_path):
    found = calibrated.report_.details["temperatures"]
    kinds = ["arcs", "labels"] if calibrated.order == 1 else ["arcs", "siblings", "grandparents", "tree", "labels"]
    assert list(found) == kinds
    assert all(0.2 <= t <= 10 for t in found.values())
    assert any(abs(t - 1) > 0.02 for t in found.values())
    calibrated.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert again.report_.details["temperatures"] == found
    assert again.predict_marginals(X_DEV) == calibrated.predict_marginals(X_DEV)
    labels = [one._parsing(X_DEV[:5], None).label_probabilities(heads_of(Y_DEV[:5])) for one in (again, calibrated)]
    assert labels[0] == labels[1]


def test_the_log_score_of_the_data_they_are_fitted_on_rises(calibrated):
    heads = heads_of(Y_DEV)
    plain = made(DependencyParser, calibrated.order, **SMALL, calibrated=False).fit(X, Y, dev=(X_DEV, Y_DEV))
    assert set(plain.report_.details["temperatures"].values()) == {1.0}
    assert all(
        (a == b).all() for a, b in zip(plain._learned.trees.weights, calibrated._learned.trees.weights, strict=True)
    )
    before = log_score(plain, heads)
    assert plain.predict(X_DEV) == calibrated.predict(X_DEV)  # probabilities change, trees do not
    assert log_score(calibrated, heads) > before + 0.01
    again = plain._calibrate_temperature(X_DEV, Y_DEV)  # after training: the same fit
    assert again == plain.report_.details["temperatures"] == calibrated.report_.details["temperatures"]
    assert plain._calibrate_temperature(X_DEV, Y_DEV) == again  # from temperature 1, not from the last one
    with pytest.raises(TrellisworkError, match="at least one head"):
        plain._calibrate_temperature([[("a", "N")]], [[None]])


def test_a_temperature_divides_scores():
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(tempered(p, 2.0)[0], np.sqrt(p[0]) / np.sqrt(p[0]).sum(), rtol=1e-6)
    assert tempered(p, 0.5)[1].tolist() == [1.0, 0.0, 0.0]
    parser = made(DependencyParser, 1, **SMALL).fit(X[:50], heads_of(Y[:50]))
    sentence = X_DEV[0]
    scores = parser.posterior(sentence).log_arc.numpy()
    learned = parser._learned
    parser._learned = replace(learned, trees=replace(learned.trees, temperatures={"arcs": 2.0}))
    np.testing.assert_allclose(parser.posterior(sentence).log_arc.numpy(), scores / 2)


def test_the_posterior_has_the_reported_marginals(calibrated):
    sentence = X_DEV[3]
    arcs = calibrated.posterior(sentence).marginals()[0].numpy()
    for d, table in enumerate(calibrated.predict_marginals([sentence])[0], start=1):
        for h, p in table.items():
            assert arcs[h, d] == pytest.approx(p, abs=1e-6)


def test_probabilities_are_a_mixture_with_those_at_temperature_1(tmp_path):
    parser = made(DependencyParser, 2, **SMALL, calibrated=False).fit(X[:100], Y[:100])
    temperatures = {"arcs": 2.0, "siblings": 4.0, "grandparents": 3.0, "tree": 1.5}

    def with_share(share):
        learned = parser._learned
        parser._learned = replace(learned, trees=replace(learned.trees, temperatures=temperatures, sharp=share))
        return parser

    sharp = parser.predict_marginals(X_DEV[:9])
    smooth = with_share(0.0).predict_marginals(X_DEV[:9])
    trees = parser.predict(X_DEV[:9])
    mixed = with_share(0.25).predict_marginals(X_DEV[:9])
    for words in zip(sharp, smooth, mixed, strict=True):
        for a, b, c in zip(*words, strict=True):
            assert c == pytest.approx({h: 0.25 * a[h] + 0.75 * b[h] for h in a})
    assert parser.predict(X_DEV[:9]) == trees
    parser.save(tmp_path / "parser")
    again = load(tmp_path / "parser")
    assert again.predict_marginals(X_DEV[:9]) == mixed
    sentence = min(X_DEV, key=len)
    total = sum(p for _, p in parser.predict_topk([sentence], 500)[0])
    assert total == pytest.approx(1, abs=0.01)  # the trees of one distribution, whose marginals are those of arcs
    arcs = parser.posterior(sentence).marginals()[0].numpy()
    for d, table in enumerate(parser.predict_marginals([sentence])[0], start=1):
        assert [arcs[h, d] for h in table] == pytest.approx(list(table.values()), abs=1e-6)


def test_the_share_of_sharp_beliefs_is_fitted(calibrated):
    share = calibrated.report_.details.get("sharp", 0.0)
    assert (0 < share < 0.9) if calibrated.order == 2 else share == 0
    if calibrated.order == 2:
        heads, learned = heads_of(Y_DEV), calibrated._learned
        before = log_score(calibrated, heads)
        try:
            for other in (0.0, min(share + 0.1, 0.9)):
                calibrated._learned = replace(learned, trees=replace(learned.trees, sharp=other))
                assert log_score(calibrated, heads) < before
        finally:
            calibrated._learned = learned


def test_damaged_temperatures_are_an_error():
    for bad in ({"arcs": 0.0}, {"arcs": float("nan")}, {"arc": 1.0}, {"labels": "1"}):
        with pytest.raises(TrellisworkError, match="temperatures"):
            check_temperatures(bad)


def test_without_development_data_temperatures_are_1_until_calibrate():
    model = made(DependencyParser, 1, **SMALL).fit(X[:60], Y[:60])
    assert "calibrated_on" not in model.report_.details
    assert set(model.report_.details["temperatures"].values()) == {1.0}
    assert model.describe().facts["calibrated_on"] == "nothing: temperatures are 1"
    model._calibrate_temperature(X_DEV, Y_DEV)
    assert model.describe().facts["calibrated_on"] == "held-out data"
