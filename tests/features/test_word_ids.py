"""Remembered ids of words: the same as those looked up column by column."""

import copy
import pickle

import numpy as np
import pytest

from trelliswork import bundled
from trelliswork.data.corpus import Column, Corpus
from trelliswork.features import word_ids
from trelliswork.features.feature_map import FeatureMap
from trelliswork.features.presets import PRESETS, derive

SENTENCES = [list(s.words) for s in bundled.load("train")[:80]]
OTHERS = [list(s.words) for s in bundled.load("test")[:40]]


def plainly(features: FeatureMap, sentences):
    """Return attributes without remembered ids."""
    words = [word for sentence in sentences for word in sentence]
    offsets = np.cumsum([0, *map(len, sentences)])
    return features.extractor.transform(derive([words], PRESETS[features.preset]), offsets)


@pytest.fixture(params=["pos", "ner"])
def features(request):
    features = FeatureMap(request.param)
    features.fit(SENTENCES)
    return features


def same(a, b):
    assert (a.token_ptr == b.token_ptr).all()
    assert (a.ids == b.ids).all()


@pytest.mark.parametrize("most", [50_000, 30, 1])
def test_attributes_do_not_depend_on_what_is_remembered(features, monkeypatch, most):
    monkeypatch.setattr(word_ids, "MAX_WORDS", most)
    for sentences in (OTHERS[:1], OTHERS, OTHERS[5:9], SENTENCES, [["nie", "gesehen"]], OTHERS):
        same(features.transform(sentences), plainly(features, sentences))
    assert len(features._words._known.rows) <= most


def as_read(sentences):
    """Return a corpus whose equal strings are stored once, as that of a file."""
    words = [word for sentence in sentences for word in sentence]
    distinct = list(dict.fromkeys(words))
    ids = np.array([distinct.index(word) for word in words])
    return Corpus([Column(distinct, ids)], np.cumsum([0, *map(len, sentences)]))


@pytest.mark.parametrize("options", [{}, {"min_count": 2}, {"hash_bits": 10}])
@pytest.mark.parametrize("preset", ["pos", "ner", "letters"])
def test_equal_strings_stored_once_have_the_same_attributes(preset, options):
    ours, plain = FeatureMap(preset, **options), FeatureMap(preset, **options)
    same(ours.fit(as_read(SENTENCES)), plain.fit(SENTENCES))
    assert ours.names() == plain.names()
    same(ours.transform(as_read(OTHERS)), plain.transform(OTHERS))


def test_another_fit_forgets_the_words(features):
    features.transform(OTHERS)
    features.fit(OTHERS)
    same(features.transform(SENTENCES), plainly(features, SENTENCES))


def test_a_map_with_remembered_words_can_be_copied(features):
    before = features.transform(OTHERS)
    for other in (copy.deepcopy(features), pickle.loads(pickle.dumps(features))):
        same(other.transform(OTHERS), before)
