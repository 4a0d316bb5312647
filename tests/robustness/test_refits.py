"""A model that is fitted while other threads use it gives old answers or new ones."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.models.fitted import TAGS, WORDS
from trelliswork import CRF


@pytest.mark.parametrize("n", [110, pytest.param(1100, marks=pytest.mark.slow)])
def test_fits_under_prediction(n):
    command = [sys.executable, "-m", "tests.robustness.refits", str(n), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("no crash, no mixture")


def test_a_failed_fit_leaves_the_model_as_it_was():
    tagger = CRF("pos", tol=0.01).fit(WORDS, TAGS)
    before, attributes = tagger.predict(WORDS), dict(vars(tagger))

    def interrupt(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tagger.fit(WORDS[:2], TAGS[:2], callback=interrupt)
    assert vars(tagger).keys() == attributes.keys()
    assert tagger.predict(WORDS) == before
