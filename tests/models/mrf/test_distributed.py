"""Lifted training in a group of processes: the objective, the model and checkpoints as in one process."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.processes import on_ranks
from trelliswork.compute.sharing import Group
from trelliswork.data.moments import count_moments
from trelliswork.models import MRFLanguageModel
from trelliswork.models.mrf.objective import MomentObjective, NoUnaryObjective
from trelliswork.models.mrf.shapes import Frequencies, LowRankShape, PairShape
from trelliswork.models.mrf.start import first_parameters

HERE = "tests.models.mrf.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks


def sentences(n, n_words):
    rng = np.random.default_rng(0)
    return [[f"w{z}" for z in np.minimum(rng.zipf(1.2, rng.integers(1, 15)), n_words)] for _ in range(n)]


def evaluate(group, form, free, star):
    """Return value and gradient of the objective at the first parameters, and the rows that this rank computes."""
    text = sentences(2000, 700)
    moments = count_moments(text[slice(*group.share(len(text)))], 2)
    frequencies, C = Frequencies.of(moments), len(moments.vocabulary)
    shape = PairShape(moments.pairs) if form == "full" else LowRankShape(C, 2, 4, form)
    weights = np.full(2, 1 / 3 if star else 1 / 2)
    objective = (MomentObjective if free else NoUnaryObjective)(shape, frequencies, weights, l2=1.0)
    first = first_parameters(shape, frequencies, unary=free, rest=objective.rest) * objective.scale
    found = objective(first)
    slope = found.slope(np.ones_like(first))
    return found.value, slope, found.gradient.tolist(), frequencies.own[0][0][1].shape[0] / C


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("form", "free", "star"), [("UW", True, False), ("URW", False, True), ("UW", False, False), ("full", False, False)]
)
def test_the_objective_is_that_of_one_process(size, form, free, star):
    value, slope, gradient, _ = evaluate(Group(), form, free, star)
    results = on_ranks(size, f"{HERE}:evaluate", form, free, star)
    for result in results:
        assert_allclose(result[:2], [value, slope], rtol=1e-9)
        assert_allclose(result[2], gradient, rtol=1e-5, atol=1e-6 * np.abs(gradient).max())  # sent as float32
        assert result[:3] == results[0][:3]
    assert all(result[3] < 1 for result in results)
    assert sum(result[3] for result in results) == pytest.approx(1)


def train(group, n, options, checkpoint=None, stop_after=None):
    """Train on this rank's sentences; with more ranks than sentences some have none."""
    text = sentences(n, 60)
    own = text[slice(*group.share(n))]

    def callback(step):
        return stop_after is not None and step.iteration >= stop_after

    model = made(MRFLanguageModel, **options).fit(own, dev=text[:20], checkpoint=checkpoint, callback=callback)
    field = model._field
    return [model.report_.value, field.log_unary.tolist(), field.factors["left"].tolist(), list(model.vocabulary_)]


@pytest.mark.parametrize(("size", "n"), [(2, 150), (3, 2)])
def test_training_ends_as_in_one_process(size, n):
    options = {"rank": 3, "l2": 1.0, "max_iter": 10, "tol": 1e-9}
    alone = train(Group(), n, options)
    together = on_ranks(size, f"{HERE}:train", n, options)
    for result in together:
        assert result == together[0]
        assert result[0] == pytest.approx(alone[0], rel=1e-6)
        assert_allclose(result[1], alone[1], atol=1e-2)
        assert result[3] == alone[3]
    assert on_ranks(size, f"{HERE}:train", n, options) == together  # bit for bit


def test_closed_form_is_that_of_one_process():
    options = {"window": 3, "rank": 3, "algorithm": "spectral"}
    alone = train(Group(), 150, options)
    for result in on_ranks(2, f"{HERE}:train", 150, options):
        assert result[2:] == alone[2:]
        assert_allclose(result[1], alone[1], rtol=1e-6)
        assert result[0] == pytest.approx(alone[0])


@pytest.mark.parametrize("unary", [True, False])
def test_a_resumed_group_ends_with_the_same_bits(unary, tmp_path):
    options = {"rank": 3, "l2": 1.0, "max_iter": 7, "unary": unary}
    whole = on_ranks(2, f"{HERE}:train", 60, options)
    path = str(tmp_path / "checkpoint")
    on_ranks(2, f"{HERE}:train", 60, options, path, 3)
    assert (tmp_path / "checkpoint").exists()
    assert on_ranks(2, f"{HERE}:train", 60, options, path) == whole
