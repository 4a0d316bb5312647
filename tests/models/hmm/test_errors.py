"""Parameters, and input that is an error."""

import math

import pytest
from sklearn.base import clone

from tests.estimators import made
from tests.models.hmm.cases import HALF, TAGS, WORDS, model
from trelliswork import HMM
from trelliswork.errors import DataError, NotFittedError, ShapeError, TrellisworkError, ValueRangeError


def test_parameters_in_the_style_of_scikit_learn():
    hmm = HMM(7, order=2, unknown="symbol", algorithm="vb", seed=3, end=False, beam="size=7")
    copy = clone(hmm)
    assert copy is not hmm
    assert copy.get_params() == hmm.get_params()
    assert copy.set_params(seed=9, order=1) is copy
    assert (copy.seed, copy.order, hmm.seed) == (9, 1, 3)
    with pytest.raises(ValueRangeError, match="color"):
        hmm.set_params(color="red")
    fitted = clone(model("order 2"))
    with pytest.raises(NotFittedError):
        fitted.predict(WORDS)
    assert fitted.fit(WORDS, TAGS).predict(WORDS) == model("order 2").predict(WORDS)


@pytest.mark.parametrize(
    "query",
    [
        lambda h: h.predict(WORDS),
        lambda h: h.predict_marginals(WORDS),
        lambda h: h.predict_topk(WORDS, 2),
        lambda h: h.log_prob(WORDS),
        lambda h: h.score(WORDS),
        lambda h: h.score(WORDS, TAGS),
        lambda h: h.perplexity(WORDS),
        lambda h: h.posterior(WORDS[0]),
        lambda h: h.predict_next(["the"]),
        lambda h: h.fill("the ___"),
        lambda h: h.sample(),
        lambda h: h.sample_with_states(),
        lambda h: h.top_words("D"),
        lambda h: h.transitions(),
        lambda h: h.known_words(),
        lambda h: h.save("nowhere"),
    ],
)
def test_queries_before_fit(query):
    with pytest.raises(NotFittedError):
        query(HMM())


@pytest.mark.parametrize(
    ("X", "y", "error"),
    [
        ([], None, DataError),
        ([], [], DataError),
        ([["a"], []], None, ShapeError),
        ([["a"], []], [["N"], []], ShapeError),
        (["the dog"], None, ShapeError),
        ("the dog", None, ShapeError),
        (WORDS, TAGS[:2], ShapeError),
        (WORDS[:1], [["D", "N"]], ShapeError),
        ([[0, -1]], None, ValueRangeError),
        ([[0, "a"]], None, ValueRangeError),
        ([[0.5, 1.5]], None, ValueRangeError),
        ([["a", None]], None, ValueRangeError),
    ],
)
def test_sentences(X, y, error):
    with pytest.raises(error):
        HMM(3).fit(X, y)
    if y is None and error is ShapeError:
        with pytest.raises(error):
            model("order 1").predict(X)


@pytest.mark.parametrize(
    ("options", "labeled"),
    [
        ({"beam": "kl=-1"}, True),
        ({"beam": "kl=nan", "order": 2}, True),
        ({"beam": 6.9, "order": 2}, True),
        ({"order": 4}, True),
        ({"seed": -1}, False),
        ({"n_states": 2.5}, False),
        ({"tol": -1}, True),
    ],
)
def test_parameters_with_and_without_labels(options, labeled):
    with pytest.raises(ValueRangeError, match=next(iter(options))):
        made(HMM, **({} if labeled else {"n_states": 3}) | options).fit(WORDS, TAGS if labeled else None)


@pytest.mark.parametrize(
    "options",
    [
        {"n_states": 0},
        {"order": 3},
        {"order": 0},
        {"unknown": "foo"},
        {"algorithm": "foo"},
        {"transition_prior": math.nan},
        {"emission_prior": math.inf},
        {"min_count": 0},
        {"max_iter": 0},
        {"tol": -1},
        {"n_restarts": 0},
        {"probe": 0},
        {"patience": 0},
        {"dtype": "float16"},
        {"algorithm": "vb", "emission_prior": 0},
    ],
)
def test_parameters(options):
    with pytest.raises(ValueRangeError, match=next(reversed(options)).split("_")[0]):
        made(HMM, **{"n_states": 3, **options}).fit(WORDS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: HMM(3, order=2, unknown="symbol").partial_fit(WORDS, words={"the": 2}),
        lambda: HMM(3, unknown="symbol").partial_fit(["the dog"], words={"the": 2}),
        lambda: HMM(3, unknown="symbol").partial_fit(WORDS),
        lambda: HMM(3, unknown="symbol").partial_fit([], words={"the": 2}),
        lambda: HMM(3).partial_fit(WORDS, words={"the": 2}),
        lambda: HMM().fit([["a", "b"]], ["NV"]),
        lambda: model("order 1").posterior("dog"),
        lambda: model("order 1").predict_next("dog"),
        lambda: model("order 1").predict_next(["the"], n=-1),
        lambda: model("order 1").fill("the ___", n=0),
        lambda: model("order 1").top_words("D", n=-1),
        lambda: model("order 1").sample(-1),
        lambda: HMM(2).fit(WORDS, HALF),
        lambda: HMM(2).fit([0, 1]),
        lambda: model("order 1").predict(WORDS[:1], known=[None]),
        lambda: model("order 1").predict([[0, 1]]),
    ],
)
def test_calls(call):
    with pytest.raises(TrellisworkError):
        call()


def test_missing_number_of_states():
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM().fit(WORDS)
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM().fit(WORDS, [None] * len(WORDS))
    with pytest.raises(ValueRangeError, match="n_states"):
        HMM(unknown="symbol").partial_fit(WORDS, words={"the": 2})
    for y in (None, HALF):
        with pytest.raises(ValueRangeError, match="order"):
            HMM(3, order=2).fit(WORDS, y)


def test_unknown_symbols():
    for x in ([99], [-1], ["the"], [0, 6]):
        with pytest.raises(DataError, match="training"):
            model("unlabeled ids").predict([x])
    assert model("labeled, symbol").predict([["never"]])
    assert model("order 2").predict([["never"]])


def test_queries():
    hmm = model("order 1")
    for query in (
        lambda: hmm.predict(WORDS, decoding="foo"),
        lambda: hmm.predict_topk(WORDS, 0),
        lambda: hmm.posterior([]),
        lambda: HMM(3, unknown="symbol").partial_fit([["a"], []], words={"a": 1}),
    ):
        with pytest.raises((ValueRangeError, ShapeError)):
            query()
    with pytest.raises(KeyError, match="Q"):
        hmm.top_words("Q")
