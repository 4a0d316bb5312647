"""Small models on the disk, and one service for the tests that do not end it."""

import warnings

import pytest

from tests.serve.families import fitted, page_of
from tests.serve.services import Running
from trelliswork import CRF, KneserNey, bundled

KEY = "a-key-of-the-tests-0123456789"
TRAIN = bundled.load("train")
WORDS = [list(s.words) for s in TRAIN[:120]]
TAGS = [list(s.tags) for s in TRAIN[:120]]
TEXT = [list(s.words) for s in bundled.load("test")[:200]]


@pytest.fixture(scope="session")
def model():
    """Return a function that returns a tiny model of a family."""
    return fitted


@pytest.fixture(scope="session")
def page():
    """Return a function that returns a client of the page of such a model."""
    return page_of


@pytest.fixture(scope="session")
def tagger():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations on purpose
        return CRF("pos", max_iter=8).fit(WORDS, TAGS)


@pytest.fixture(scope="session")
def other_tagger():
    """Return a tagger with other labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CRF("pos", max_iter=4).fit(WORDS, [[tag.lower() for tag in tags] for tags in TAGS])


@pytest.fixture(scope="session")
def words():
    return KneserNey(3, min_count=2).fit(WORDS)


@pytest.fixture(scope="session")
def folder(tagger, words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tagger.save(folder / "tagger")
    words.save(folder / "words")
    return folder


@pytest.fixture(scope="session")
def service(folder):
    """Return a service with two workers and two models; the last test ends it."""
    models = folder / "tagger", f"lm={folder / 'words'}"
    running = Running(*models, "--workers", 2, "--request-seconds", 0.8, key=KEY)
    yield running
    running.stop()
