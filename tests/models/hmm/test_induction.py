"""Training by EM: unlabeled and partly labeled sentences, restarts, variational Bayes, stepwise EM."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.hmm.cases import HALF, TAGS, WORDS, accuracies, corpus, model
from trelliswork import HMM
from trelliswork.data import bundled
from trelliswork.errors import ConvergenceWarning
from trelliswork.metrics.induction import evaluate_induction


def test_a_sentence_whose_labels_are_certain_counts_as_labeled():
    """EM with everything known but one token that is never in doubt ends where counting does."""
    X, y = [["a", "b"], ["a", "b"], ["b"]], [["X", "Y"], ["X", "Y"], ["Y"]]
    counted = HMM(unknown="symbol", transition_prior=0, emission_prior=0).fit(X, y)
    mixed = HMM(unknown="symbol", transition_prior=0, emission_prior=0, tol=0, max_iter=40)
    mixed.fit(X, [["X", "Y"], ["X", None], ["Y"]])
    assert_allclose(mixed.log_prob(X), counted.log_prob(X), atol=1e-6)


def test_known_tokens_stay_known():
    """In training, as evidence: a word that is always labeled with one state keeps it."""
    hmm = HMM(4).fit(WORDS * 4, [["D", None, None], ["D", None, None, "D", None], None, None, None] * 4)
    assert list(hmm.labels_) == ["D", "#1", "#2", "#3"]
    assert not hmm._induced
    assert hmm.predict(WORDS)[1][0] == "D"
    assert [len(path) for path in hmm.predict(WORDS)] == [len(x) for x in WORDS]


def test_names_of_states():
    assert list(HMM(3).fit(WORDS).labels_) == ["#0", "#1", "#2"]
    assert HMM(3).fit(WORDS)._induced
    assert HMM(2).fit(WORDS, [None] * len(WORDS))._induced
    more = HMM(5).fit(WORDS, HALF)
    assert len(more.labels_) == 5
    assert {"D", "N", "V"} < set(more.labels_)
    assert not more._induced
    assert set(HMM().fit(WORDS, HALF).labels_) == {"D", "N", "V"}
    assert len(HMM(3).fit(WORDS, [["#1", "#2", "#1"], *[None] * 4]).labels_) == 3  # names like generated ones


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("algorithm", ["em", "vb"])
@pytest.mark.parametrize("y", [None, HALF])
def test_the_objective_never_falls(algorithm, y, dtype):
    train = bundled.load("train")[:60]
    X, y = [list(s.words) for s in train], None if y is None else [list(s.tags) for s in train[:20]] + [None] * 40
    hmm = HMM(None if y else 8, algorithm=algorithm, tol=0, max_iter=15, options={"dtype": dtype}).fit(X, y)
    values = np.array([step.value for step in hmm.report_.history])
    assert len(values) == hmm.report_.n_iter == 15
    assert [step.iteration for step in hmm.report_.history] == list(range(1, 16))
    slack = 1e-12 if dtype == "float64" else 1e-6
    assert (np.diff(values) >= -slack * abs(values[0])).all()
    assert values[-1] > values[0]


def test_the_history_has_the_log_evidence():
    """Without priors the objective is the log evidence, and the returned model is no worse than the last value."""
    free = {"transition_prior": 0, "emission_prior": 0}
    hmm = made(HMM, 3, **free).fit(WORDS)
    assert all(step.value == pytest.approx(step.log_evidence) for step in hmm.report_.history)
    assert hmm.log_prob(WORDS).sum() >= hmm.report_.value - 1e-9
    one = made(HMM, 3, **free, tol=0, max_iter=6).fit(WORDS)
    two = made(HMM, 3, **free, tol=0, max_iter=7).fit(WORDS)
    assert two.report_.history[-1].value == pytest.approx(one.log_prob(WORDS).sum(), rel=1e-10)


def test_tol_and_max_iter():
    assert HMM(3, tol=0, max_iter=9).fit(WORDS).report_.n_iter == 9
    loose, tight = HMM(3, tol=0.01).fit(WORDS).report_, HMM(3, tol=1e-8, max_iter=1000).fit(WORDS).report_
    assert loose.converged
    assert tight.converged
    assert loose.n_iter < tight.n_iter < 1000
    before, last = loose.history[-2].value, loose.history[-1].value
    assert last - before <= 0.01 * abs(last) + 1e-12
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert not HMM(3, tol=1e-12, max_iter=6).fit(WORDS).report_.converged


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_several_starts_continues(seed):
    report = HMM(3, n_restarts=6, options={"probe": 3}, max_iter=8, tol=0, seed=seed).fit(WORDS).report_
    values = report.details["restarts"]
    assert len(values) == 6
    assert len(set(values)) > 1
    assert max(values) == pytest.approx(report.history[2].value)
    assert report.n_iter == 8


def test_seeds():
    first, again, other = (HMM(3, seed=seed).fit(WORDS) for seed in (0, 0, 5))
    assert (first.log_prob(WORDS) == again.log_prob(WORDS)).all()
    assert first.report_.history[0].value != other.report_.history[0].value


def test_em_within_a_beam():
    """With all states it equals EM; with few it is a lower bound, reports the share kept, and stops if it falls."""
    exact = HMM(4, max_iter=6, tol=0, seed=1).fit(WORDS)
    same = HMM(4, max_iter=6, tol=0, seed=1, beam="kl=0").fit(WORDS)
    assert_allclose(same.transitions(), exact.transitions(), rtol=1e-9)
    assert same.report_.beam.kept == pytest.approx(1)
    assert_allclose([s.value for s in same.report_.history], [s.value for s in exact.report_.history], rtol=1e-11)
    narrow = HMM(4, max_iter=1, tol=0, seed=1, beam="size=2").fit(WORDS)
    assert narrow.report_.history[0].log_evidence < exact.report_.history[0].log_evidence
    assert narrow.report_.beam.mean_size == 2
    assert narrow.report_.beam.kept < 1
    half = HMM(max_iter=3, tol=0, beam="size=2").fit(WORDS, [[None, *y[1:]] for y in TAGS])
    assert half.predict(WORDS)[0][1:] == TAGS[0][1:]


def in_batches(hmm, batches, n_passes=1):
    """Train on batches, one after another."""
    words = Counter(word for X in batches for x in X for word in x)
    for X in batches * n_passes:
        hmm.partial_fit(X, words=words)
    return hmm


def test_batches_learn():
    train = [list(s.words) for s in bundled.load("train")[:400]]
    hmm = in_batches(HMM(8, unknown="symbol"), [train[i : i + 50] for i in range(0, 400, 50)], n_passes=4)
    start = HMM(8, unknown="symbol", tol=0, max_iter=1).fit(train)
    assert (hmm.report_.n_iter, hmm._induced) == (32, True)
    assert hmm.score(train) > start.score(train) + 0.02 * abs(start.score(train))
    assert hmm.known_words() == {word for x in train for word in x}
    before = hmm.score(train)
    again = hmm.partial_fit(train[:50])
    assert again is hmm
    assert hmm.report_.n_iter == 33
    assert hmm.score(train) != before


def test_batches_list_frequent_words():
    hmm = in_batches(HMM(2, min_count=2, unknown="symbol"), [WORDS[:2], WORDS[2:]])
    assert hmm.known_words() == {"the", "a", "dog", "cat", "sees"}
    assert hmm.predict([["never", "dog"]])
    assert hmm.log_prob([["never"]]) == hmm.log_prob([["man"]])


def test_unlabeled_sentences_do_little_harm():
    X, y = corpus("train", 350)
    labeled = accuracies(HMM().fit(X[:50], y[:50]))[0]
    mixed = accuracies(HMM().fit(X, y[:50] + [None] * 300))[0]
    assert mixed >= labeled - 0.02


def test_partly_labeled_sentences_tag_well():
    """Two of three tokens have their tag."""
    X, y = corpus("train", 300)
    holes = [[None if (i + j) % 3 == 0 else tag for j, tag in enumerate(tags)] for i, tags in enumerate(y)]
    assert accuracies(HMM().fit(X, holes))[0] > 0.8


@pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")
@pytest.mark.parametrize("options", [{}, {"algorithm": "vb"}, {"n_restarts": 3}])
def test_induced_tags(options):
    X, y = corpus("train", 1000)
    hmm = made(HMM, 30, **{"max_iter": 30, **options}).fit(X)
    counts = Counter(tag for tags in y for tag in tags)
    most_frequent = max(counts.values()) / sum(counts.values())
    report = evaluate_induction(y, hmm.predict(X))
    assert report.many_to_one > 2 * most_frequent
    assert report.v_measure > 0.2


def test_variational_bayes_reports_its_posterior():
    hmm = model("variational Bayes")
    posterior = hmm.report_.details["posterior"]
    assert_allclose(np.exp(posterior.mean().log_transition), hmm.transitions(), rtol=1e-12)
