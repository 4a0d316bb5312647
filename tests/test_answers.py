"""Answers of every family: the same numbers as the model's own methods, consistent with each other, plain for JSON."""

import json

import numpy as np
import pytest

from tests.models.fitted import PAIRS, SHORT, WORDS, fitted
from trelliswork import bundled, evaluate
from trelliswork.answers import Want, ask, flat_labels, main_task, to_json
from trelliswork.data import Corpus
from trelliswork.data.tokenize import TokenizedText
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.models import CRF

FULL = Want(marginals=True, outcomes=True, spans=True, topk=2, log_prob=True)
NEW = [list(s.words) for s in bundled.load("dev")[:5]]
TAGGERS = ("CRF", "HMM", "MRFTagger", "FactorialCRF")


@pytest.fixture(scope="module")
def chunker():
    return CRF("pos", tol=0.1).fit(WORDS, [s.chunks for s in bundled.load("train")[:30]])


def plain(answer):
    """Return an answer as a reader of its JSON gets it."""
    return json.loads(json.dumps(answer.to_dict(), allow_nan=False))


@pytest.mark.parametrize("name", TAGGERS)
def test_labels_and_their_probabilities(name):
    model = fitted(name)
    layered = name == "FactorialCRF"
    want = Want(marginals=True, outcomes=True, log_prob=True, topk=0 if layered else 2)
    predicted = (model._predict_layers if layered else model.predict)(NEW)
    log_p = model.log_prob(NEW, predicted)
    for n, (answer, simple) in enumerate(zip(ask(model, NEW, want), ask(model, NEW), strict=True)):
        layers = answer.value if layered else {"": answer.value}
        for layer, labels in layers.items():
            assert labels == (predicted[layer] if layered else predicted)[n]
            rows, p = (answer.outcomes[layer], answer.probabilities[layer]) if layered else (
                answer.outcomes, answer.probabilities)  # fmt: skip
            assert p == [row[label] for row, label in zip(rows, labels, strict=True)]
        assert simple.value == answer.value
        assert simple.probabilities is simple.outcomes is simple.alternatives is simple.log_prob is None
        assert answer.log_prob == log_p[n]
        if not layered:
            assert answer.alternatives[0][0] == answer.value
            assert answer.alternatives[0][1] == pytest.approx(answer.probability, rel=1e-4)
        assert plain(answer)["words"] == NEW[n]
        assert set(plain(simple)) == {"words", "labels"}
    if not layered:
        assert list(flat_labels(model, NEW)) == [label for row in predicted for label in row]


@pytest.mark.parametrize("name", TAGGERS)
def test_known_labels_are_evidence(name):
    model, sentences = fitted(name), [NEW[0]]
    layer = "pos" if name == "FactorialCRF" else ""
    (free,) = ask(model, sentences, Want(outcomes=True, entropy=True, log_prob=True))
    value, rows = (free.value[layer], free.outcomes[layer]) if layer else (free.value, free.outcomes)
    known = [[None, {value[1]}, *[None] * (len(NEW[0]) - 2)]]
    (answer,) = ask(
        model, sentences, Want(entropy=True, evidence=True, log_prob=True), known={layer: known} if layer else known
    )
    assert np.exp(answer.evidence) == pytest.approx(rows[1][value[1]], rel=0.1 if layer else 1e-4)
    assert answer.value == free.value
    assert answer.log_prob == pytest.approx(free.log_prob - answer.evidence, abs=1e-4)  # p(y | x) / p(known | x)
    assert answer.entropy < free.entropy
    assert answer.kind == ("estimate" if layer else "exact")


def test_improbable_answers_are_withheld(chunker):
    least = 0.5
    (answer,) = ask(chunker, [NEW[2]], FULL, min_probability=least)
    (free,) = ask(chunker, [NEW[2]], FULL)
    kept = [(span, p) for span, p in free.spans if p >= least]
    assert answer.spans == kept
    assert 0 < len(kept) < len(free.spans)
    lost = [t for span, p in free.spans if p < least for t in range(span.start, span.stop)]
    assert answer.withheld == lost
    assert answer.value == ["O" if t in lost else label for t, label in enumerate(free.value)]
    assert answer.log_prob == free.log_prob  # of what the model would have answered
    tagger = fitted("HMM")
    (answer,), (free,) = (ask(tagger, [NEW[2]], FULL, min_probability=p) for p in (least, None))
    assert answer.value == [x if p >= least else "_" for x, p in zip(free.value, free.probabilities, strict=True)]
    assert answer.spans is None
    assert plain(answer)["withheld"] == [t for t, label in enumerate(answer.value) if label == "_"] != []


def test_spans_have_places_in_raw_text(chunker):
    text = TokenizedText.of("The old man found the cat.\nIt sleeps.")
    (first, _) = ask(chunker, text, Want(spans=True))
    place = text.located(0)
    row = first.to_dict(place)
    assert row["text"] == "The old man found the cat."
    for span in row["spans"]:
        start, stop = span["tokens"]
        assert row["text"][span["start"] : span["end"]].split() == row["words"][start:stop]


def test_trees_of_a_parser():
    parser, X = fitted("DependencyParser"), PAIRS[:3]
    trees, rows = parser.predict(X), parser.predict_marginals(X)
    answers = ask(parser, X, Want(marginals=True, outcomes=True, subtrees=True, log_prob=True))
    for answer, tree, row in zip(answers, trees, rows, strict=True):
        assert answer.value == tree
        assert answer.probabilities == [p[h] for (h, _), p in zip(tree, row, strict=True)]
        assert answer.outcomes == row
        root = [h for h, _ in answer.value].index(0)
        assert answer.subtrees[root] == pytest.approx(answer.probability, rel=1e-4, abs=1e-9)
        shown = plain(answer)
        assert shown["heads"] == [h for h, _ in tree]
        assert len(shown["labels"]) == len(shown["probabilities"]) == len(tree)
    best = ask(parser, X, Want(marginals=True, topk=2))
    for answer, ranked, row in zip(best, parser.predict_topk(X, 2), rows, strict=True):
        assert answer.alternatives == ranked
        assert answer.value == ranked[0][0]
        assert answer.probabilities == [p.get(h, 0.0) for (h, _), p in zip(answer.value, row, strict=True)]
        assert [t["probability"] for t in plain(answer)["trees"]] == [p for _, p in ranked]
    known = [[None] * len(sentence) for sentence in X]
    head = max(rows[0][1], key=rows[0][1].get)
    known[0][1] = head
    answer = ask(parser, X, Want(evidence=True), known=known)[0]
    assert answer.value[1][0] == head
    assert np.exp(answer.evidence) == pytest.approx(rows[0][1][head], rel=1e-3)


def test_trees_of_a_grammar():
    grammar, words = fitted("PCFG"), SHORT[0]
    (table,) = grammar.predict_marginals([words])
    (answer,) = ask(grammar, [words], Want(marginals=True, outcomes=True))
    assert answer.value == grammar.predict([words])[0]
    assert answer.outcomes == table
    assert [p for _, p in answer.spans] == [table[s.start, s.stop] for s, _ in answer.spans]
    (best,) = ask(grammar, [words], Want(topk=3))
    assert best.value == answer.value
    ps = [p for _, p in best.alternatives]
    assert ps == sorted(ps, reverse=True)
    assert best.alternatives[0][0] == grammar.predict([words], decoding="viterbi")[0]
    span = min(table, key=lambda span: abs(table[span] - 0.3))
    force, forbid = (ask(grammar, [words], Want(evidence=True), known=[{span: has}])[0] for has in (True, False))
    assert np.exp(force.evidence) == pytest.approx(table[span], rel=1e-6)
    assert np.exp(force.evidence) + np.exp(forbid.evidence) == pytest.approx(1)
    assert set(plain(best)["trees"][0]) == {"tree", "probability"}


@pytest.mark.parametrize("name", ["HMM", "HMMLanguageModel", "KneserNey", "LogBilinear", "MRFLanguageModel", "PCFG"])
def test_language_models_score_and_fill(name):
    model, sentences = fitted(name), SHORT[:2]
    scored = ask(model, Corpus.from_sentences(sentences), task="score")
    assert [a.log_prob for a in scored] == pytest.approx(model.log_prob(sentences).tolist(), rel=1e-12)
    assert [plain(answer) for answer in scored] == [
        {"words": s, "log_prob": a.log_prob} for s, a in zip(sentences, scored, strict=True)
    ]
    blanks = [None, *sentences[0][1:]]
    (filled,) = ask(model, [blanks], Want(n=3), "fill")
    assert filled.value == model.fill(blanks, 3)
    assert [word["p"] for word in plain(filled)["blanks"][0]] == [p for _, p in filled.value[0]]
    assert plain(filled)["kind"] == "exact"
    (several,) = ask(model, [[None, *sentences[0][1:-1], None]], Want(n=3), "fill")
    assert several.kind == ("exact" if name in ("HMM", "HMMLanguageModel", "PCFG") else "estimate")
    if hasattr(model, "predict_next"):
        (following,) = ask(model, [sentences[0][:2]], Want(n=2), "next")
        assert following.value == model.predict_next(sentences[0][:2], 2)
        assert len(plain(following)["next"]) == 2


def test_states_of_a_language_model():
    model = fitted("HMMLanguageModel")
    (answer,) = ask(model, [NEW[0]], task="tag")
    assert answer.value == model.predict([NEW[0]])[0]
    assert answer.outcomes == model.predict_marginals([NEW[0]])[0]


def test_impossible_sentences_and_no_sentences():
    grammar = fitted("PCFG")
    with pytest.warns(UserWarning, match="of one word"):
        (answer,) = ask(grammar, [["word"]], task="score")
    assert plain(answer)["log_prob"] is None
    assert ask(fitted("CRF"), [], FULL) == ask(grammar, []) == []
    assert to_json({"a": "ä"}) == '{"a": "ä"}'


def test_the_main_task():
    tasks = {name: main_task(type(fitted(name))) for name in ("CRF", "HMM", "PCFG", "DependencyParser", "KneserNey")}
    assert list(tasks.values()) == ["tag", "tag", "parse", "parse", "score"]


@pytest.mark.parametrize("name", ["CRF", "FactorialCRF", "DependencyParser", "PCFG"])
def test_models_answer_as_the_seam_does(name):
    model, X = fitted(name), {"DependencyParser": PAIRS, "PCFG": SHORT}.get(name, WORDS)[:3]
    answers = model.answer(X, k=2)
    assert answers == ask(model, X, Want(marginals=True, spans=True, log_prob=True, topk=2))
    assert all(len(answer.alternatives) == 2 for answer in answers)
    assert [answer.alternatives[0][1] >= answer.alternatives[1][1] for answer in answers] == [True] * len(X)
    if name == "FactorialCRF":
        assert set(answers[0].alternatives[0][0]) == {"pos", "chunk"}
    else:
        assert [answer.value for answer in model.answer(X, decoding="mbr")] == model.predict(X, decoding="mbr")


def test_models_are_compared_with_gold_answers():
    some = bundled.load("dev")[:20]
    X, tags, chunks = ([list(getattr(s, part)) for s in some] for part in ("words", "tags", "chunks"))
    tagger, layered = fitted("CRF"), fitted("FactorialCRF")
    report = evaluate(tagger, X, tags)
    assert report.accuracy == pytest.approx(tagger.score(X, tags))
    assert report.n_known + report.n_unknown == report.n_tokens
    by_layer = evaluate(layered, X, {"pos": tags, "chunk": chunks})
    assert by_layer.joint_accuracy == pytest.approx(layered.score(X, {"pos": tags, "chunk": chunks}))
    assert by_layer.layers["chunk"].span_confidence is not None
    with pytest.raises(ShapeError, match="as many sentences"):
        evaluate(tagger, X, tags[:-1])
    with pytest.raises(ShapeError, match="as many sentences"):
        evaluate(tagger, X, [tags[0][:-1], *tags[1:]])
    with pytest.raises(ValueRangeError, match="leave it out"):
        evaluate(tagger, X, tags, max_length=3)
    with pytest.raises(ValueRangeError, match="perplexity"):
        evaluate(fitted("KneserNey"), X, tags)
