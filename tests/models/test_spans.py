"""Probabilities of spans and decisions about them, against the enumeration of all labelings."""

from itertools import combinations, product

import numpy as np
import pytest

import trelliswork as t
from tests.models.fitted import TAGS, WORDS, fitted
from trelliswork.data.schemes import labels_from_spans, spans
from trelliswork.errors import ValueRangeError
from trelliswork.models.calibration import Calibration
from trelliswork.models.spans import Candidates, SpanLabels

X = [["the", "old", "dog", "runs"], ["dogs", "run"], ["a", "dog"], ["old", "dogs"]]
BIO = [["B-N", "I-N", "I-N", "B-V"], ["B-N", "B-V"], ["B-N", "I-N"], ["O", "B-N"]]
BIOES = [["B-N", "I-N", "E-N", "S-V"], ["S-N", "S-V"], ["B-N", "E-N"], ["O", "S-N"]]
MODELS = {
    "bio": lambda: t.CRF("U:%x[0,0]", l2=0.5).fit(X, BIO),
    "bio, all label pairs": lambda: t.CRF("U:%x[0,0]", l2=0.5, scheme=None).fit(X, BIO),
    "bioes": lambda: t.CRF("U:%x[0,0]", l2=0.5).fit(X, BIOES),
    "order 2": lambda: t.CRF("U:%x[0,0]", l2=0.5, order=2).fit(X, BIO),
    "HMM": lambda: t.HMM().fit(X, BIO),
    "HMM, order 2": lambda: t.HMM(order=2).fit(X, BIO),
}


def by_enumeration(model, sentence, scheme):
    """The probability of each span, by `log_prob` of all labelings."""
    labelings = [list(labels) for labels in product(model.labels_, repeat=len(sentence))]
    p = np.exp(model.log_prob([sentence] * len(labelings), labelings))
    assert p.sum() == pytest.approx(1, abs=1e-5)
    table: dict = {}
    for labels, probability in zip(labelings, p.tolist(), strict=True):
        for span in spans(labels, scheme):
            table[span] = table.get(span, 0.0) + probability
    return table


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_spans_against_all_labelings(name, temperature):
    model, sentence = MODELS[name](), ["the", "old", "dogs"]
    model.calibration_ = Calibration({"all": temperature}, 1)
    scheme = "bioes" if name == "bioes" else "bio"
    expected = by_enumeration(model, sentence, scheme)
    (found,) = model.predict_spans([sentence])
    assert [span for span, _ in found] == spans(model.predict([sentence])[0], scheme)
    for span, p in found:
        assert p == pytest.approx(expected[span], abs=1e-5)
    reader = SpanLabels.of(model.labels_)
    (candidates,) = reader.likely(model._chains([sentence]), 0.0)
    every = {(reader.types[k], i, j): p for (k, i, j), p in zip(candidates.rows.tolist(), candidates.p, strict=True)}
    likely = {tuple(span): p for span, p in expected.items() if p > 1e-9}
    assert {span for span, p in every.items() if p > 1e-9} == set(likely)
    assert all(every[span] == pytest.approx(p, abs=1e-5) for span, p in likely.items())


def possible_sets(rows, T):
    """All sets of candidates that do not overlap."""
    for size in range(T + 1):
        for some in combinations(range(len(rows)), size):
            words = [w for n in some for w in range(rows[n][1], rows[n][2])]
            if len(words) == len(set(words)):
                yield list(some)


def test_decisions_about_spans_against_brute_force():
    rng = np.random.default_rng(1)
    for _ in range(20):
        every = [(k, i, j) for k in range(2) for i in range(4) for j in range(i + 1, 5)]
        rows = np.array([every[n] for n in rng.choice(len(every), 7, replace=False)])
        p, outside = rng.random(7), rng.random(4) < 0.8
        candidates, threshold = Candidates(rows, p, outside), float(rng.random())

        def covers(some, rows=rows, outside=outside):
            words = {w for n in some for w in range(rows[n][1], rows[n][2])}
            return all(outside[w] or w in words for w in range(4))

        values = [(p[some] - threshold).sum() for some in possible_sets(rows.tolist(), 4) if covers(some)]
        chosen = candidates.best(threshold)
        if not values:
            assert chosen is None
        else:
            assert covers(chosen)
            assert (p[chosen] - threshold).sum() == pytest.approx(max(values))


def test_the_threshold_has_the_best_expected_f1_of_all_sets_of_spans():
    model, sentence = MODELS["bio"](), ["the", "dogs", "old"]
    reader = SpanLabels.of(model.labels_)
    (candidates,) = reader.likely(model._chains([sentence]), 0.0)
    rows, p = candidates.rows.tolist(), candidates.p
    best = max(2 * p[some].sum() / (len(some) + p.sum()) for some in possible_sets(rows, 3))
    threshold = reader.threshold(model._chains([sentence]), 0.0)
    assert threshold == pytest.approx(best / 2, abs=1e-9)
    chosen = candidates.best(threshold)
    assert 2 * p[chosen].sum() / (len(chosen) + p.sum()) == pytest.approx(best)
    t.calibrate(model, X, BIO)
    assert model.calibration_.span_thresholds[""] == pytest.approx(reader.threshold(model._chains(X)))
    (labels,) = model.predict([sentence], decoding="mbr-span")
    assert labels == labels_from_spans(spans(labels), 3)


def test_decoding_respects_evidence_and_labels_without_an_outside():
    model = MODELS["bio"]()
    known = [["B-V", "O", None, None]]
    for decoding in ("viterbi", "mbr", "mbr-span"):
        assert model.predict(X[:1], decoding=decoding, known=known)[0][:2] == ["B-V", "O"]
    without = t.CRF("U:%x[0,0]").fit(X[:3], BIO[:3])
    assert all(set(row) <= set(without.labels_) for row in without.predict(X, decoding="mbr-span"))
    with pytest.raises(ValueRangeError, match="encode no spans"):
        fitted("CRF").predict(WORDS[:1], decoding="mbr-span")
    with pytest.raises(ValueRangeError, match="encode no spans"):
        fitted("HMM").predict_spans(WORDS[:1])
    with pytest.raises(ValueRangeError, match="decoding must be one of"):
        fitted("CRF").predict(WORDS[:1], decoding="best")


def test_posterior_decoding_takes_the_most_probable_label_of_each_token():
    for name in ("CRF", "HMM", "MRFTagger"):
        rows = fitted(name).predict_marginals(WORDS[:3])
        best = [[max(p, key=p.get) for p in row] for row in rows]
        assert fitted(name).predict(WORDS[:3], decoding="mbr") == best


def test_layers_with_spans():
    model, X = fitted("FactorialCRF"), WORDS[:4]
    found = model.predict_spans(X)
    assert list(found) == ["chunk"]
    labels = model._predict_layers(X)["chunk"]
    marginals = model.predict_marginals(X)["chunk"]
    for row, own, p in zip(found["chunk"], labels, marginals, strict=True):
        assert [span for span, _ in row] == spans(own)
        for span, probability in row:  # at most the probability of any of its labels
            assert probability <= min(p[w][own[w]] for w in range(span.start, span.stop)) + 1e-3
    decoded = model._predict_layers(X, decoding="mbr-span")
    assert decoded["pos"] == model._predict_layers(X, decoding="mbr")["pos"]
    assert all(row == labels_from_spans(spans(row), len(row)) for row in decoded["chunk"])


def test_the_exact_engine_gives_the_probability_of_whole_labelings():
    X = [["a", "b"]]
    model = t.FactorialCRF(("one", "two"), features="U:%x[0,0]", engine="exact", l2=0.3, scheme=None)
    model.fit([["a", "b"], ["b"]], [[("A", "x"), ("B", "y")], [("A", "y")]])
    every = [[list(zip(one, two, strict=True))] for one in product("AB", repeat=2) for two in product("xy", repeat=2)]
    log_p = np.concatenate([model.log_prob(X, y) for y in every])
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-5)
    assert log_p.max() == pytest.approx(model.log_prob(X, model.predict(X))[0])


def test_probabilities_of_whole_labelings_are_those_of_topk():
    for name in ("CRF", "HMM", "MRFTagger"):
        model = fitted(name)
        ranked = model.predict_topk(WORDS[:2], 1)
        log_p = model.log_prob(WORDS[:2], [row[0][0] for row in ranked])
        np.testing.assert_allclose(np.exp(log_p), [row[0][1] for row in ranked], rtol=1e-4)
        assert model.log_prob(WORDS[:2], [[None] * len(w) for w in WORDS[:2]]).tolist() == [0, 0]
        assert len(model.log_prob([], [])) == 0 if name == "CRF" else True
        assert (model.log_prob(WORDS[:2], TAGS[:2]) <= 0).all()
