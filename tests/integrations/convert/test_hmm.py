"""HMMs of hmmlearn and pomegranate answer here as there."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trelliswork import bundled, convert, load
from trelliswork.errors import DataError, NotFittedError, ValueRangeError


@pytest.fixture(scope="module")
def text():
    """Return the ids of the tags of some sentences, and the names of the tags."""
    tags = [list(s.tags) for s in bundled.load("dev")[:12]]
    names = sorted({tag for sentence in tags for tag in sentence})
    return [np.array([names.index(tag) for tag in sentence]) for sentence in tags], names


def test_hmmlearn(text, tmp_path):
    hmm = pytest.importorskip("hmmlearn.hmm")
    ids, names = text
    theirs = hmm.CategoricalHMM(4, n_iter=10, tol=0, random_state=0, n_features=len(names))
    theirs.fit(np.concatenate(ids)[:, None], [len(x) for x in ids])
    model = convert(theirs, words=names, labels=["A", "B", "C", "D"])
    model.save(tmp_path / "model")
    for converted in (model, load(tmp_path / "model")):
        for x in ids:
            words = [[names[k] for k in x]]
            assert converted.predict(words)[0] == ["ABCD"[k] for k in theirs.predict(x[:, None])]
            rows = converted.predict_marginals(words)[0]
            assert_allclose([[row[k] for k in "ABCD"] for row in rows], theirs.predict_proba(x[:, None]), atol=1e-8)
            assert_allclose(converted.log_prob(words)[0], theirs.score(x[:, None]), rtol=1e-10)
    assert convert(theirs).predict([ids[0].tolist()])[0][0].startswith("#")
    with pytest.raises(ValueRangeError, match="words must be"):
        convert(theirs, words=["a"])
    with pytest.raises(NotFittedError, match="not fitted"):
        convert(hmm.CategoricalHMM(3))
    with pytest.raises(DataError, match="expected a file, a CategoricalHMM"):
        convert(object())


@pytest.mark.parametrize("ends", [False, True])
def test_pomegranate(text, ends):
    hmm = pytest.importorskip("pomegranate.hmm", reason="pomegranate is not installed: pip install pomegranate")
    torch = pytest.importorskip("torch")
    categorical = pytest.importorskip("pomegranate.distributions").Categorical
    rng, (ids, names), S = np.random.default_rng(0), text, 3
    emission = rng.dirichlet(np.ones(len(names)), S)
    edges, start = rng.dirichlet(np.ones(S + ends), S), rng.dirichlet(np.ones(S))
    theirs = hmm.DenseHMM(
        [categorical([row.tolist()]) for row in emission],
        edges=edges[:, :S].astype(np.float32),
        starts=start.astype(np.float32),
        ends=(edges[:, S] if ends else np.full(S, 1 / S)).astype(np.float32),
    )
    model = convert(theirs, words=names)
    assert model.end == ends
    for x in ids[:10]:
        batch = torch.tensor(x)[None, :, None]
        words = [[names[k] for k in x]]
        rows = [[row[f"#{k}"] for k in range(S)] for row in model.predict_marginals(words)[0]]
        assert_allclose(rows, theirs.predict_proba(batch)[0].numpy(), atol=1e-4)
        if ends:
            assert_allclose(model.log_prob(words)[0], theirs.log_probability(batch).item(), rtol=1e-5)
