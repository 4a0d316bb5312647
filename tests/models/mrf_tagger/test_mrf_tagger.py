"""The MRF tagger: decoding against enumeration, training, evidence, dictionary, development data, saving."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.directories import weights_of
from trelliswork.data import Corpus, bundled
from trelliswork.errors import DataError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models import HMM, load
from trelliswork.models.mrf_tagger import MRFTagger
from trelliswork.models.mrf_tagger.features import own_features
from trelliswork.models.mrf_tagger.learned import emission_rows, tag_chain
from trelliswork.models.mrf_tagger.objective import offsets_of

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def train():
    sentences = bundled.load("train")[:150]
    return [list(s.words) for s in sentences], [list(s.tags) for s in sentences]


@pytest.fixture(scope="module")
def unseen():
    sentences = bundled.load("test")[:60]
    return [list(s.words) for s in sentences], [list(s.tags) for s in sentences]


@pytest.fixture(scope="module")
def tagger(train):
    return MRFTagger(max_iter=30).fit(*train)


@pytest.mark.parametrize(("K", "L"), [(1, 1), (1, 3), (2, 2), (3, 3)])
def test_decoding_equals_enumeration(K, L):
    """All taggings of a sentence between its pads, scored edge by edge."""
    rng = np.random.default_rng([K, L])
    T, C, M = 3, 4, 4
    phi, tables = rng.normal(size=(K, T + 1, T + 1)), [rng.normal(size=(C, T)) for _ in range(L)]
    words = rng.integers(1, C, M)
    places, pads = offsets_of(L), max(K, L // 2)
    padded = np.concatenate([np.zeros(pads, int), words, np.zeros(pads, int)])
    scores = {}
    for tags in product(range(T), repeat=M):
        ring = [T] * pads + list(tags) + [T] * pads
        value = sum(phi[k, ring[i], ring[i + k + 1]] for k in range(K) for i in range(len(ring) - k - 1))
        for i, tag in enumerate(tags):
            value += sum(table[padded[pads + i + place], tag] for table, place in zip(tables, places, strict=True))
        scores[tags] = value
    rows, offsets = emission_rows(tables, words, np.array([0, M]), places), np.array([0, M])
    chain = tag_chain(phi)
    assert tuple(chain.viterbi(rows, offsets)) == max(scores, key=scores.get)
    weights = np.exp(np.array(list(scores.values())))
    want = np.zeros((M, T))
    for tags, weight in zip(scores, weights / weights.sum(), strict=True):
        want[np.arange(M), tags] += weight
    assert_allclose(chain.marginals(rows, offsets)[1], want, rtol=1e-8, atol=1e-12)


def test_sentences_are_independent():
    rng = np.random.default_rng(0)
    tables, words = [rng.normal(size=(4, 3)) for _ in range(3)], rng.integers(1, 4, 6)
    both = emission_rows(tables, words, np.array([0, 2, 6]), offsets_of(3))
    parts = [emission_rows(tables, some, np.array([0, len(some)]), offsets_of(3)) for some in (words[:2], words[2:])]
    assert_allclose(both, np.concatenate(parts))


def test_it_tags_better_than_an_hmm_without_suffixes(train, unseen, tagger):
    hmm = HMM(unknown="symbol").fit(*train)
    gold = [tag for tags in unseen[1] for tag in tags]
    new = np.array([word not in tagger.known_words() for words in unseen[0] for word in words])
    right = [np.array([tag for tags in model.predict(unseen[0]) for tag in tags]) == gold for model in (hmm, tagger)]
    assert right[1].mean() > right[0].mean()
    assert right[1][new].mean() > right[0][new].mean() + 0.1
    assert tagger.score(*unseen) == pytest.approx(right[1].mean())


def test_training_improves_the_bound_of_any_order(train):
    small = train[0][:40], train[1][:40]
    for K, L in ((1, 1), (2, 1), (1, 3)):
        tagger = MRFTagger(K, n_words=L, max_iter=15).fit(*small)
        values = [step.value for step in tagger.report_.history]
        assert values == sorted(values, reverse=True)
        assert tagger.score(*small) > 0.9
        assert tagger._learned.cover.shape == (K, L)
        assert tagger._learned.cover.sum() == pytest.approx(1)
        assert tagger._learned.bound < 0


def test_queries_agree(tagger, unseen):
    words = unseen[0][:5]
    best = tagger.predict(words)
    tops = tagger.predict_topk(words, 3)
    assert [top[0][0] for top in tops] == best
    marginals = tagger.predict_marginals(words)
    for sentence, top, rows in zip(words, tops, marginals, strict=True):
        assert 0 < sum(p for _, p in top) <= 1 + 1e-9
        assert_allclose([sum(row.values()) for row in rows], 1, rtol=1e-9)
        want = tagger.posterior(sentence).marginals()[0].numpy()
        assert_allclose([[row[t] for t in tagger.labels_] for row in rows], want, rtol=1e-6, atol=1e-9)
    assert tagger.predict(Corpus.from_sentences(words)) == best


def test_evidence_and_dictionary(tagger, train, tmp_path):
    words = ["They", "saw", "her", "duck", "."]
    known = [[None, None, "PRP", ("VB", "NN"), None]]
    found = tagger.predict([words], known=known)[0]
    assert found[2] == "PRP"
    assert found[3] in ("VB", "NN")
    lexicon = {}
    for sentence, tags in zip(*train, strict=True):
        for word, tag in zip(sentence, tags, strict=True):
            lexicon.setdefault(word, set()).add(tag)
    tagger.save(tmp_path / "tagger")
    narrow = MRFTagger.load(tmp_path / "tagger").set_params(closed=True)
    for sentence, tags in zip(train[0], narrow.predict(train[0]), strict=True):
        assert all(tag in lexicon[word] for word, tag in zip(sentence, tags, strict=True))
    assert narrow.predict([["the"]], known=[["VB"]]) == [["VB"]]
    # Where evidence overrides the lexicon, the scores of words decide among the remaining tags.
    both = [[("VB", "IN"), None]]
    assert narrow.predict_marginals([["the", "zzz"]], known=both) == tagger.predict_marginals(
        [["the", "zzz"]], known=both
    )


def test_a_loaded_tagger_equals_the_saved_one(tagger, unseen, tmp_path):
    tagger.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again, MRFTagger)
    assert again.get_params() == tagger.get_params()
    assert again.predict(unseen[0]) == tagger.predict(unseen[0])
    assert again._learned.bound == tagger._learned.bound
    assert (again.report_.reason, again.report_.n_iter) == (tagger.report_.reason, tagger.report_.n_iter)
    assert again.top_features(3) == tagger.top_features(3)
    assert (again.transitions() == tagger.transitions()).all()
    arrays = weights_of(tmp_path / "m")
    arrays.write_bytes(arrays.read_bytes()[:-8])
    with pytest.raises(DataError, match="damaged"):
        load(tmp_path / "m")


def test_known_tags_condition_the_posterior(tagger):
    sentence, known = ["They", "saw", "her", "duck", "."], [None, None, "PRP", {"VB", "NN"}, None]
    (rows,) = tagger.predict_marginals([sentence], known=[known])
    want = tagger.posterior(sentence, known=known).marginals()[0].numpy()
    assert_allclose([[row[t] for t in tagger.labels_] for row in rows], want, rtol=1e-6, atol=1e-9)
    assert rows[2]["PRP"] == pytest.approx(1)


def test_development_sentences_choose_the_iteration(train, unseen):
    steps = []
    small = train[0][:60], train[1][:60]
    tagger = MRFTagger(max_iter=60, tol=0, patience=3)
    tagger.fit(*small, dev=unseen, callback=lambda step: steps.append(step.dev))
    best = int(np.argmax(steps))
    assert len(steps) == best + 1 + 3
    assert tagger.report_.reason.startswith("no better accuracy on the development data for 3 iterations")
    assert (tagger.report_.metric, tagger.report_.dev) == ("accuracy", max(steps))
    assert tagger.score(*unseen) == max(steps)
    same = MRFTagger(max_iter=best + 1, tol=0).fit(*small)
    assert tagger._learned.bound == same._learned.bound
    assert tagger.predict_marginals(unseen[0]) == same.predict_marginals(unseen[0])


def test_callback_and_time_limit_stop(train):
    small = train[0][:60], train[1][:60]
    assert MRFTagger().fit(*small, callback=lambda step: step.iteration == 2).report_.n_iter == 2
    assert MRFTagger().fit(*small, max_minutes=1e-9).report_.reason.startswith("time limit")


@pytest.mark.parametrize("with_dev", [False, True])
@pytest.mark.parametrize(("order", "n_words"), [(1, 1), (1, 3)])
def test_a_resumed_run_equals_an_uninterrupted_one(order, n_words, with_dev, train, unseen, tmp_path):
    small, path = (train[0][:40], train[1][:40]), tmp_path / "checkpoint"
    options = {"max_iter": 12, "tol": 0, "patience": 4}
    dev = unseen if with_dev else None
    whole = made(MRFTagger, order, n_words=n_words, **options).fit(*small, dev=dev)
    for stop in (1, 4):
        tagger = made(MRFTagger, order, n_words=n_words, **options)
        tagger.fit(*small, dev=dev, checkpoint=path, callback=lambda step, stop=stop: step.iteration == stop)
        assert path.exists()
        resumed = made(MRFTagger, order, n_words=n_words, **options).fit(*small, dev=dev, checkpoint=path)
        resumed.save(tmp_path / "model")
        assert not path.exists()
        for name, array in whole._state()[1].items():
            np.testing.assert_array_equal(resumed._state()[1][name], array, err_msg=name)
        assert resumed._learned.bound == whole._learned.bound
        assert (resumed.report_.reason, resumed.report_.dev) == (whole.report_.reason, whole.report_.dev)
        assert [step.value for step in resumed.report_.history] == [step.value for step in whole.report_.history]


def test_a_killed_run_resumes_from_its_last_checkpoint(train, tmp_path, monkeypatch):
    """Each iteration writes a checkpoint; an error in the fifth kills the run."""
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    small, path = (train[0][:40], train[1][:40]), tmp_path / "checkpoint"

    def kill(step):
        if step.iteration == 5:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        MRFTagger(max_iter=9, tol=0).fit(*small, checkpoint=path, callback=kill)
    steps = []
    resumed = MRFTagger(max_iter=9, tol=0).fit(*small, checkpoint=path, callback=steps.append)
    resumed.save(tmp_path / "model")
    assert [step.iteration for step in steps] == [6, 7, 8, 9]
    assert resumed._learned.bound == MRFTagger(max_iter=9, tol=0).fit(*small)._learned.bound
    with pytest.raises(RuntimeError, match="killed"):
        MRFTagger(max_iter=9, tol=0).fit(*small, checkpoint=path, callback=kill)
    with pytest.raises(DataError, match="other data or settings"):
        MRFTagger(max_iter=9, tol=0, l2=1.0).fit(*small, checkpoint=path)
    with pytest.raises(DataError, match="other data or settings"):
        MRFTagger(max_iter=9, tol=0).fit(small[0][:30], small[1][:30], checkpoint=path)


def test_invalid_input(train, tagger):
    with pytest.raises(NotFittedError):
        MRFTagger().predict([["a"]])
    with pytest.raises(ValueRangeError, match="order must be at most 3"):
        MRFTagger(4).fit([["a"]], [["A"]])
    with pytest.raises(ValueRangeError, match="l2"):
        MRFTagger(l2=-1).fit([["a"]], [["A"]])
    with pytest.raises(ShapeError, match="a tag for each word"):
        MRFTagger().fit([["a", "b"]], [["A"]])
    with pytest.raises(DataError, match="X has no sentences"):
        MRFTagger().fit([], [])
    with pytest.raises(ShapeError, match="sentence 0"):
        tagger.predict([[]])
    with pytest.raises(ShapeError, match="as many sentences"):
        tagger.predict([["a"]], known=[])
    before = tagger.predict([["the"]])
    with pytest.raises(ShapeError):
        tagger.fit([["a", "b"]], [["A"]])
    assert tagger.predict([["the"]]) == before


def test_features_of_a_word():
    assert own_features("the", True, True) == ["bias", "word=the"]
    assert own_features("Re-runs", False, False) == [
        "bias", "rare", "prefix=R", "prefix=Re", "prefix=Re-", "prefix=Re-r", "suffix=s", "suffix=ns", "suffix=uns",
        "suffix=runs", "capital", "capital, ends in s", "ends in s", "hyphen",
    ]  # fmt: skip
    assert {"rare number", "digit", "number"} <= set(own_features("1,987.5", False, True))
    assert "capitals, ends in S" in own_features("CBS", False, True)
