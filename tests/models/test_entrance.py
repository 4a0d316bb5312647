"""What users pass by mistake is refused at the entrance of every method, with a message that says what to do."""

import numpy as np
import pytest

import trelliswork as t
from tests.models.fitted import BUILDERS, PAIRS, SHORT, TAGS, TREES, WORDS, fitted
from trelliswork.data import read_crfsuite
from trelliswork.errors import TrellisworkError

TAGGERS = ("CRF", "FactorialCRF", "HMM", "MRFTagger")
MODELS = (*TAGGERS, "DependencyParser", "PCFG")
LANGUAGE_MODELS = ("HMMLanguageModel", "KneserNey", "LogBilinear", "MRFLanguageModel")
METHODS = ("predict", "predict_marginals", "score", "log_prob", "_predict_flat")
CHUNKS = [list(s.chunks) for s in t.bundled.load("train")[: len(TAGS)]]


def fresh(name):
    """Return an estimator without parameters of training that was not fitted."""
    model = fitted(name)
    return type(model)(**model.get_params())


def data(name):
    """Return sentences and gold answers."""
    if name == "FactorialCRF":
        return WORDS, {"pos": TAGS, "chunk": CHUNKS}
    if name == "DependencyParser":
        return PAIRS, TREES
    return (WORDS, TAGS) if name in TAGGERS else (SHORT, None)


def first(X, token):
    """Return the sentences with another first token."""
    return [[token, *X[0][1:]], *X[1:]]


SENTENCES = {  # what is passed instead of X, and a part of the message
    "words": (lambda X: ["They", "saw"], "must be a list of words, got 'They'"),
    "text": (lambda X: "They saw", "must be a list of sentences, got 'They saw'"),
    "generator": (lambda X: (x for x in X), "pass list"),
    "generators": (lambda X: [iter(x) for x in X], "sentence 0 of X must be a list of words.*pass list"),
    "nothing": (lambda X: None, "must be a list of sentences, got None"),
    "no sentence": (lambda X: [None, *X[1:]], "sentence 0 of X must be a list of words, got None"),
    "None": (lambda X: first(X, None), "sentence 0, token 0 of X: expected a word, got None"),
    "bytes": (lambda X: first(X, b"a"), "token 0 of X: expected a word, got b'a': decode it"),
    "dict": (lambda X: first(X, {"word": "They"}), "token 0 of X: expected a word, got {'word'"),
    "float": (lambda X: first(X, 0.5), "token 0 of X: expected a word, got 0.5"),
    "surrogate": (lambda X: first(X, "\ud800"), "token 0 of X: .* half of a character"),
}


@pytest.mark.parametrize("case", SENTENCES)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_no_list_of_sentences_of_words_is_refused(name, case):
    X, y = data(name)
    change, message = SENTENCES[case]
    answers = () if y is None else (y,)
    with pytest.raises(TrellisworkError, match=message):
        fresh(name).fit(change(X), *answers)
    model = fitted(name)
    for method in METHODS:
        if hasattr(model, method):
            with pytest.raises(TrellisworkError, match=message):
                getattr(model, method)(change(X), *(answers if method in ("score", "log_prob") else ()))
    if isinstance(changed := change(X), list):
        with pytest.raises(TrellisworkError, match=r"must be a list of words|expected a word"):
            model.posterior(changed[0])


@pytest.mark.parametrize("case", [c for c in SENTENCES if c not in ("words", "text", "generator")])
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_lists_that_hold_no_words_are_refused_by_language_models(name, case):
    change, message = SENTENCES[case]
    patterns = name == "HMMLanguageModel" and case == "None"  # any word
    for act in (fresh(name).fit, *(() if patterns else (fitted(name).log_prob, fitted(name).score))):
        with pytest.raises(TrellisworkError, match=message):
            act(change(WORDS))


@pytest.mark.parametrize("case", [c for c in SENTENCES if c != "None"])  # None is a blank
@pytest.mark.parametrize("name", ["HMM", "HMMLanguageModel", "KneserNey", "LogBilinear", "MRFLanguageModel", "PCFG"])
def test_one_sentence_is_checked_where_words_are_filled_in_or_follow(name, case):
    change, _ = SENTENCES[case]
    changed = change(WORDS)
    sentence = changed[0] if isinstance(changed, list) else changed
    model = fitted(name)
    if case not in ("words", "text"):  # the words of a string are filled
        with pytest.raises(TrellisworkError, match=r"must be a list of words|expected a word"):
            model.fill([None, *sentence] if isinstance(sentence, list) else sentence)
    if hasattr(model, "predict_next"):
        with pytest.raises(TrellisworkError, match=r"must be a list of words|expected a word"):
            model.predict_next(sentence)


@pytest.mark.parametrize("name", ["HMM", "KneserNey", "PCFG"])
def test_blanks_of_strings_and_lists_are_the_same(name):
    assert fitted(name).fill("___ laughs .") == fitted(name).fill([None, "laughs", "."])


def test_letters_are_for_models_of_letters():
    words, sounds = ["cat", "act"], [list("kAt"), list("Akt")]
    model = t.CRF("letters", tol=0.1).fit(words, sounds)
    assert model.predict(["cat"]) == model.predict([["c", "a", "t"]])
    with pytest.raises(TrellisworkError, match="must be a list of words"):
        t.CRF("pos").fit(words, sounds)


LABELS = {
    "generator": (lambda y: (row for row in y), "must be a list of sentences"),
    "generators": (lambda y: [iter(row) for row in y], "must be a list of labels"),
    "strings": (lambda y: ["".join("a" * len(row)) for row in y], "must be a list of labels, got 'aa"),
    "integers": (lambda y: [[1] * len(row) for row in y], r"expected a label, got 1: use str\(...\)"),
    "NumPy integers": (lambda y: [np.ones(len(row), int) for row in y], "expected a label, got .*1"),
    "bytes": (lambda y: [[b"a"] * len(row) for row in y], "expected a label, got b'a': decode"),
    "dicts": (lambda y: [[{"a": 1}] * len(row) for row in y], "expected a label, got {'a'"),
    "surrogates": (lambda y: [["\ud800"] * len(row) for row in y], "half of a character"),
}


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("name", TAGGERS)
def test_what_are_no_labels_is_refused(name, case):
    X, y = data(name)
    change, message = LABELS[case]

    def bad():
        return {"pos": change(TAGS), "chunk": CHUNKS} if name == "FactorialCRF" else change(TAGS)

    model = fitted(name)
    for act in (fresh(name).fit, model.score, model.log_prob):
        with pytest.raises(TrellisworkError, match=message):
            act(X, bad())
    with pytest.raises(TrellisworkError, match=message):
        model.predict(X, known=bad())
    with pytest.raises(TrellisworkError, match=message):
        fresh(name).fit(X, y, dev=(X, bad()))


@pytest.mark.parametrize("name", TAGGERS)
def test_known_labels_must_be_labels_of_the_model(name):
    X, _ = data(name)
    for label in ("ZZZ", {"NN", "ZZZ"}):
        rows = [[label if t == 2 else None for t in range(len(x))] for x in X]
        known = {"pos": rows} if name == "FactorialCRF" else rows
        for method in ("predict", "predict_marginals", "predict_topk"):
            more = (2,) if method == "predict_topk" else ()
            with pytest.raises(
                TrellisworkError, match=r"sentence 0, token 2: 'ZZZ' is given, but the model has no such"
            ):
                getattr(fitted(name), method)(X, *more, known=known)
        one = {"pos": rows[0]} if name == "FactorialCRF" else rows[0]
        with pytest.raises(TrellisworkError, match="'ZZZ' is given, but"):
            fitted(name).posterior(X[0], known=one)


@pytest.mark.parametrize("name", ["CRF", "FactorialCRF", "MRFTagger"])
def test_labels_that_say_nothing_are_refused(name):
    X, y = data(name)
    nothing = [[None] * len(row) for row in TAGS]
    unlabeled = {"pos": nothing, "chunk": nothing} if name == "FactorialCRF" else nothing
    with pytest.raises(TrellisworkError, match="got None"):
        fresh(name).fit(X, unlabeled)
    with pytest.raises(TrellisworkError, match="got None"):
        fresh(name).fit(X, y, dev=(X, unlabeled))


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(TrellisworkError, match="positive weight, got only zeros"):
        t.CRF("pos").fit(WORDS, TAGS, sample_weight=np.zeros(len(WORDS)))


@pytest.mark.parametrize("heads", [iter([]), [iter([])], [None], ["ab"]])
def test_what_are_no_heads_is_refused(heads):
    with pytest.raises(TrellisworkError, match=r"(y|y\[0\]) must be a list of"):
        fresh("DependencyParser").fit([[("a", "T"), ("b", "T")]], heads)


@pytest.mark.parametrize("name", ["1", "'\\ud800'"])
def test_names_of_ready_attributes_are_strings(name):
    token = [eval(name)]
    with pytest.raises(TrellisworkError, match="the name of an attribute must be a string"):
        t.CRF(None).fit([[token, ["b"]]], [["A", "B"]])


@pytest.mark.parametrize(
    ("model", "theirs", "ours"),
    [
        *(("CRF", theirs, "l1") for theirs in ("c1",)),
        *(("CRF", theirs, "l2") for theirs in ("c2", "C", "alpha")),
        *(("CRF", theirs, "max_iter") for theirs in ("max_iterations", "n_iter")),
        *(("CRF", theirs, "min_count") for theirs in ("feature.minfreq", "minfreq", "min_freq")),
        *(("HMM", theirs, ours) for theirs, ours in (("n_components", "n_states"), ("random_state", "seed"))),
    ],
)
def test_names_of_other_packages_are_translated(model, theirs, ours):
    with pytest.raises(TypeError, match=f"{model}: {theirs} is called {ours} here"):
        getattr(t, model)(**{theirs: 1})
    with pytest.raises(TrellisworkError, match=f"is called {ours} here"):
        fresh(model).set_params(**{theirs: 1})


@pytest.mark.parametrize("name", BUILDERS)
def test_unknown_parameters_are_listed_with_the_known_ones(name):
    with pytest.raises(TypeError, match=f"{name} has no parameter 'colour'; it has .*{fresh(name)._parameters()[0]}"):
        type(fitted(name))(colour=1)


def test_a_corpus_is_shown_in_a_line(tmp_path):
    corpus = t.Corpus.from_sentences(PAIRS)
    n = sum(map(len, PAIRS))
    assert repr(corpus) == f"<Corpus: {len(PAIRS)} sentences, {n} tokens, 2 columns>"
    (tmp_path / "a.txt").write_text("A\tw=1\tv\nB\tw=2\n\n" * 100)
    assert repr(read_crfsuite(tmp_path / "a.txt")) == "<AttributeCorpus: 100 sentences, 200 tokens, 3 attributes>"
