"""L-BFGS and OWL-QN against closed forms, scipy and plain proximal gradient steps."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.lbfgs import Step, lbfgs


def quadratic(matrix, minimum, lowest=0.0):
    """0.5 (w - m)' A (w - m) + lowest."""

    def objective(w):
        slope = matrix @ (w - minimum)
        return 0.5 * float((w - minimum) @ slope) + lowest, slope

    return objective


def random_matrix(rng, n, condition):
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return basis @ np.diag(np.geomspace(1, condition, n)) @ basis.T


def logistic(seed, n=80, d=12, l2=0.1):
    """Logistic regression with an L2 penalty; columns of different scale."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(0.3, 3, d)
    signs = np.where(x @ (rng.normal(size=d) * (rng.random(d) < 0.5)) + rng.normal(size=n) > 0, 1.0, -1.0)

    def objective(w):
        margin = signs * (x @ w)
        value = np.logaddexp(0, -margin).sum() + l2 * w @ w
        return float(value), x.T @ (-signs * np.exp(-np.logaddexp(0, margin))) + 2 * l2 * w

    return objective, np.linalg.norm(x, 2) ** 2 / 4 + 2 * l2


def soft(v, threshold):
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)


def ista(objective, lipschitz, l1, n, n_steps=20_000):
    """Proximal gradient descent with a fixed step: slow but sure."""
    w = np.zeros(n)
    for _ in range(n_steps):
        new = soft(w - objective(w)[1] / lipschitz, l1 / lipschitz)
        if np.abs(new - w).max() < 1e-13:
            return new
        w = new
    return w


def never_rises(report, start_value):
    values = np.array([start_value, *(step.value for step in report.history)])
    assert (np.diff(values) <= 0).all()
    assert report.value == values[-1]


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.sampled_from([1.0, 10.0, 1000.0]), st.integers(1, 8))
def test_quadratics_are_solved(seed, n, condition, history_size):
    rng = np.random.default_rng(seed)
    minimum, start = rng.normal(size=n) * 3, rng.normal(size=n)
    objective = quadratic(random_matrix(rng, n, condition), minimum, lowest=2.5)
    w, report = lbfgs(objective, start, tol=1e-9, max_iter=3000, history_size=history_size)
    assert report.converged
    assert_allclose(w, minimum, atol=2e-4)
    assert_allclose(report.value, 2.5, rtol=1e-7)
    never_rises(report, objective(start)[0])


def test_a_numerical_limit_far_from_the_optimum_is_a_warning():
    steep = lambda w: (1.0, np.full(4, 3.0))  # noqa: E731  # a value that does not resolve what the gradient promises
    with pytest.warns(ConvergenceWarning, match="no step lowers the value any more.* gradient is 6.*raise l2"):
        _, report = lbfgs(steep, np.zeros(4))
    assert not report.converged
    assert "numerical limit" in report.reason
    flat = lambda w: (1.0, np.full(4, 4e-6))  # noqa: E731  # the gradient is within rounding: no warning
    assert lbfgs(flat, np.zeros(4), tol=1e-9)[1].converged


def test_an_optimum_at_the_start_needs_no_step():
    start = np.array([1.0, 2.0])
    w, report = lbfgs(quadratic(np.eye(2), start.copy(), 7.0), start)
    assert_array_equal(w, start)
    assert (report.converged, report.n_iter, report.value) == (True, 0, 7.0)


def test_no_weights_at_all():
    w, report = lbfgs(lambda w: (3.0, np.zeros(0)), np.zeros(0))
    assert (len(w), report.converged, report.value) == (0, True, 3.0)


def test_the_start_is_left_alone():
    start = np.array([3.0, -4.0])
    w, _ = lbfgs(quadratic(np.eye(2), np.zeros(2)), start)
    assert_array_equal(start, [3, -4])
    assert_allclose(w, 0, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_logistic_regression_matches_scipy(seed):
    objective, _ = logistic(seed)
    want = scipy.optimize.minimize(
        objective, np.zeros(12), jac=True, method="L-BFGS-B", options={"gtol": 1e-10, "ftol": 1e-15, "maxiter": 5000}
    )
    w, report = lbfgs(objective, np.zeros(12), tol=1e-8, max_iter=1000)
    assert report.converged
    assert_allclose(report.value, want.fun, rtol=1e-9)
    assert_allclose(w, want.x, atol=1e-4)
    never_rises(report, objective(np.zeros(12))[0])


def test_rosenbrock_is_not_convex():
    def objective(w):
        return float(scipy.optimize.rosen(w)), scipy.optimize.rosen_der(w)

    start = np.array([-1.2, 1.0, -1.2, 1.0])
    w, report = lbfgs(objective, start, tol=1e-9, max_iter=2000)
    assert report.value < 4  # there is a second, local minimum
    assert np.linalg.norm(objective(w)[1]) < 1e-3
    never_rises(report, objective(start)[0])


@pytest.mark.parametrize("l1", [0.5, 3.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_l1_matches_proximal_gradient(seed, l1):
    objective, lipschitz = logistic(seed)
    want = ista(objective, lipschitz, l1, 12)
    w, report = lbfgs(objective, np.zeros(12), l1=l1, tol=1e-9, max_iter=2000)
    best = objective(want)[0] + l1 * np.abs(want).sum()
    assert report.converged
    assert_allclose(report.value, objective(w)[0] + l1 * np.abs(w).sum(), rtol=1e-14)
    assert_allclose(report.value, best, rtol=1e-7)
    assert_allclose(w, want, atol=1e-3)
    assert_array_equal(w == 0, want == 0)  # exact zeros, and the same ones
    never_rises(report, objective(np.zeros(12))[0])


@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.floats(0.01, 3))
def test_l1_of_a_separable_quadratic_is_a_soft_threshold(seed, n, l1):
    rng = np.random.default_rng(seed)
    curvature, minimum = rng.uniform(0.5, 5, n), rng.normal(size=n) * 2
    want = soft(minimum, l1 / curvature)
    w, report = lbfgs(
        quadratic(np.diag(curvature), minimum), rng.normal(size=n), l1=l1, tol=1e-10, max_iter=2000, period=30
    )
    assert_allclose(w, want, atol=2e-4)
    clear = np.abs(np.abs(minimum) - l1 / curvature) > 1e-3  # a knife's edge may fall either way
    assert_array_equal((w == 0)[clear], (want == 0)[clear])
    assert report.history == [] or report.history[-1].n_active == np.count_nonzero(w)


def test_a_huge_l1_leaves_nothing():
    objective, _ = logistic(0)
    w, report = lbfgs(objective, np.zeros(12), l1=1e6)
    assert_array_equal(w, 0)
    assert report.converged
    assert report.value == objective(np.zeros(12))[0]
    w, _ = lbfgs(objective, np.ones(12), l1=1e6)  # and from elsewhere it goes there
    assert_array_equal(w, 0)


@pytest.mark.parametrize("l1", [0.0, 0.1])
@pytest.mark.parametrize("beyond", [np.inf, np.nan])
def test_values_beyond_a_region_are_avoided(l1, beyond):
    # -log(1 - w^2) - 3 w: the first steps leave (-1, 1).
    def objective(w):
        if (np.abs(w) >= 1).any():
            return beyond, np.full_like(w, np.nan)
        return float((-np.log1p(-(w**2)) - 3 * w).sum()), 2 * w / (1 - w**2) - 3

    pull = 3 - l1
    want = (np.sqrt(1 + pull**2) - 1) / pull  # 2w / (1 - w^2) = pull
    w, report = lbfgs(objective, np.array([-0.9, 0.0, 0.99]), l1=l1, tol=1e-9)
    assert report.converged
    assert_allclose(w, want, atol=1e-5)
    assert all(np.isfinite(step.value) for step in report.history)


def test_the_callback_sees_every_step_and_may_stop():
    objective, _ = logistic(1)
    seen: list[Step] = []
    copies = []

    def callback(step, w):
        seen.append(step)
        copies.append(w.weights.copy())
        return step.iteration == 3

    w, report = lbfgs(objective, np.zeros(12), tol=1e-9, callback=callback)
    assert [step.iteration for step in seen] == [1, 2, 3]
    assert report.history == seen
    assert (report.n_iter, report.converged) == (3, False)
    assert "stopped" in report.reason
    assert_array_equal(w, copies[-1])
    for step, weights in zip(seen, copies, strict=True):
        assert_allclose(step.value, objective(weights)[0], rtol=1e-14)
        assert step.n_active == np.count_nonzero(weights)
    counts = [step.n_evaluations for step in seen]
    assert counts == sorted(set(counts))
    assert [s.seconds for s in seen] == sorted(s.seconds for s in seen)


def test_a_callback_without_an_answer_changes_nothing():
    objective, _ = logistic(1)
    with_callback, _ = lbfgs(objective, np.zeros(12), callback=lambda step, w: None)
    without, _ = lbfgs(objective, np.zeros(12))
    assert_array_equal(with_callback, without)


@pytest.mark.parametrize("l1", [0.0, 1.0])
def test_too_few_iterations_warn(l1):
    objective, _ = logistic(2)
    with pytest.warns(ConvergenceWarning, match="2 iterations.*tol=1e-09.*max_iter"):
        w, report = lbfgs(objective, np.zeros(12), l1=l1, max_iter=2, tol=1e-9)
    assert (report.n_iter, report.converged) == (2, False)
    assert report.value < objective(np.zeros(12))[0]
    assert_allclose(report.value, objective(w)[0] + l1 * np.abs(w).sum(), rtol=1e-14)


def test_a_loose_tolerance_stops_sooner():
    objective, _ = logistic(3)
    loose, tight = (lbfgs(objective, np.zeros(12), tol=tol)[1] for tol in (1e-1, 1e-7))
    assert loose.converged
    assert tight.converged
    assert loose.n_iter < tight.n_iter
    assert tight.value <= loose.value


def test_the_period_of_the_stopping_rule():
    objective, _ = logistic(3)
    _, report = lbfgs(objective, np.zeros(12), tol=1e-3, period=4)
    values = [step.value for step in report.history]
    assert report.converged
    falls = [values[k - 4] - values[k] < 1e-3 * abs(values[k]) for k in range(4, len(values))]
    assert falls == [False] * (len(falls) - 1) + [True]


def test_a_wrong_gradient_is_not_called_converged():
    # Uphill everywhere: no step can lower the value.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        w, report = lbfgs(lambda w: (float(w @ w), -2 * w), np.ones(3))
    assert not report.converged
    assert report.reason
    assert_array_equal(w, 1)


@pytest.mark.parametrize("l1", [0.0, 0.7])
def test_the_same_every_time(l1):
    objective, _ = logistic(5)
    (a, first), (b, second) = (lbfgs(objective, np.zeros(12), l1=l1, tol=1e-8) for _ in range(2))
    assert_array_equal(a, b)
    assert [s.value for s in first.history] == [s.value for s in second.history]
    assert [s.n_evaluations for s in first.history] == [s.n_evaluations for s in second.history]
