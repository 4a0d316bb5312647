"""A fitted tagger for the tests of CRFs."""

import pytest

from tests.models.crf.cases import TAGS, WORDS, tagger


@pytest.fixture(scope="module")
def fitted():
    return tagger().fit(WORDS, TAGS)
