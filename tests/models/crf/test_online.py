"""Stochastic training against dense numpy, enumeration and L-BFGS."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork import CRF
from trelliswork.errors import ValueRangeError
from trelliswork.learning.lbfgs import lbfgs
from trelliswork.models.crf.layout import Allowed, FeatureLayout
from trelliswork.models.crf.objective import ChainObjective
from trelliswork.models.crf.online import FORGET, OnlineChain
from trelliswork.models.crf.problem import Labeling, Problem, Tokens


def random_tokens(rng, lengths, n_attributes, *, real=False):
    n_each = rng.integers(0, min(n_attributes, 4) + 1, int(np.sum(lengths)))
    ids = np.concatenate([*(rng.choice(n_attributes, n, replace=False) for n in n_each), []]).astype(np.int32)
    ptr = [np.concatenate([[0], np.cumsum(n)]).astype(np.int64) for n in (lengths, n_each)]
    return Tokens(*ptr, ids, rng.normal(size=len(ids)).astype(np.float32) if real else None)


def random_case(seed, *, n_labels=4, n_attributes=9, n_sentences=11, real=False, kind="observed"):
    """Return tokens, gold labels and a layout; "observed" has incomplete dense rows as well as single weights."""
    rng = np.random.default_rng(seed)
    tokens = random_tokens(rng, rng.integers(1, 7, n_sentences), n_attributes, real=real)
    gold = rng.integers(0, n_labels, tokens.offsets[-1]).astype(np.int32)
    if kind == "all_pairs":
        return tokens, gold, FeatureLayout.all_pairs(n_attributes, n_labels)
    return tokens, gold, FeatureLayout.observed(tokens, Labeling(gold), n_attributes, n_labels)


def limits(rng, tokens, gold, n_labels):
    """Forbid some labels and pairs, but none of the gold ones."""
    allowed = Allowed(*(rng.random(shape) < 0.4 for shape in ((n_labels, n_labels), n_labels, n_labels)))
    for start, stop in pairwise(tokens.offsets.tolist()):
        allowed.pairs[gold[start : stop - 1], gold[start + 1 : stop]] = True
        allowed.start[gold[start]] = allowed.end[gold[stop - 1]] = True
    return allowed


def features(tokens, layout, start, labels):
    """Return the dense feature vector of a labeled sentence."""
    phi, n = np.zeros(layout.n_features), len(layout.transitions)
    for i, j in pairwise(labels):
        phi[:n] += layout.transitions == i * layout.n_labels + j
    for i, label in enumerate(labels, start):
        for at in range(tokens.token_ptr[i], tokens.token_ptr[i + 1]):
            value = 1.0 if tokens.values is None else tokens.values[at]
            phi[n:] += value * ((layout.attributes == tokens.ids[at]) & (layout.labels == label))
    return phi


def labelings(n_labels, length, allowed=None, within=None):
    for y in product(range(n_labels), repeat=length):
        good = allowed is None or (
            allowed.start[y[0]] and allowed.end[y[-1]] and all(map(allowed.pairs.item, y, y[1:]))
        )
        if good and (within is None or all(within[t, j] == 0 for t, j in enumerate(y))):
            yield y


def log_sum(tokens, layout, w, start, paths):
    """Return the log sum exp of the scores of paths, and the expected features."""
    phi = np.array([features(tokens, layout, start, y) for y in paths])
    scores = phi @ w
    log_z = np.logaddexp.reduce(scores)
    return log_z, np.exp(scores - log_z) @ phi


def problem_of(case, weights=None, allowed=None):
    tokens, gold, layout = case
    return Problem(tokens, Labeling(gold), layout, weights, allowed=allowed)


def objective_of(case, l2=0.0, **options):
    return ChainObjective(problem_of(case, **options), l2=l2)


def online_of(case, *, weights=None, allowed=None, **options):
    return OnlineChain(problem_of(case, weights, allowed), **options)


def batches_of(n_sentences, batch_size, seed, epoch):
    order = np.random.default_rng((seed, epoch)).permutation(n_sentences)
    return [order[k : k + batch_size] for k in range(0, n_sentences, batch_size)]


def dense_sgd(case, w, n_epochs, *, rate, l2, batch_size, seed, weights, allowed=None):
    """Run SGD with dense vectors; return the last weights, the average and the losses of the last epoch."""
    tokens, gold, layout = case
    N = len(tokens.offsets) - 1
    decay, step, mean, losses = 2 * l2 / N, 0, w, 0.0
    for epoch in range(n_epochs):
        seen, losses = [], 0.0
        for batch in batches_of(N, batch_size, seed, epoch):
            lengths = np.diff(tokens.offsets)[batch]
            which = np.concatenate([np.arange(tokens.offsets[n], tokens.offsets[n + 1]) for n in batch])
            part = (tokens.take(which, lengths), gold[which], layout)
            value, gradient = objective_of(part, weights=weights[batch], allowed=allowed)(w)
            eta = rate / (1 + decay * rate * step) ** 0.75
            w = w - eta * (gradient / len(batch) + decay * w)
            seen.append(w)
            losses += value
            step += 1
        share = (FORGET + 1) / (epoch + 1 + FORGET)
        mean = (1 - share) * mean + share * np.mean(seen, axis=0)
    return w, mean, losses


@pytest.mark.parametrize("kind", ["observed", "all_pairs"])
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("n_labels", [2, 4, 9, 17])
def test_one_step_over_all_sentences_is_a_step_along_the_gradient(kind, real, n_labels):
    case = random_case(1, n_labels=n_labels, real=real, kind=kind, n_sentences=30)
    layout, rng = case[2], np.random.default_rng(5)
    alpha, w = rng.uniform(0, 2, 30), rng.normal(size=layout.n_features)
    value, gradient = objective_of(case, l2=3.0, weights=alpha)(w)
    online = online_of(case, kind="sgd", l2=3.0, weights=alpha, batch_size=30, rate=0.5)
    online.load(w)
    loss = online.epoch()
    assert_allclose(online.state.weights, w - 0.5 * gradient / 30, rtol=1e-5, atol=1e-5)
    assert_allclose(online.state.mean, online.state.weights, rtol=1e-6)
    assert_allclose(loss, value - 3 * w @ w + 3 * online.state.weights @ online.state.weights, rtol=1e-5)


@given(
    seed=st.integers(0, 2**32 - 1),
    batch_size=st.integers(1, 12),
    l2=st.sampled_from([0.0, 0.3, 5.0]),
    real=st.booleans(),
    kind=st.sampled_from(["observed", "all_pairs"]),
    limited=st.booleans(),
)
def test_weights_and_average_of_many_steps_match_dense_sgd(seed, batch_size, l2, real, kind, limited):
    case = random_case(seed, n_labels=5, n_attributes=20, real=real, kind=kind)
    rng = np.random.default_rng(seed)
    options = {"l2": l2, "rate": 0.3, "batch_size": batch_size, "seed": 7, "weights": rng.uniform(0, 2, 11)}
    options["allowed"] = limits(rng, *case[:2], 5) if limited else None
    w = rng.normal(size=case[2].n_features)
    online = online_of(case, kind="sgd", **options)
    online.load(w)
    for _ in range(3):
        loss = online.epoch()
    want, want_mean, losses = dense_sgd(case, w, 3, **options)
    assert_allclose(online.state.weights, want, rtol=1e-4, atol=1e-4)
    assert_allclose(online.state.mean, want_mean, rtol=1e-4, atol=1e-4)
    assert_allclose(loss, losses + l2 * want @ want, rtol=1e-3, atol=1e-3)


def test_strong_decay_keeps_precision():
    # eta lambda = 0.6 at first: the scalar of the weights becomes tiny within a few steps.
    case = random_case(3, n_sentences=1000)
    options = {"l2": 300.0, "rate": 1.0, "batch_size": 1, "seed": 0, "weights": np.ones(1000)}
    online = online_of(case, kind="sgd", **options)
    online.epoch()
    want, want_mean, _ = dense_sgd(case, np.zeros(case[2].n_features), 1, **options)
    assert_allclose(online.state.weights, want, rtol=1e-4, atol=1e-5)
    assert_allclose(online.state.mean, want_mean, rtol=1e-4, atol=1e-5)


def sampled_case(n_sentences=400, n_labels=5, n_attributes=40):
    """Return sentences labeled by a random rule: each attribute votes for labels, with noise."""
    rng = np.random.default_rng(0)
    tokens = random_tokens(rng, rng.integers(3, 12, n_sentences), n_attributes)
    votes = rng.normal(size=(n_attributes, n_labels)) * 1.5
    noise = rng.gumbel(size=(tokens.offsets[-1], n_labels))
    gold = np.array(
        [
            (votes[tokens.ids[a:b]].sum(axis=0) + noise[i]).argmax()
            for i, (a, b) in enumerate(pairwise(tokens.token_ptr))
        ]
    )
    return tokens, gold.astype(np.int32), FeatureLayout.all_pairs(n_attributes, n_labels)


def test_sgd_converges_towards_the_optimum():
    case = sampled_case()
    objective = objective_of(case, l2=1.0)
    _, report = lbfgs(objective, np.zeros(case[2].n_features))
    online = online_of(case, kind="sgd", l2=1.0)
    first = online.epoch()
    assert online.state.rate > 0
    for _ in range(19):
        last = online.epoch()
    assert last < first
    assert report.value <= objective(online.state.mean)[0] <= 1.005 * report.value
    assert objective(online.state.mean)[0] < objective(online.state.weights)[0]  # averaging helps


def test_the_chosen_rate_is_the_best_of_its_neighbors():
    case = sampled_case(200)
    online = online_of(case, kind="sgd", l2=1.0)
    online.epoch()
    chosen = online.state.rate
    fresh = online_of(case, kind="sgd", l2=1.0)
    sample = np.random.default_rng((0, 1 << 32)).permutation(200)
    losses = []
    for rate in (chosen / 2, chosen, 2 * chosen):
        losses.append(fresh._pass(sample, rate, 0)[0])
        fresh.load(np.zeros(case[2].n_features))
    assert losses[1] == min(losses)
    fixed = online_of(case, kind="sgd", l2=1.0, rate=chosen)
    fixed.epoch()
    assert_array_equal(fixed.state.weights, online.state.weights)  # trying rates changes no state


def dense_perceptron(case, n_epochs, *, weights, seed=0, batch_size=1, allowed=None):
    tokens, gold, layout = case
    w, seen, wrong = np.zeros(layout.n_features), [], []
    for epoch in range(n_epochs):
        wrong.append(0)
        for batch in batches_of(len(tokens.offsets) - 1, batch_size, seed, epoch):
            update = np.zeros_like(w)
            for n in batch:
                start, stop = tokens.offsets[n], tokens.offsets[n + 1]
                paths = [
                    y[::-1] for y in product(range(layout.n_labels), repeat=int(stop - start))
                ]  # ties: smallest last label first
                good = set(labelings(layout.n_labels, int(stop - start), allowed))
                paths = [y for y in paths if y in good]
                best = max(paths, key=lambda y: features(tokens, layout, start, y) @ w)
                y = gold[start:stop].tolist()
                wrong[-1] += sum(a != b for a, b in zip(y, best, strict=True))
                difference = features(tokens, layout, start, y) - features(tokens, layout, start, best)
                update += weights[n] * difference
            w = w + update
            seen.append(w)
    return w, np.mean(seen, axis=0), wrong


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("kind", ["observed", "all_pairs"])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_the_perceptron_matches_a_naive_one(kind, batch_size, limited):
    rng = np.random.default_rng(4)
    tokens = random_tokens(rng, rng.integers(1, 5, 12), 6)
    gold = rng.integers(0, 3, tokens.offsets[-1]).astype(np.int32)
    layout = (
        FeatureLayout.all_pairs(6, 3) if kind == "all_pairs" else FeatureLayout.observed(tokens, Labeling(gold), 6, 3)
    )
    case, alpha = (tokens, gold, layout), rng.integers(0, 3, 12).astype(float)  # integers, so that ties are exact
    allowed = limits(rng, tokens, gold, 3) if limited else None
    online = online_of(case, kind="perceptron", weights=alpha, batch_size=batch_size, seed=3, allowed=allowed)
    wrong = [online.epoch() for _ in range(4)]
    want, want_mean, want_wrong = dense_perceptron(
        case, 4, weights=alpha, seed=3, batch_size=batch_size or 1, allowed=allowed
    )
    assert wrong == want_wrong
    assert_array_equal(online.state.weights, want)
    assert_allclose(online.state.mean, want_mean, rtol=1e-6, atol=1e-6)


def test_the_perceptron_separates_separable_data():
    # The labels are the best ones under random weights, including transitions.
    rng = np.random.default_rng(0)
    tokens = random_tokens(rng, rng.integers(2, 9, 60), 12)
    truth = rng.normal(size=12 * 4 + 16)
    layout = FeatureLayout.all_pairs(12, 4)
    teacher = online_of((tokens, np.zeros(tokens.offsets[-1], np.int32), layout), kind="perceptron")
    teacher.load(truth * 5)
    gold = np.concatenate([decode(teacher, s) for s in range(60)])
    online = online_of((tokens, gold, layout), kind="perceptron")
    wrong = [online.epoch() for _ in range(100)]
    assert wrong[0] > 50
    assert wrong[-1] == 0
    before = online.state.weights
    online.epoch()
    assert_array_equal(online.state.weights, before)


def decode(online, s):
    """Return the best labels of a sentence, by dynamic programming in NumPy."""
    (sentences, rows), layout, w = online._data, online.layout, online.state.weights
    start, stop = sentences.offsets[s], sentences.offsets[s + 1]
    n, S = len(layout.transitions), layout.n_labels
    state = w[n:].reshape(-1, S)
    unary = np.zeros((stop - start, S))
    for t in range(stop - start):
        at = slice(rows.wide_ptr[start + t], rows.wide_ptr[start + t + 1])
        unary[t] = state[rows.wide_ids[at] // 3].sum(axis=0)
    delta, back = unary[0], []
    for row in unary[1:]:
        scores = delta[:, None] + w[:n].reshape(S, S)
        back.append(scores.argmax(axis=0))
        delta = scores.max(axis=0) + row
    path = [int(delta.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return np.array(path[::-1], np.int32)


@pytest.mark.parametrize("kind", ["sgd", "perceptron"])
def test_a_restored_run_continues_bit_for_bit(kind):
    case = sampled_case(60)
    options = {"kind": kind, "seed": 5, "l2": 0.5 if kind == "sgd" else 0.0}
    whole, first = online_of(case, **options), online_of(case, **options)
    losses = [whole.epoch() for _ in range(5)]
    for _ in range(2):
        first.epoch()
    state = first.state
    assert all(type(v) in (int, float) for v in (state.epochs, state.steps, state.rate))
    first.epoch()  # changes no earlier state
    second = online_of(case, **options)
    second.restore(state)
    assert [second.epoch() for _ in range(3)] == losses[2:]
    assert_array_equal(second.state.weights, whole.state.weights)
    assert_array_equal(second.state.mean, whole.state.mean)
    assert second.state.rate == whole.state.rate
    whole.load(np.zeros(case[2].n_features))
    assert whole.epoch() == losses[0]


def test_different_seeds_give_different_runs():
    case = sampled_case(60)
    runs = [online_of(case, kind="sgd", rate=0.5, seed=seed) for seed in (0, 1)]
    assert runs[0].epoch() != runs[1].epoch()


@pytest.mark.parametrize("kind", ["sgd", "perceptron"])
def test_forbidden_pairs_are_not_updated(kind):
    tokens, gold, layout = random_case(2, n_labels=4, n_sentences=30, kind="all_pairs")
    gold[:] = 0
    pairs = np.ones((4, 4), bool)
    pairs[2, 3] = pairs[1, 1] = False
    allowed = Allowed(pairs, np.ones(4, bool), np.array([True, True, False, True]))
    online = online_of((tokens, gold, layout), kind=kind, allowed=allowed)
    start = np.zeros(layout.n_features)
    start[:16].reshape(4, 4)[~pairs] = 5.0  # high scores of forbidden pairs
    start[4 * 3 + 3] = 1.0  # a pair that is never gold
    online.load(start)
    for _ in range(3):
        online.epoch()
    moved = (online.state.weights - start)[:16].reshape(4, 4)
    assert_array_equal(moved[~pairs], 0)
    assert (moved[pairs] != 0).any()


@pytest.mark.parametrize("size", [30.0, 300.0, 1e4, 1e30])
@pytest.mark.parametrize("limited", [False, True])
def test_huge_scores_give_no_nan(size, limited):
    tokens, gold, layout = case = random_case(6, n_labels=3, n_sentences=8)
    rng = np.random.default_rng(1)
    allowed = limits(rng, tokens, gold, 3) if limited else None
    w = rng.normal(size=layout.n_features) * size
    value, gradient = 0.0, np.zeros_like(w)
    for start, stop in pairwise(tokens.offsets.tolist()):
        log_z, expected = log_sum(tokens, layout, w, start, labelings(3, stop - start, allowed))
        observed = features(tokens, layout, start, gold[start:stop].tolist())
        value, gradient = value + log_z - observed @ w, gradient + expected - observed
    online = online_of(case, kind="sgd", batch_size=8, rate=8.0, allowed=allowed)
    online.load(w)
    assert_allclose(online.epoch(), value, rtol=1e-4)
    assert_allclose(online.state.weights, w - gradient, rtol=1e-5, atol=1e-4)
    perceptron = online_of(case, kind="perceptron", allowed=allowed)
    perceptron.load(w)
    perceptron.epoch()
    for trainer in (online, perceptron):
        assert np.isfinite(trainer.state.mean).all()


def test_divergence_raises_and_restores_the_weights():
    tokens, gold, layout = random_case(6, n_sentences=20)
    tokens = Tokens(tokens.offsets, tokens.token_ptr, tokens.ids, np.full(len(tokens.ids), 1e30, np.float32))
    online = online_of((tokens, gold, layout), kind="sgd", rate=1e15)
    with pytest.raises(ValueRangeError, match="smaller rate"):
        online.epoch()
    assert_array_equal(online.state.weights, 0)
    assert online.state.epochs == 0


def test_tokens_without_attributes_and_single_tokens():
    tokens = Tokens(np.array([0, 3, 4]), np.zeros(5, np.int64), np.empty(0, np.int32))
    layout = FeatureLayout.observed(tokens, Labeling(np.array([0, 1, 1, 0], np.int32)), 0, 2)
    for kind in ("sgd", "perceptron"):
        online = online_of((tokens, np.array([0, 1, 1, 0], np.int32), layout), kind=kind)
        online.epoch()
        assert np.isfinite(online.state.mean).all()


def test_a_rate_must_be_small_for_the_penalty():
    case = random_case(0)
    with pytest.raises(ValueRangeError, match="= 11, got 11"):
        online_of(case, kind="sgd", rate=11.0, l2=0.5)


@pytest.mark.parametrize("value", [2e19, 1e30, 3e38])
def test_perceptron_reports_values_that_overflow(value):
    rng = np.random.default_rng(0)
    X = [[{f"a{rng.integers(3)}": value * rng.choice([-1.0, 1.0]), "b": 1.0} for _ in range(6)] for _ in range(8)]
    y = [[str(rng.integers(4)) for _ in sentence] for sentence in X]
    with pytest.raises(ValueRangeError, match="left the range of float32"):
        CRF(None, algorithm="perceptron").fit(X, y)
