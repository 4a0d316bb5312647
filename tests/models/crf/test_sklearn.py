"""CRF taggers within scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from tests.models.crf.cases import TAGS, TEMPLATES, WORDS, as_dicts, tagger
from trelliswork.errors import (
    NotFittedError,
    ValueRangeError,
)
from trelliswork.features import parse_templates
from trelliswork.models import CRF

# scikit-learn


def test_clone_copies_parameters_and_nothing_learned(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(WORDS)
    parsed = tagger(parse_templates(TEMPLATES), l1=0.25)
    assert clone(parsed).get_params() == parsed.get_params()


def test_parameters_can_be_set():
    crf = CRF()
    assert crf.set_params(l2=3.0, features="ner") is crf
    assert (crf.get_params()["l2"], crf.features) == (3.0, "ner")
    with pytest.raises(ValueRangeError, match="'color'"):
        crf.set_params(color="red")


def accuracy_of_sentences(crf, x, y):
    return float(np.mean([a == b for a, b in zip(crf.predict(x), y, strict=True)]))


@pytest.mark.parametrize("scoring", [None, accuracy_of_sentences])
@pytest.mark.parametrize("kind", ["words", "dicts"])
def test_grid_search(kind, scoring):
    x = WORDS * 2 if kind == "words" else as_dicts(WORDS * 2)
    search = GridSearchCV(
        tagger(TEMPLATES if kind == "words" else None), {"l2": [0.01, 1e4]}, scoring=scoring, cv=3, error_score="raise"
    )
    search.fit(x, TAGS * 2)
    assert search.best_params_ == {"l2": 0.01}  # the other one learns next to nothing
    assert search.best_score_ > search.cv_results_["mean_test_score"][1]
    assert search.predict(x) == TAGS * 2
