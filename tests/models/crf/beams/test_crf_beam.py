"""CRFs of higher order and within beams: enumeration, the exact model, storage, checkpoints, invalid arguments."""

from itertools import product

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.estimators import made
from trelliswork import CRF, bundled
from trelliswork.distributions import Beam
from trelliswork.errors import ApproximationWarning, ConvergenceWarning, LimitError, ValueRangeError
from trelliswork.inference.chain.beam import BeamStatistics
from trelliswork.machine import limits

TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]"
pytestmark = [
    pytest.mark.filterwarnings("ignore:L-BFGS stopped"),
    pytest.mark.filterwarnings("ignore:the beam:trelliswork.errors.ApproximationWarning"),
]


def toy(n=60, n_labels=4, seed=0):
    """Return sentences whose labels depend on the two previous ones, with uninformative words."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(n_labels)), int(rng.integers(n_labels))]
        while len(labels) < 8:
            usual = (labels[-1] + labels[-2]) % n_labels
            labels.append(usual if rng.random() < 0.9 else int(rng.integers(n_labels)))
        X.append([str(label if rng.random() < 0.5 else rng.integers(n_labels)) for label in labels])
        y.append([f"L{label}" for label in labels])
    return X, y


def ngram_score(crf, words, labels):
    """Return the score of a labeling, computed from the weights."""
    total = sum(
        w
        for name, label, w in crf.top_features(10**6)
        for t in range(len(words))
        if labels[t] == label and name in attributes(words, t)
    )
    for length in range(2, crf.order + 2):
        weights = {tuple(row[:-1]): row[-1] for row in crf._learned.top_ngrams(10**6, length)}
        total += sum(weights.get(tuple(labels[t - length + 1 : t + 1]), 0.0) for t in range(length - 1, len(labels)))
    return total


def attributes(words, t):
    return {f"U0:{words[t]}", f"U1:{words[t - 1] if t else '_B-1'}"}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("beam", [None, "kl=0"])
def test_orders_match_enumeration(order, beam):
    X, y = toy()
    crf = CRF(TEMPLATE, order=order, beam=beam, l2=0.1, max_iter=15, scheme=None).fit(X, y)
    words, names = X[0][:4], list(crf.labels_)
    paths = list(product(names, repeat=4))
    scores = np.array([ngram_score(crf, words, path) for path in paths])
    p = np.exp(scores - np.logaddexp.reduce(scores))
    assert crf.predict([words])[0] == list(paths[int(p.argmax())])
    marginals = crf.predict_marginals([words])[0]
    for t, j in product(range(4), range(len(names))):
        want = sum(q for q, path in zip(p, paths, strict=True) if path[t] == names[j])
        assert marginals[t][names[j]] == pytest.approx(want, abs=2e-5)
    best = crf.predict_topk([words], 5)[0]
    assert_allclose([q for _, q in best], np.sort(p)[::-1][:5], atol=2e-5)
    assert best[0][0] == crf.predict([words])[0]
    posterior = crf.posterior(words)
    assert posterior.kind == ("exact" if beam is None else "lower")
    assert_allclose(posterior.log_partition().item(), np.logaddexp.reduce(scores), atol=1e-4)


def test_second_order_fits_better_than_first_order():
    X, y = toy(150)
    test = toy(100, seed=1)
    first = CRF(TEMPLATE, l2=0.1, scheme=None).fit(X, y)
    second = CRF(TEMPLATE, l2=0.1, order=2, scheme=None).fit(X, y)
    beamed = CRF(TEMPLATE, l2=0.1, order=2, beam="kl=0.01,min=4", scheme=None).fit(X, y)
    assert second.report_.value < 0.5 * first.report_.value
    assert second.score(*test) > first.score(*test)
    assert beamed.report_.value == pytest.approx(second.report_.value, rel=0.02)
    assert beamed.score(*test) == pytest.approx(second.score(*test), abs=0.01)


def test_start_from_the_first_order_does_not_change_the_optimum():
    """Longer n-grams only lower the objective."""
    X, y = toy()
    values = [CRF(TEMPLATE, order=k, l2=0.1, tol=1e-8, scheme=None).fit(X, y).report_.value for k in (1, 2)]
    assert values[1] < values[0]
    cold = CRF(TEMPLATE, order=2, l2=0.1, tol=1e-8, scheme=None)
    zero = CRF("U9:%x[5,0]", order=2, max_iter=1, scheme=None).fit(X, y)  # shares no attribute: a start from zero
    zero._learned.weights[:] = 0
    assert cold.fit(X, y, start=zero).report_.value == pytest.approx(values[1], rel=1e-4)


def test_training_within_beams_is_close_to_exact_training():
    train = bundled.load("train")[:120]
    X, y = [s.words for s in train], [s.tags for s in train]
    exact = CRF("pos", max_iter=40).fit(X, y)
    for text in ("kl=0.005,min=5", "kl=auto,min=5", "size=25", "threshold=7,min=3"):
        crf = CRF("pos", max_iter=40, beam=text).fit(X, y)
        figures = crf.report_.beam
        assert isinstance(figures, BeamStatistics)
        assert figures.mean_size <= len(crf.labels_)
        assert 0.97 < figures.kept <= 1
        assert crf.report_.value <= exact.report_.value * 1.02
        same = [
            a == b for p, q in zip(crf.predict(X), exact.predict(X), strict=True) for a, b in zip(p, q, strict=True)
        ]
        assert np.mean(same) > 0.99


def test_narrow_beam_warns():
    X, y = toy(n_labels=40)
    with pytest.warns(ApproximationWarning, match=r"the beam size=1 lost .* nats per token"):
        crf = CRF(TEMPLATE, beam="size=1", l2=1.0, max_iter=30, scheme=None).fit(X, y)
    assert crf.report_.beam.kept < 0.98


def test_auto_eps_tightens_itself():
    """A beam that loses more than is gained is tightened until the optimum is that of the exact model."""
    X, y = toy(n_labels=8)
    exact = CRF(TEMPLATE, l2=0.5, scheme=None, tol=1e-6).fit(X, y)
    crf = CRF(TEMPLATE, l2=0.5, scheme=None, tol=1e-6, beam=Beam("kl", eps="auto", min_size=1)).fit(X, y)
    assert crf.report_.value == pytest.approx(exact.report_.value, rel=0.01)
    iterations = [step.iteration for step in crf.report_.history]
    assert iterations == list(range(1, len(iterations) + 1))


def test_saved_and_loaded(tmp_path):
    X, y = toy()
    crf = CRF(TEMPLATE, order=2, beam=Beam("size", size=9), max_iter=5, scheme=None).fit(X, y)
    crf.save(tmp_path / "model")
    again = CRF.load(tmp_path / "model")
    assert again.beam == "size=9"
    assert again.order == 2
    assert again.report_.beam == crf.report_.beam
    assert again.predict(X) == crf.predict(X)
    assert again.describe(7).tables[2] == crf.describe(7).tables[2]
    more = CRF(TEMPLATE, order=2, beam="size=9", max_iter=50, scheme=None).fit(X, y, start=again)
    assert more.report_.value <= crf.report_.value


@pytest.mark.parametrize("beam", ["kl=auto,min=2", "size=3"])
def test_resumed_training_ends_at_the_same_weights(tmp_path, beam):
    X, y = toy()
    options = {"order": 2, "beam": beam, "l2": 0.3, "scheme": None}
    whole = made(CRF, TEMPLATE, max_iter=12, **options).fit(X, y)
    path = tmp_path / "run.ckpt"
    made(CRF, TEMPLATE, max_iter=12, **options).fit(X, y, checkpoint=path, callback=Stop(17))
    assert path.exists()
    resumed = made(CRF, TEMPLATE, max_iter=12, **options).fit(X, y, checkpoint=path)
    assert_allclose(resumed._learned.weights, whole._learned.weights, rtol=0, atol=0)


class Stop:
    """Callback that stops at its n-th call, including the iterations of the first order."""

    def __init__(self, n):
        self.n = n

    def __call__(self, step):
        self.n -= 1
        return self.n <= 0


@pytest.mark.parametrize("order", [1, 2])
def test_start_at_the_optimum_converges_at_once(order):
    X, y = toy(n_labels=8)
    options = {"order": order, "beam": "size=30", "l2": 1.0, "scheme": None}
    first = made(CRF, TEMPLATE, tol=1e-7, **options).fit(X, y)
    again = made(CRF, TEMPLATE, tol=1e-2, **options).fit(X, y, start=first)
    assert again.report_.converged
    assert again.report_.n_iter <= 3
    assert_allclose(again.report_.value, first.report_.value, rtol=0.02)  # other states may be held


def test_known_labels_and_development_data():
    X, y = toy(80)
    crf = CRF(TEMPLATE, order=2, beam="kl=0.01,min=3", scheme=None, max_iter=30, patience=3)
    crf.fit(X[:60], y[:60], dev=(X[60:], y[60:]))
    assert any(step.dev is not None for step in crf.report_.history)
    given = [["L3", *[None] * (len(x) - 1)] for x in X]
    assert all(labels[0] == "L3" for labels in crf.predict(X, known=given))


def test_scheme_is_respected_in_higher_orders():
    train = bundled.load("train")[:60]
    X, y = [list(zip(s.words, s.tags, strict=True)) for s in train], [s.chunks for s in train]
    crf = CRF("chunking", order=2, beam="kl=0.01,min=3", max_iter=10).fit(X, y)
    assert crf._learned.scheme == "bio"
    for labels in crf.predict(X):
        for before, after in zip(["O", *labels], labels, strict=False):
            assert not after.startswith("I-") or before[2:] == after[2:]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"beam": "kl"}, "cannot be read"),
        ({"beam": 5}, "beam must be a Beam"),
        ({"order": 0}, "order"),
        ({"order": 2, "algorithm": "sgd"}, "need algorithm='lbfgs'"),
        ({"beam": "size=3", "algorithm": "perceptron"}, "need algorithm='lbfgs'"),
        ({"order": 9}, "use a lower order"),
        ({"beam": "size=3", "label_weight": {"L0": 2.0}}, "label weights"),
    ],
)
def test_invalid_options(options, match):
    with pytest.raises(ValueRangeError, match=match):
        made(CRF, TEMPLATE, scheme=None, **options).fit(*toy(n_labels=8))


def test_partial_labels_and_edges_are_rejected():
    X, y = toy()
    holes = [[None, *labels[1:]] for labels in y]
    for options in ({"order": 2}, {"beam": "size=2"}):
        with pytest.raises(ValueRangeError, match=r"every token|order=1"):
            made(CRF, TEMPLATE, scheme=None, **options).fit(X, holes)
    with pytest.raises(ValueRangeError, match="B templates"):
        CRF(TEMPLATE + "\nB9:%x[0,0]", scheme=None, order=2).fit(X, y)
    with pytest.raises(ValueRangeError, match="5000 states"):
        CRF(TEMPLATE, scheme=None, order=5, max_iter=1).fit(*toy(n_labels=6)).posterior(X[0])


def test_edge_features_tag_within_a_beam_but_train_exactly():
    X, y = toy()
    with pytest.raises(ValueRangeError, match=r"no B templates with columns.*set_params\(beam=...\) after training"):
        CRF(TEMPLATE + "\nB9:%x[0,0]", scheme=None, beam="size=9").fit(X, y)
    crf = CRF(TEMPLATE + "\nB9:%x[0,0]", scheme=None, max_iter=10, beam="auto").fit(X, y)
    exact = crf.predict(X)
    crf.set_params(beam="kl=0")
    assert crf.predict(X) == exact
    assert isinstance(crf.posterior(X[0]).log_partition(), torch.Tensor)


def test_convergence_warning():
    with pytest.warns(ConvergenceWarning):
        CRF(TEMPLATE, scheme=None, beam="kl=0.01,min=2", max_iter=2).fit(*toy())


def test_marginals_of_order_two_are_those_of_the_posterior():
    X, y = toy()
    crf = CRF(TEMPLATE, order=2, l2=0.1, max_iter=15, scheme=None).fit(X, y)
    for words, rows in zip(X[:5], crf.predict_marginals(X[:5]), strict=True):
        found = [[row[name] for name in crf.labels_] for row in rows]
        assert_allclose(found, crf.posterior(words).marginals()[0], atol=1e-12)


def test_exact_training_that_needs_too_much_memory_is_refused():
    X, y = toy(n_labels=6)
    with limits(gigabytes=1e-3), pytest.raises(LimitError, match=r"exact training with 258 states per token.*kl=0.005"):
        CRF(TEMPLATE, order=3, scheme=None).fit(X, y)
