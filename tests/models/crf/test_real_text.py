"""CRF taggers on real text."""

import pytest
from numpy.testing import assert_allclose

from trelliswork.data import read_columns
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import CRF


@pytest.mark.slow
def test_chunking_conll_2000(data_dir, tmp_path):
    train, test = (read_columns(data_dir / "conll2000" / f"{part}.txt") for part in ("train", "test"))
    crf = CRF("chunking", scheme=None, l2=1.0).fit(train, train.sentences(2))
    assert crf.report_.converged
    assert_allclose(crf.report_.value, 13139.36, rtol=1e-4)
    predicted = crf.predict(test)
    report = evaluate_tagging(test.sentences(2), predicted)
    assert report.chunks is not None
    assert report.chunks.f1 >= 0.935
    crf.save(tmp_path / "model")
    assert CRF.load(tmp_path / "model").predict(test) == predicted
