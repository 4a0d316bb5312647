"""Estimators within scikit-learn: what its checks of estimators ask for, as far as it makes sense for sequences."""

import copy
import inspect
import io
import pickle

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import trelliswork
from tests.models.fitted import BUILDERS, PAIRS, SHORT, TAGS, TRAIN, TREES, WORDS, fitted
from trelliswork import CRF, HMM, DependencyParser
from trelliswork.errors import DataError, NotFittedError, ValueRangeError
from trelliswork.integrations.scorers import accuracy_scorer, chunk_f1_scorer, las_scorer, uas_scorer
from trelliswork.metrics import evaluate_tagging
from trelliswork.models import LanguageModel

CHUNKS = [list(s.chunks) for s in TRAIN]


def answers(model):
    """Return something that depends on all that a model has learned."""
    if isinstance(model, LanguageModel):
        return model.log_prob(SHORT[:3])
    X = PAIRS[:3] if isinstance(model, DependencyParser) else WORDS[:3]
    return np.array([str(model.predict(X)), str(model.predict_marginals(X))], object)


@pytest.mark.parametrize("name", sorted(BUILDERS))
class TestEstimator:
    def test_parameters_are_stored_as_they_are_and_nothing_else(self, name):
        cls = getattr(trelliswork.models, name)
        model = cls()
        assert vars(model) == model.get_params()
        for parameter in inspect.signature(cls.__init__).parameters.values():
            if parameter.name != "self":
                assert parameter.default is not inspect.Parameter.empty
                assert getattr(model, parameter.name) is parameter.default
        assert eval(repr(model), {name: cls}).get_params() == model.get_params()
        with pytest.raises(Exception, match="not fitted"):
            check_is_fitted(model)

    def test_clones_have_the_parameters_and_nothing_learned(self, name):
        model = fitted(name)
        before = model.get_params()
        other = clone(model)
        assert other.get_params() == before
        assert not other.__sklearn_is_fitted__()
        check_is_fitted(model)

    @pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
    def test_copies_give_the_same_answers(self, name, way):
        model = fitted(name)
        if way == "pickle":
            data = pickle.dumps(model)
            assert b"trelliswork.models" in data
            other = pickle.loads(data)
        elif way == "joblib":
            file = io.BytesIO()
            joblib.dump(model, file)
            file.seek(0)
            other = joblib.load(file)
        else:
            other = copy.deepcopy(model)
        assert type(other) is type(model)
        assert other.get_params() == model.get_params()
        assert np.array_equal(answers(other), answers(model))
        assert pickle.loads(pickle.dumps(clone(model))).get_params() == model.get_params()

    def test_metadata_of_fit_can_be_requested(self, name):
        model = clone(fitted(name))
        assert set(model.get_metadata_routing().fit.requests.values()) <= {None}
        with pytest.raises(ValueRangeError, match="takes no 'color'"):
            model.set_fit_request(color=True)
        model.set_fit_request(callback=True)
        for other in (model, clone(model), pickle.loads(pickle.dumps(model))):
            assert other.get_metadata_routing().fit.requests["callback"] is True


def test_a_damaged_pickle_is_an_error():
    state = fitted("CRF").__getstate__()
    state["arrays"]["weights"] = state["arrays"]["weights"][:-1]
    with pytest.raises(DataError, match="do not match"):
        CRF().__setstate__(state)


def test_copies_keep_the_calibration():
    model = CRF("pos", tol=0.1).fit(WORDS[:20], TAGS[:20])
    trelliswork.calibrate(model, WORDS[20:], TAGS[20:])
    other = pickle.loads(pickle.dumps(model))
    assert other.calibration_ == model.calibration_
    assert other.calibration_ is not None
    assert other.predict_marginals(WORDS[:2]) == model.predict_marginals(WORDS[:2])


def suffix(sentence, t):
    return {"w": sentence[t], "suffix": sentence[t][-2:]}


def test_a_function_is_pickled_by_its_name():
    model = CRF(suffix, scheme=None, tol=0.1).fit(WORDS[:10], TAGS[:10])
    other = pickle.loads(pickle.dumps(model))
    assert other.features is suffix
    assert other.predict(WORDS[:12]) == model.predict(WORDS[:12])


def lower(sentences):
    return [[word.lower() for word in sentence] for sentence in sentences]


def test_pipelines():
    steps = [("lower", FunctionTransformer(lower)), ("tagger", CRF(scheme=None, tol=0.1))]
    pipeline = Pipeline(steps).fit(WORDS, TAGS)
    assert pipeline.predict(WORDS[:3]) == CRF(scheme=None, tol=0.1).fit(lower(WORDS), TAGS).predict(lower(WORDS[:3]))
    assert pipeline.score(WORDS, TAGS) > 0.9
    assert pickle.loads(pickle.dumps(pipeline)).predict(WORDS[:3]) == pipeline.predict(WORDS[:3])
    search = GridSearchCV(pipeline, {"tagger__l2": [0.1, 1e4]}, cv=2, error_score="raise").fit(WORDS, TAGS)
    assert search.best_params_ == {"tagger__l2": 0.1}


def test_cross_val_predict_returns_sentences_in_their_order():
    for model in (HMM(), CRF(tol=0.3)):
        predicted = cross_val_predict(model, WORDS, TAGS, cv=3)
        assert [len(labels) for labels in predicted] == [len(words) for words in WORDS]
        first = 10  # of the first fold, predicted by a model of the others
        assert list(predicted[:first]) == clone(model).fit(WORDS[first:], TAGS[first:]).predict(WORDS[:first])
    same = [words[:2] for words in WORDS]
    assert len(cross_val_predict(HMM(), same, [tags[:2] for tags in TAGS], cv=2)) == len(same)  # no table of labels


def test_scorers():
    chunker = CRF("pos", tol=0.1).fit(WORDS, CHUNKS)
    report = evaluate_tagging(CHUNKS, chunker.predict(WORDS))
    assert chunk_f1_scorer(chunker, WORDS, CHUNKS) == report.chunks.f1
    assert accuracy_scorer(chunker, WORDS, CHUNKS) == report.accuracy == chunker.score(WORDS, CHUNKS)
    parser = fitted("DependencyParser")
    assert las_scorer(parser, PAIRS, TREES) == pytest.approx(parser.score(PAIRS, TREES))
    heads = [[head for head, _ in tree] for tree in TREES]
    assert uas_scorer(parser, PAIRS, heads) == pytest.approx(parser.score(PAIRS, heads))
    assert las_scorer(parser, PAIRS, TREES) <= uas_scorer(parser, PAIRS, TREES)
    with pytest.raises(ValueRangeError, match="plain tags"):
        chunk_f1_scorer(fitted("HMM"), WORDS, TAGS)
    with pytest.raises(ValueRangeError, match="arc labels"):
        las_scorer(parser, PAIRS, heads)
    values = cross_val_score(CRF("pos", tol=0.3), WORDS, CHUNKS, cv=2, scoring=chunk_f1_scorer, error_score="raise")
    assert ((values > 0.2) & (values <= 1)).all()


def test_sample_weight_is_routed():
    weight = np.array([0.0, *(1.0 for _ in WORDS[1:])])
    crf = CRF(scheme=None, tol=0.1)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(crf, {"l2": [1.0]}, cv=2, error_score="raise")
        with pytest.raises(UnsetMetadataPassedError):
            search.fit(WORDS, TAGS, sample_weight=weight)
        search = GridSearchCV(clone(crf).set_fit_request(sample_weight=True), {"l2": [1.0]}, cv=2, error_score="raise")
        search.fit(WORDS, TAGS, sample_weight=weight)
        expected = clone(crf).fit(WORDS, TAGS, sample_weight=weight)
        assert np.allclose(search.best_estimator_._learned.weights, expected._learned.weights)
        assert not np.allclose(expected._learned.weights, clone(crf).fit(WORDS, TAGS)._learned.weights)


def test_models_that_are_not_fitted_say_so():
    with pytest.raises(NotFittedError, match="not fitted"):
        pickle.loads(pickle.dumps(CRF())).predict(WORDS)


@pytest.mark.slow  # processes of their own, which import everything
def test_grid_search_in_two_processes():
    search = GridSearchCV(
        CRF(suffix, scheme=None, tol=0.1),
        {"l2": [0.1, 1e4]},
        cv=2,
        n_jobs=2,
        scoring=accuracy_scorer,
        error_score="raise",
    )
    search.fit(WORDS, TAGS)
    assert search.best_params_ == {"l2": 0.1}
    assert search.predict(WORDS[:2]) == search.best_estimator_.predict(WORDS[:2])
