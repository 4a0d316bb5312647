"""The MRF tagger in a group of processes: the same counts, objective and tags as in one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix

from tests.processes import on_ranks
from trelliswork.compute.sharing import Group
from trelliswork.data import bundled
from trelliswork.models import MRFTagger
from trelliswork.models.mrf_tagger.objective import TaggerObjective, tagger_moments

HERE = "tests.models.mrf_tagger.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks


def evaluate(group, K, L):
    """Return the counts, and value and gradient of the objective at random weights; only rank 0 has sentences."""
    rng = np.random.default_rng(0)
    T, C, n = 4, 7, 20
    words, tags = rng.integers(1, C, n), rng.integers(0, T - 1, n)
    features = [csr_matrix(rng.integers(0, 2, (C, 5)).astype(float)) for _ in range(L)]
    ends = np.array([0, 3, 8, n])
    if group.rank > 0:
        words, tags, ends = words[:0], tags[:0], ends[:1]
    moments = tagger_moments(words, tags, ends, K, L, T, C)
    objective = TaggerObjective(moments, features, l2=0.3)
    x = rng.normal(size=objective.layout.size) / 2
    value, gradient = objective(x)
    counts = [m.toarray().tolist() for m in moments.tag_words]
    return [moments.n_positions, moments.tag_pairs.tolist(), counts, value, gradient.tolist()]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("K", "L"), [(1, 1), (2, 3)])
def test_the_objective_is_that_of_one_process(size, K, L):
    alone = evaluate(Group(), K, L)
    for result in on_ranks(size, f"{HERE}:evaluate", K, L):
        assert result[:3] == alone[:3]
        assert_allclose(result[3], alone[3], rtol=1e-9)
        assert_allclose(result[4], alone[4], rtol=1e-5, atol=1e-5)  # sent as float32


def train(group, n, checkpoint=None, stop_after=None):
    some = bundled.load("train")[:n]
    own, dev = some[slice(*group.share(n))], bundled.load("test")[:20]
    tagger = MRFTagger(min_count=2, closed=True, tol=1e-9, max_iter=10)
    words, tags = ([list(getattr(s, part)) for s in own] for part in ("words", "tags"))

    def callback(step):
        return stop_after is not None and step.iteration >= stop_after

    tagger.fit(words, tags, checkpoint=checkpoint, callback=callback)
    size = float(np.abs(tagger._learned.weights[0]).sum())
    return [tagger.report_.value, tagger.predict([list(s.words) for s in dev]), size]


@pytest.mark.parametrize(("size", "n"), [(2, 20), (3, 2)])
@pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")
def test_training_ends_as_in_one_process(size, n):
    alone, together = train(Group(), n), on_ranks(size, f"{HERE}:train", n)
    for result in together:
        assert result == together[0]
        assert result[0] == pytest.approx(alone[0], rel=1e-6)
        assert result[1] == alone[1]


def test_a_resumed_group_ends_with_the_same_bits(tmp_path):
    path = str(tmp_path / "checkpoint")
    on_ranks(2, f"{HERE}:train", 20, path, 4)
    assert (tmp_path / "checkpoint").exists()
    assert on_ranks(2, f"{HERE}:train", 20, path) == on_ranks(2, f"{HERE}:train", 20)
