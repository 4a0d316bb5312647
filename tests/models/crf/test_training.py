"""Ways to learn a CRF: algorithms, partial labels, development data, warm starts, checkpoints, streams."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.estimators import made
from trelliswork import CRF, load
from trelliswork.data import bundled
from trelliswork.errors import DataError, NotFittedError, ShapeError, ValueRangeError

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


def corpus(split="train", n=120):
    sentences = bundled.load(split)[:n]
    return [list(zip(s.words, s.tags, strict=True)) for s in sentences], [list(s.chunks) for s in sentences]


X, Y = corpus()
X_DEV, Y_DEV = corpus("dev", 60)
WORDS = [["the", "dog", "runs"], ["a", "cat", "sleeps"], ["the", "cat", "runs"]]
TAGS = [["D", "N", "V"], ["D", "N", "V"], ["D", "N", "V"]]
EDGES = "U0:%x[0,0]\nU1:%x[0,1]\nB\nB1:%x[-1,1]/%x[0,1]\nB2:%x[0,0]"


@pytest.mark.parametrize("algorithm", ["sgd", "perceptron"])
def test_stochastic_learners_come_near_the_optimum(algorithm):
    exact = CRF("chunking", l2=0.1).fit(X, Y).score(X_DEV, Y_DEV)
    crf = CRF("chunking", l2=0.1, algorithm=algorithm).fit(X, Y)
    assert crf.score(X_DEV, Y_DEV) > exact - 0.02
    assert np.array_equal(crf._learned.weights, CRF("chunking", l2=0.1, algorithm=algorithm).fit(X, Y)._learned.weights)
    assert crf.report_.history[-1].value < crf.report_.history[0].value


def test_edge_features_can_tell_what_pairs_of_labels_alone_cannot():
    # The label flips exactly where the observation is "flip": only a pair of labels given the observation shows it.
    rng = np.random.default_rng(0)
    X, Y = [], []
    for _ in range(40):
        x = rng.choice(["flip", "stay"], 10).tolist()
        states = np.cumsum([w == "flip" for w in x]) % 2
        X.append(["start", *x])
        Y.append(["A", *("BA"[1 - s] for s in states)])
    plain = CRF("U:%x[0,0]\nB", l2=0.01, scheme=None).fit(X, Y)
    edges = CRF("U:%x[0,0]\nB\nB1:%x[0,0]", l2=0.01, scheme=None).fit(X, Y)
    assert plain.score(X, Y) < 0.8
    assert edges.score(X, Y) == 1.0
    assert {(a, b) for name, a, b, _ in edges.describe(4).tables[2].rows if name == "B1:flip"} <= {
        ("A", "B"), ("B", "A"), ("A", "A"), ("B", "B"),
    }  # fmt: skip


def test_every_query_of_a_model_with_edge_features(tmp_path):
    crf = CRF(EDGES, max_iter=20).fit(X, Y)
    predicted = crf.predict(X_DEV)
    marginals = crf.predict_marginals(X_DEV)
    topk = crf.predict_topk(X_DEV[:5], 3)
    posterior = crf.posterior(X_DEV[0])
    assert_allclose(
        posterior.marginals()[0].numpy(), [[p[label] for label in crf.labels_] for p in marginals[0]], atol=1e-5
    )
    assert [best[0][0] for best in topk] == predicted[:5]
    crf.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.predict(X_DEV) == predicted
    assert again.describe().tables == crf.describe().tables
    assert [t.name for t in again.features] == [t.name for t in CRF(EDGES).fit(X, Y)._learned.features.features]


def test_hashed_models_agree_with_remembered_ones_if_nothing_collides(tmp_path):
    plain = CRF("chunking", max_iter=30).fit(X, Y)
    hashed = CRF("chunking", max_iter=30, options={"hash_bits": 22}).fit(X, Y)
    assert hashed.report_.value == pytest.approx(plain.report_.value, rel=1e-3)
    hashed.save(tmp_path / "m")
    assert load(tmp_path / "m").predict(X_DEV) == hashed.predict(X_DEV)
    assert load(tmp_path / "m").features == "chunking"
    assert all(name.startswith("#") for name, _, _ in hashed.top_features(5))


def test_partial_labels_teach():
    full = CRF("U:%x[0,0]", l2=0.1, scheme=None).fit(WORDS, TAGS)
    partly = CRF("U:%x[0,0]", l2=0.1, scheme=None).fit(WORDS, [["D", None, "V"], ["D", {"N", "V"}, "V"], TAGS[2]])
    assert partly.predict(WORDS) == TAGS
    assert partly.report_.value < full.report_.value
    same = CRF("U:%x[0,0]", l2=0.1, scheme=None, options={"feature_set": "all"}).fit(
        WORDS, [[[tag] for tag in y] for y in TAGS]
    )
    want = CRF("U:%x[0,0]", l2=0.1, scheme=None, options={"feature_set": "all"}).fit(WORDS, TAGS)
    assert same.report_.value == pytest.approx(want.report_.value, rel=1e-5)


def test_unlabeled_tokens_in_a_scheme():
    y = [[None if t % 3 == 0 else label for t, label in enumerate(labels)] for labels in Y]
    crf = CRF("chunking", max_iter=30).fit(X, y)
    assert crf._learned.scheme == "bio"
    assert crf.score(X_DEV, Y_DEV) > 0.85


def test_an_empty_set_of_labels_is_refused():
    with pytest.raises(DataError, match="sentence 1, token 0: an empty set"):
        CRF("U:%x[0,0]").fit(WORDS, [TAGS[0], [set(), "N", "V"], TAGS[2]])


def test_label_weights_find_more_of_a_rare_label():
    rng = np.random.default_rng(0)
    X = [[str(rng.integers(0, 3)) for _ in range(10)] for _ in range(60)]
    Y = [["R" if rng.random() < 0.25 else "O" for _ in x] for x in X]  # unpredictable: the rare label never wins
    plain = CRF("U:%x[0,0]", scheme=None).fit(X, Y)
    weighted = CRF("U:%x[0,0]", scheme=None, options={"label_weight": {"R": 9.0}}).fit(X, Y)
    found = [sum(label == "R" for y in crf.predict(X) for label in y) for crf in (plain, weighted)]
    assert found[0] < 60 < 400 < found[1]
    odds = [crf.predict_marginals(X[:1])[0][5]["R"] for crf in (plain, weighted)]
    assert odds[1] / (1 - odds[1]) == pytest.approx(9 * odds[0] / (1 - odds[0]), rel=0.25)
    with pytest.raises(ValueRangeError, match="'Q'"):
        CRF("U:%x[0,0]", options={"label_weight": {"Q": 2.0}}).fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="must be positive"):
        CRF("U:%x[0,0]", options={"label_weight": {"N": 0.0}}).fit(WORDS, TAGS)


@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd"])
def test_early_stop_keeps_the_best_iteration(algorithm):
    crf = CRF("chunking", l2=1e-4, tol=0, patience=4, max_iter=60, algorithm=algorithm)
    crf.fit(X, Y, dev=(X_DEV, Y_DEV))
    figures = [step.dev for step in crf.report_.history]
    best = int(np.argmax(figures))
    assert len(figures) <= best + 1 + 4
    assert f"kept iteration {best + 1} with F1 {figures[best]:.4f}" in crf.report_.reason
    from trelliswork.metrics.tagging import evaluate_tagging

    chunks = evaluate_tagging(Y_DEV, crf.predict(X_DEV), scheme="bio").chunks
    assert chunks.f1 == pytest.approx(figures[best])


def test_the_metric_is_accuracy_without_a_scheme():
    y, y_dev = ([[tag for _, tag in x] for x in part] for part in (X, X_DEV))
    words, words_dev = ([[word for word, _ in x] for x in part] for part in (X, X_DEV))
    crf = CRF("pos", max_iter=5).fit(words, y, dev=(words_dev, y_dev))
    assert crf.report_.history[-1].dev == pytest.approx(crf.score(words_dev, y_dev))


def test_a_warm_start_begins_where_the_other_model_ended():
    first = CRF("chunking").fit(X, Y)
    again = CRF("chunking").fit(X, Y, start=first)
    assert again.report_.n_iter < first.report_.n_iter / 3
    assert again.report_.value == pytest.approx(first.report_.value, rel=1e-4)
    # Other labels, other attributes: what is shared is taken over.
    more = CRF("chunking", max_iter=1).fit([*X_DEV, *X], [*Y_DEV, *Y], start=first)
    fresh = CRF("chunking", max_iter=1).fit([*X_DEV, *X], [*Y_DEV, *Y])
    assert more.report_.value < fresh.report_.value / 2
    with pytest.raises(NotFittedError):
        CRF("chunking").fit(X, Y, start=CRF("chunking"))
    with pytest.raises(ValueRangeError, match="hash_bits"):
        CRF("chunking", options={"hash_bits": 18}).fit(X, Y, start=first)


def test_a_start_at_the_optimum_of_edges_and_hashes():
    for options in ({"features": EDGES}, {"features": "chunking", "hash_bits": 18}):
        first = made(CRF, **options).fit(X[:40], Y[:40])
        again = made(CRF, **options).fit(X[:40], Y[:40], start=first)
        assert again.report_.n_iter <= 20
        assert again.report_.value == pytest.approx(first.report_.value, rel=1e-4)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("algorithm", ["lbfgs", "sgd", "perceptron"])
@pytest.mark.parametrize("with_dev", [False, True])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, monkeypatch, algorithm, with_dev):
    monkeypatch.setattr("trelliswork.learning.checkpoint.Checkpoint.due", lambda self: True)
    options = {"dev": (X_DEV, Y_DEV)} if with_dev else {}
    crf = CRF("chunking", algorithm=algorithm, max_iter=8, tol=0, patience=3)
    whole = CRF(**crf.get_params()).fit(X, Y, **options)
    path = tmp_path / "checkpoint"

    def kill(step):
        if step.iteration == 4:
            raise KilledError

    if len(whole.report_.history) > 4:
        with pytest.raises(KilledError):
            crf.fit(X, Y, checkpoint=path, callback=kill, **options)
        assert path.is_file()
        assert not hasattr(crf, "_learned")
        resumed = []
        crf.fit(X, Y, checkpoint=path, callback=lambda step: resumed.append(step.iteration), **options)
        assert resumed[0] == 5
    else:
        crf.fit(X, Y, checkpoint=path, **options)
    assert_array_equal(crf._learned.weights, whole._learned.weights)
    crf.save(tmp_path / "model")
    assert not path.exists()
    assert [s.value for s in crf.report_.history] == [s.value for s in whole.report_.history]
    assert [s.dev for s in crf.report_.history] == [s.dev for s in whole.report_.history]


def test_a_checkpoint_of_other_data_is_refused_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("trelliswork.learning.checkpoint.Checkpoint.due", lambda self: True)
    path = tmp_path / "checkpoint"
    crf = CRF("chunking", max_iter=50)
    crf.fit(X, Y, checkpoint=path, callback=lambda step: step.iteration == 3)
    before = path.read_bytes()  # stopped by the caller: kept, so that training may go on
    with pytest.raises(DataError, match="other data or settings"):
        CRF("chunking", l2=0.5).fit(X, Y, checkpoint=path)
    with pytest.raises(DataError, match="other data or settings"):
        CRF("chunking").fit(X[1:], Y[1:], checkpoint=path)
    assert path.read_bytes() == before
    path.write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match="not a checkpoint"):
        CRF("chunking").fit(X, Y, checkpoint=path)
    with pytest.raises(DataError, match="directory does not exist"):
        CRF("chunking").fit(X, Y, checkpoint=tmp_path / "no" / "checkpoint")


def test_learning_from_a_stream():
    labels = sorted({label for y in Y for label in y})
    crf = CRF("chunking", algorithm="sgd", options={"hash_bits": 16}, l2=0.1)
    with pytest.raises(ValueRangeError, match="labels="):
        crf.partial_fit(X[:40], Y[:40])
    accuracy = []
    for _ in range(4):
        for k in range(0, 120, 40):
            crf.partial_fit(X[k : k + 40], Y[k : k + 40], labels=labels)
        accuracy.append(crf.score(X_DEV, Y_DEV))
    assert accuracy[-1] > 0.9
    assert accuracy[-1] >= accuracy[0]
    for bad in (CRF("chunking", options={"hash_bits": 16}), CRF("chunking", algorithm="sgd")):
        with pytest.raises(ValueRangeError, match="partial_fit needs hash_bits"):
            bad.partial_fit(X, Y, labels=labels)


def test_options_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueRangeError, match="algorithm must be"):
        CRF(algorithm="newton").fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="L1 penalty needs"):
        CRF(algorithm="sgd", l1=1.0).fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="need algorithm='lbfgs'"):
        CRF("U:%x[0,0]\nB:%x[0,0]", algorithm="sgd").fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="need algorithm='lbfgs'"):
        CRF("U:%x[0,0]", algorithm="perceptron", options={"label_weight": {"N": 2.0}}).fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="partly labeled sentences need algorithm='lbfgs'"):
        CRF("U:%x[0,0]", algorithm="sgd").fit(WORDS, [["D", None, "V"], *TAGS[1:]])
    with pytest.raises(ValueRangeError, match="learning_rate needs algorithm='sgd'"):
        CRF("U:%x[0,0]", algorithm="perceptron", options={"learning_rate": 0.1}).fit(WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="min_count"):
        CRF("pos", options={"hash_bits": 18}, min_count=2).fit(WORDS, TAGS)
    with pytest.raises(ShapeError, match="known must have"):
        CRF("pos").fit(WORDS, TAGS).predict(WORDS, known=[["D"]])
