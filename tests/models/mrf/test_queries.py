"""Queries of Markov random field language models, against enumeration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.models.mrf.cases import TEXT, circle_bound, learned, make, tightened
from tests.oracle import fields
from trelliswork.errors import DataError, NotFittedError, ShapeError, ValueRangeError
from trelliswork.models import MRFLanguageModel, load
from trelliswork.models.mrf import field as mrf_field
from trelliswork.models.mrf.queries import write_word2vec

pytestmark = pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("form", ["UW", "URW", "full"])
@pytest.mark.parametrize("bound", ["chain", "star"])
def test_likelihoods_equal_enumeration(order, form, bound, monkeypatch):
    model = make(order, form=form, bound=bound)
    field = learned(model)
    log_tau = model._field.log_tau(6)
    assert np.exp(log_tau).sum() < 1
    expected = []
    for s in TEXT[:7]:
        ids = tuple(model._words.ids(s))
        log_z = fields.sentence_log_z(*field, len(ids))
        expected.append(fields.sentence_score(*field, ids) - log_z + log_tau[len(ids)])
    assert model.kind == "exact"
    assert_allclose(model.log_prob(TEXT[:7]), expected, rtol=1e-6)
    assert_allclose(model.score(TEXT[:7]), sum(expected) / (sum(map(len, TEXT[:7])) + 7), rtol=1e-6)
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)  # as for a large vocabulary
    assert (model.log_prob(TEXT[:7]) <= np.array(expected) + 1e-9).all()
    assert model.kind == ("exact" if order == 1 else "lower")
    assert model._bound_kind == ("exact" if order == 1 and bound == "chain" else bound)
    # Sentences are given their lengths, the circle also predicts its pads.
    conditional = model.log_prob(TEXT).sum() - np.sum([log_tau[len(s)] for s in TEXT])
    assert circle_bound(model, TEXT) * model._n_positions <= conditional + 1e-6


def test_fill_equals_enumeration():
    model = make(2)
    field = learned(model)
    for sentence in ("a ___ c a", "___ b", "___", "a b c ___"):
        words = sentence.split()
        scores = {
            w: fields.sentence_score(*field, tuple(model._words.ids([w if v == "___" else v for v in words])))
            for w in "abc"
        }
        total = fields.log_sum(list(scores.values()))
        (ranked,) = model.fill(sentence)
        p = dict(ranked)
        assert set(p) == set("abc")
        for w in "abc":
            assert_allclose(p[w], np.exp(scores[w] - total), rtol=1e-6)
    with pytest.raises(ShapeError, match="no blank"):
        model.fill("a b")
    with pytest.raises(DataError, match="sentence 0, token 1: 'zebra' is not in the vocabulary"):
        model.fill("___ zebra")


def test_unknown_words_fill_no_blank_by_default():
    text = [["a", "<unk>", "b"], ["a", "<unk>", "b"], ["a", "c", "b"], ["<unk>"]] * 5
    model = MRFLanguageModel(2, rank=2, max_iter=20).fit(text)
    (everything,), (words,) = model.fill("a ___ b", unknown=True), model.fill("a ___ b")
    assert everything[0][0] == "<unk>"
    assert words == [(w, p) for w, p in everything if w != "<unk>"]  # the probabilities of the model
    first, second = model.fill("___ ___ b")  # and the best words of the others are words
    assert [first] == model.fill(f"___ {second[0][0]} b")
    assert [second] == model.fill(f"{first[0][0]} ___ b")
    only = MRFLanguageModel(1, rank=1, max_iter=2).fit([["<unk>", "<unk>"]])
    assert only.fill("___ ___") == [[], []]
    assert only.fill("___ ___", unknown=True)[0][0] == ("<unk>", 1.0)


def test_several_blanks_are_given_the_best_words_of_the_others():
    model = make(2)
    ranked = model.fill("a ___ c ___")
    best = [words[0][0] for words in ranked]
    assert model.fill(f"a ___ c {best[1]}") == ranked[:1]
    assert model.fill(f"a {best[0]} c ___") == ranked[1:]


@pytest.mark.parametrize("order", [1, 2])
def test_samples(order):
    model = make(order)
    samples = model.sample(200, seed=1)
    assert samples == model.sample(200, seed=1)
    assert samples != model.sample(200, seed=2)
    assert {w for s in samples for w in s} == set("abc")
    assert max(map(len, model.sample(50, seed=0, max_length=2))) == 2
    means = [np.mean([len(s) for s in text]) for text in (samples, TEXT)]
    assert abs(means[0] - means[1]) < 0.5


def test_saved_models_are_the_same(tmp_path):
    models = make(1), make(2, form="URW"), make(2, form="full"), make(2, cover_weights=[0.7, 0.3])
    for n, model in enumerate(models):
        model.save(tmp_path / str(n))
        again = load(tmp_path / str(n))
        assert isinstance(again, MRFLanguageModel)
        assert (again.log_prob(TEXT) == model.log_prob(TEXT)).all()
        assert again.sample(5, seed=1) == model.sample(5, seed=1)
        assert circle_bound(again, TEXT) == circle_bound(model, TEXT)
        assert again.get_params() == model.get_params()
        assert again.report_.to_dict() == model.report_.to_dict()


def test_only_one_chain_with_all_of_the_weight_is_exact():
    """Other models of order 1 maximize a bound, but their likelihood is exact."""
    names = {}
    for name, options in (("exact", {}), ("star", {"bound": "star"}), ("chain", {"cover_weights": (0.5,)})):
        model = make(1, **options)
        names[name] = model._bound_kind
        circle = circle_bound(model, TEXT)
        tight = tightened(model)
        truth = circle + model._field.log_z_bound - tight.value
        assert tight.kind == "exact"
        if name == "exact":
            assert_allclose(circle, truth, atol=1e-6)
        else:
            assert circle < truth - 1e-4
        assert model.kind == "exact"
    assert names == {name: name for name in names}
    assert make(2, algorithm="pseudo-likelihood", max_iter=1)._bound_kind == "chain"


def test_estimates_are_near_the_truth(monkeypatch):
    model = make(2)
    truth = model.score(TEXT)
    monkeypatch.setattr(mrf_field.exact, "fits", lambda C, K: False)
    estimate = model.estimate(TEXT, n_samples=200, n_steps=10)
    assert estimate.kind == "estimate"
    assert abs(estimate.per_token - truth) < 5 * estimate.standard_error + 1e-3


def test_embeddings(tmp_path):
    model = make(2)
    assert model.vectors().shape == (4, 3)
    assert [w for w, _ in model.neighbors("a", 5)] in (["b", "c"], ["c", "b"])
    model.export_word2vec(tmp_path / "v.txt")
    lines = (tmp_path / "v.txt").read_text().splitlines()
    assert lines[0] == "3 3"
    assert lines[1].split()[0] == model.vocabulary_[1]
    assert_allclose([float(v) for v in lines[1].split()[1:]], model.vectors()[1], rtol=1e-5)
    with pytest.raises(DataError, match="cannot be written"):
        model.export_word2vec(tmp_path / "none" / "v.txt")
    with pytest.raises(DataError, match="white space, got 'New York'"):
        write_word2vec(tmp_path / "w.txt", model.vectors()[1:3], ["a", "New York"])
    with pytest.raises(ValueRangeError, match="no vectors"):
        make(2, form="full").neighbors("a")
    with pytest.raises(ValueRangeError, match="'zebra' is not one of the 3 words"):
        model.neighbors("zebra")


def test_gensim_reads_the_embeddings(tmp_path):
    gensim = pytest.importorskip("gensim")
    words, vectors = ["a", "é", "5\u00a0000", '"'], np.random.default_rng(0).normal(size=(4, 3))
    write_word2vec(tmp_path / "v.txt", vectors, words)
    read = gensim.models.KeyedVectors.load_word2vec_format(tmp_path / "v.txt")
    assert read.index_to_key == words
    assert_allclose(read.vectors, vectors, rtol=1e-5)


@pytest.mark.parametrize(
    "query",
    [
        lambda m: m.fill("a ___"),
        lambda m: m.score(TEXT),
        lambda m: m.log_prob(TEXT),
        lambda m: m.perplexity(TEXT),
        lambda m: m.estimate(TEXT),
        lambda m: m.sample(),
        lambda m: m.neighbors("a"),
        lambda m: m.vectors(),
        lambda m: m._bound_kind,
        lambda m: m.kind,
        lambda m: m.save("nowhere"),
    ],
)
def test_queries_need_a_fitted_model(query):
    with pytest.raises(NotFittedError, match="is not fitted"):
        query(MRFLanguageModel())


def test_a_text_without_sentences_has_no_mean():
    model = make(2)
    for query in (model.score, model.perplexity, model.estimate):
        with pytest.raises(DataError, match="no sentences"):
            query([])
    assert model.log_prob([]).shape == (0,)
    assert model.score(iter(TEXT)) == model.score(TEXT)
    with pytest.raises(ValueRangeError, match="n_samples must be at least 2"):
        model.estimate(TEXT, n_samples=1)
