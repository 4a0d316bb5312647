"""One vocabulary for all estimators: names, signatures and return types, by task (DESIGN, section 3)."""

import inspect
import math
from copy import copy

import numpy as np
import pytest

import trelliswork
from tests.estimators import made
from tests.models.fitted import BUILDERS, PAIRS, SHORT, TAGS, TREES, WORDS, fitted
from trelliswork import calibrate, evaluate
from trelliswork.data import bundled
from trelliswork.errors import DataError, NotFittedError, ShapeError, TrellisworkError, ValueRangeError
from trelliswork.learning.report import FitReport
from trelliswork.models import base
from trelliswork.models.parameters import declared
from trelliswork.models.tasks import Incremental, LanguageModel, NextWord, Tagger, TreeParser, accuracy, blanks

NAMES = sorted(BUILDERS)
CLASSES = {name: getattr(trelliswork.models, name) for name in NAMES}
FORBIDDEN = {
    "rate", "epochs", "max_epochs", "tolerance", "method", "rare", "max_seconds", "K", "stop_after",
    "parameterisation", "step_size", "lr", "n_iter", "n_epochs",
}  # fmt: skip
FIT = ["self", "X", "y", "dev", "start", "sample_weight", "checkpoint", "callback", "max_minutes"]
WITHOUT_ITERATIONS = {"KneserNey"}
TAGGERS = [name for name in NAMES if issubclass(CLASSES[name], Tagger) and name != "FactorialCRF"]
LANGUAGE_MODELS = [name for name in NAMES if issubclass(CLASSES[name], LanguageModel)]


def test_every_estimator_has_a_task():
    for name, cls in CLASSES.items():
        assert issubclass(cls, Tagger | TreeParser | LanguageModel), name


@pytest.mark.parametrize("name", NAMES)
def test_parameters_use_the_shared_names_and_are_explained(name):
    for parameter, d in declared(CLASSES[name]).items():
        assert parameter not in FORBIDDEN, parameter
        assert d.parameter.text.endswith("."), f"{name}: {parameter} has no text"
        assert f"{parameter} : " in CLASSES[name].__doc__
        if d.default is not inspect.Parameter.empty:
            d.check(d.default)


@pytest.mark.parametrize("name", NAMES)
def test_a_user_is_shown_few_parameters(name):
    """Law 6: at most 15, one of them positional; the others are items of ``options`` with the same checks."""
    known, cls = declared(CLASSES[name]), CLASSES[name]
    shown, hidden = ([k for k, d in known.items() if d.shown is side] for side in (True, False))
    assert len(shown) <= 15
    arguments = inspect.signature(cls).parameters
    assert [*arguments] == [*shown, *(["options"] if hidden else [])]
    kinds = [p.kind for p in arguments.values()]
    assert kinds[1:] == [inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 1) != kinds
    with pytest.raises(TypeError, match="one argument by position"):
        cls(1, 2)
    for parameter in hidden:
        with pytest.raises(TypeError, match=f"{parameter} is one of the options"):
            cls(**{parameter: known[parameter].default})
        value = ["none"] if known[parameter].default is None else known[parameter].default
        model = cls().set_params(**{f"options__{parameter}": value})
        assert getattr(model, parameter) is value
        assert model.get_params()["options"] == {parameter: value}
        with pytest.raises(AttributeError, match="set_params"):
            setattr(model, parameter, value)
    if hidden:
        with pytest.raises(ValueRangeError, match="has no option 'color'; it has "):
            cls(options={"color": 1}).fit(WORDS, TAGS)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_one_meaning(name):
    """A name that two estimators share has one type and one set of limits."""
    for parameter, d in declared(CLASSES[name]).items():
        for other in NAMES:
            same = declared(CLASSES[other]).get(parameter)
            if same is not None and parameter in ("l1", "l2", "tol", "seed", "patience", "min_count"):
                limits = (d.parameter.minimum, d.parameter.maximum, d.parameter.above, d.parameter.below)
                others = (same.parameter.minimum, same.parameter.maximum, same.parameter.above, same.parameter.below)
                assert limits == others, f"{parameter} of {name} and {other}"


@pytest.mark.parametrize("name", NAMES)
def test_fit_has_one_signature(name):
    arguments = inspect.signature(CLASSES[name].fit).parameters
    under_rules = ["rules", "on_violation"] if name == "CRF" else []
    assert list(arguments) == [*(a for a in FIT if a in arguments), *under_rules]
    assert {"self", "X", "y", "callback"} <= set(arguments)
    assert all(arguments[a].kind is inspect.Parameter.KEYWORD_ONLY for a in arguments if a not in ("self", "X", "y"))
    if name not in WITHOUT_ITERATIONS:
        assert {"dev", "checkpoint", "max_minutes"} <= set(arguments), f"{name} iterates"
    for other in set(FIT[3:]) - set(arguments):
        with pytest.raises(ValueRangeError, match=f"has no use for {other}: leave it out"):
            CLASSES[name]().fit(WORDS, **{other: 1})


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_parameter_is_an_error_before_anything_is_read(name):
    for parameter, d in declared(CLASSES[name]).items():
        if d.parameter.minimum is not None:
            model = made(CLASSES[name], **{parameter: type(d.default or 1)(d.parameter.minimum - 1)})
            with pytest.raises(ValueRangeError, match=f"{parameter} must be at least"):
                model.fit(WORDS, TAGS)


@pytest.mark.parametrize("name", NAMES)
def test_learned_attributes(name):
    model = fitted(name)
    assert isinstance(model.report_, FitReport)
    assert math.isfinite(model.report_.value) or model.report_.n_iter == 0  # estimated by counting
    if isinstance(model, LanguageModel):
        assert all(type(word) is str for word in model.vocabulary_)
    if name in TAGGERS:
        assert model.labels_ is model.classes_
        assert all(type(label) is str for label in model.labels_)
    assert not {"states_", "tags_", "words_", "reading_"} & set(vars(model))


def test_probabilities_have_another_name():
    with pytest.raises(AttributeError, match="use predict_marginals"):
        fitted("HMM").predict_proba(WORDS)
    assert not hasattr(fitted("KneserNey"), "predict_proba")


def test_score_never_ignores_answers():
    with pytest.raises(ValueRangeError, match="leave y out"):
        fitted("KneserNey").score(WORDS, WORDS)
    grammar, own = fitted("PCFG"), [s.tree for s in bundled.load("train") if 2 < len(s.words) < 9][:5]
    report = evaluate(grammar, [tree.leaves() for tree in own], own)
    assert grammar.score([tree.leaves() for tree in own], own) == report.sentence_f1


def test_samples_are_new_unless_there_is_a_seed():
    model = fitted("KneserNey")
    assert model.sample(20) != model.sample(20)
    assert model.sample(5, seed=1) == model.sample(5, seed=1)


@pytest.mark.parametrize("name", NAMES)
def test_an_estimator_that_is_not_fitted_says_so(name):
    query = "log_prob" if name in LANGUAGE_MODELS else "predict"
    with pytest.raises(NotFittedError):
        getattr(CLASSES[name](), query)(WORDS)


@pytest.mark.parametrize("name", TAGGERS)
def test_taggers_answer_alike(name):
    model, X, y = fitted(name), WORDS[:3], TAGS[:3]
    known = [[tags[0], *[None] * (len(tags) - 1)] for tags in y]
    for evidence in (None, known):
        predicted = model.predict(X, known=evidence)
        assert [len(s) for s in predicted] == [len(s) for s in X]
        assert all(isinstance(label, str) for s in predicted for label in s)
        for sentence in model.predict_marginals(X, known=evidence):
            for token in sentence:
                assert set(token) == set(model.labels_)
                assert sum(token.values()) == pytest.approx(1, abs=1e-4)
        for sentence, ranked in zip(X, model.predict_topk(X, 2, known=evidence), strict=True):
            assert 1 <= len(ranked) <= 2
            assert all(len(labels) == len(sentence) and 0 <= p <= 1 + 1e-6 for labels, p in ranked)
    assert all(s[0] == tags[0] for s, tags in zip(model.predict(X, known=known), y, strict=True))
    posterior = model.posterior(X[0], known=known[0])
    assert float(posterior.log_partition()[0]) <= float(model.posterior(X[0]).log_partition()[0]) + 1e-6
    score = model.score(X, y)
    assert type(score) is float
    assert score == accuracy(model.predict(X), y)


@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.parametrize("calibrated", [False, True])
def test_there_is_one_posterior(name, calibrated):
    model = copy(fitted(name))
    if calibrated:
        calibrate(model, WORDS[:9], TAGS[:9])
    known = [{TAGS[0][0], TAGS[1][0]}, *[None] * (len(TAGS[0]) - 1)]
    marginals = model.posterior(WORDS[0], known=known).marginals()[0].numpy()
    (rows,) = model.predict_marginals(WORDS[:1], known=[known])
    np.testing.assert_allclose([[row[label] for label in model.labels_] for row in rows], marginals, atol=1e-12)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models_answer_alike(name):
    model, X = fitted(name), SHORT[:3]
    evidence = model.log_prob(X)
    assert isinstance(evidence, np.ndarray)
    assert evidence.shape == (3,)
    if not isinstance(model, Tagger):
        score = model.score(X)
        assert type(score) is float
        assert model.perplexity(X) == pytest.approx(math.exp(-score))
    samples = model.sample(2, seed=1)
    assert len(samples) == 2
    assert all(isinstance(word, str) for s in samples for word in s)
    assert samples == model.sample(2, seed=1)
    sentence = [*X[0]]
    for given in ([None, *sentence[1:]], " ".join(["___", *sentence[1:]])):
        (words,) = model.fill(given, 3)
        assert 1 <= len(words) <= 3
        assert all(isinstance(w, str) and 0 <= p <= 1 for w, p in words)
        assert [p for _, p in words] == sorted((p for _, p in words), reverse=True)
    assert len(model.fill([None, sentence[1], None], 2)) == 2
    everything = model.fill(given, 10**6, unknown=True)[0]
    assert model.fill(given, 10**6)[0] == [(w, p) for w, p in everything if w != "<unk>"]  # not renormalized
    assert len(model.fill(given, 3)[0]) == 3
    assert sum(p for _, p in everything) == pytest.approx(1, abs=1e-4)
    with pytest.raises(ShapeError, match="no blank"):
        model.fill(sentence)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models_read_unknown_words_and_refuse_strings_alike(name):
    model = fitted(name)
    assert np.isfinite(model.log_prob([[*SHORT[0], "flibbertigibbet"]])).all()
    for query in (model.log_prob, model.score, model.perplexity):
        with pytest.raises(TrellisworkError, match="list of words"):
            query(["a plain string"])


@pytest.mark.parametrize("name", [n for n in LANGUAGE_MODELS if issubclass(CLASSES[n], NextWord)])
def test_models_that_predict_the_next_word_answer_alike(name):
    model = fitted(name)
    words = model.predict_next(WORDS[0][:2], len(model.vocabulary_) + 1, unknown=True)
    assert model.predict_next(WORDS[0][:2], len(words)) == [(w, p) for w, p in words if w != "<unk>"]
    assert all(isinstance(w, str) for w, _ in words)
    assert sum(p for _, p in words) == pytest.approx(1, abs=1e-9)
    assert "</s>" in dict(words)


@pytest.mark.parametrize("name", [n for n in LANGUAGE_MODELS if issubclass(CLASSES[n], Incremental)])
def test_words_and_the_end_make_a_sentence(name):
    model, words = fitted(name), SHORT[0]
    log_p = model.token_log_probs(words)
    assert log_p.shape == (len(words) + 1,)
    assert log_p.sum() == pytest.approx(model.log_prob([words])[0], rel=1e-6)
    np.testing.assert_array_equal(model.token_log_probs(" ".join(words)), log_p)


@pytest.mark.parametrize("name", [n for n in NAMES if issubclass(CLASSES[n], TreeParser)])
def test_tree_parsers_answer_alike(name):
    model = fitted(name)
    X = PAIRS[:2] if name == "DependencyParser" else SHORT[:2]
    assert len(model.predict(X)) == 2
    assert hasattr(model.posterior(X[0], known=None), "log_partition")
    if name == "DependencyParser":
        assert type(model.score(PAIRS[:3], TREES[:3])) is float


def test_blanks_are_none_or_three_underscores():
    assert blanks("the ___ runs") == ["the", None, "runs"]
    assert blanks(["the", None, "runs"]) == ["the", None, "runs"]


def test_accuracy_leaves_out_tokens_without_gold():
    assert accuracy([["A", "B"]], [["A", None]]) == 1.0
    with pytest.raises(ShapeError):
        accuracy([["A"]], [["A", "B"]])


def test_parameters_are_checked_on_loading(monkeypatch):
    plain, arrays = fitted("HMM")._content()
    plain["parameters"] = plain["parameters"] | {"max_iter": {}}
    monkeypatch.setattr(base, "load_model", lambda *_, **__: (plain, arrays))
    with pytest.raises(DataError, match="max_iter must be an integer"):
        trelliswork.HMM.load("anywhere")
