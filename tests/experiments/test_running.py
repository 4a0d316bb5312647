"""Timed training in experiments."""

import warnings

from experiments.running import best_time, fit, timed
from trelliswork.errors import ConvergenceWarning


class Model:
    def fit(self, X, *, dev):
        self.seen = X, dev
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)


def test_fit_returns_seconds_without_a_warning(recwarn):
    model = Model()
    assert 0 <= fit(model, "X", dev="dev") < 10
    assert model.seen == ("X", "dev")
    assert not recwarn.list


def test_times_of_calls():
    result, seconds = timed(lambda a, b: a + b, 1, 2)
    assert result == 3
    assert 0 <= seconds < 10
    ticks, calls = iter([0.0, 5.0, 10.0, 13.0]), []
    assert best_time(lambda: calls.append(None), 2, lambda: next(ticks)) == 3.0
    assert len(calls) == 3  # the first one may compile
