"""The same problem given to python-crfsuite: the same optimum (where it is installed)."""

import pytest
from numpy.testing import assert_allclose

from trelliswork import CRF
from trelliswork.data import bundled

pycrfsuite = pytest.importorskip("pycrfsuite")


@pytest.mark.parametrize("possible", [False, True])
def test_the_loss_reached_is_that_of_crfsuite(tmp_path, possible):
    sentences = bundled.load("train")[:80]
    X = [[[f"w={w}", f"t={t}"] for w, t in zip(s.words, s.tags, strict=True)] for s in sentences]
    Y = [list(s.chunks) for s in sentences]
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, y in zip(X, Y, strict=True):
        trainer.append(x, y)
    trainer.select("lbfgs")
    options = {"c1": 0.0, "c2": 0.5, "max_iterations": 1000, "epsilon": 1e-9, "delta": 1e-9}
    trainer.set_params(options | {f"feature.possible_{k}": possible for k in ("states", "transitions")})
    trainer.train(str(tmp_path / "model"))
    theirs = trainer.logparser.last_iteration["loss"]
    crf = CRF(None, l2=0.5, scheme=None, tol=1e-8, options={"feature_set": "all" if possible else "observed"}).fit(X, Y)
    assert crf.report_.value == pytest.approx(theirs, rel=1e-5)
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model"))
    assert crf.predict(X) == [tagger.tag(x) for x in X]
    tagger.set(X[0])
    ours = crf.predict_marginals(X[:1])[0]
    for t in range(len(X[0])):
        theirs_t = [tagger.marginal(label, t) for label in crf.labels_]
        assert_allclose([ours[t][label] for label in crf.labels_], theirs_t, atol=2e-3)
