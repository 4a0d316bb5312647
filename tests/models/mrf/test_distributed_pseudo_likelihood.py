"""Pseudo-likelihood in a group of processes: the same batches, and so the same field, as in one process."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.processes import on_ranks
from trelliswork.compute.sharing import Group
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.learning.watch import Development, Watch
from trelliswork.models import MRFLanguageModel
from trelliswork.models.mrf import pseudo_likelihood

HERE = "tests.models.mrf.test_distributed_pseudo_likelihood"
pytestmark = pytest.mark.slow  # a group for each number of ranks
CUTS = {1: [0, 60], 2: [0, 7, 60], 3: [0, 30, 30, 60]}  # uneven shards, one of them empty
C, K, D = 6, 2, 3


def sentences(seed=0):
    """Return 60 random sentences of ascending ids."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.integers(1, C, rng.integers(1, 7))) for _ in range(60)]


def text(first, last, seed=0):
    """Return some of the sentences as a padded stream."""
    rows = [np.append(row, -1) for row in sentences(seed)[first:last]]
    return pseudo_likelihood.padded_stream(np.concatenate([np.zeros(0, np.int64), *rows]), K)


def train(group, checkpoint=None, stop=0):
    rng = np.random.default_rng(1)
    shapes = (C,), (C, D), (K, C, D)
    field = pseudo_likelihood.Field(*(torch.from_numpy(rng.normal(size=s).astype(np.float32)) for s in shapes))
    held, cuts = text(0, 20, seed=2), CUTS[group.size]
    development = Development("mean log p", lambda _: pseudo_likelihood.mean_log_p(field, held))
    saved = None if checkpoint is None else Checkpoint(checkpoint, "mark", every=0)
    watch = Watch(development, checkpoint=saved, callback=(lambda step: step.iteration >= stop) if stop else None)
    own = text(*cuts[group.rank : group.rank + 2])
    report = pseudo_likelihood.train(field, own, watch, learning_rate=0.02, batch_size=16, max_iter=3, l2=0.5)
    history = [[step.value, step.dev, step.n_evaluations] for step in report.history]
    return {"history": history, "field": [tensor.reshape(-1).tolist() for tensor in field.tensors()]}


@pytest.mark.parametrize("size", [2, 3])
def test_training_in_a_group_is_that_of_one_process(size):
    alone, together = train(Group()), on_ranks(size, f"{HERE}:train")
    assert all(result == together[0] for result in together)  # bit for bit
    assert together == on_ranks(size, f"{HERE}:train")
    assert_allclose(together[0]["history"], alone["history"], rtol=1e-4)
    for got, want in zip(together[0]["field"], alone["field"], strict=True):
        assert_allclose(got, want, atol=1e-4)


def fit(group):
    words = [[f"w{i}" for i in row] for row in sentences()]
    model = MRFLanguageModel(
        algorithm="pseudo-likelihood", rank=3, max_iter=2, options={"batch_size": 16, "learning_rate": 0.02}
    )
    model.fit(words[slice(*CUTS[group.size][group.rank : group.rank + 2])], dev=words[:10])
    return [model.report_.value, model.report_.dev, model.score(words[:20]), model.n_tokens_]


def test_the_language_model_of_a_group_is_that_of_one_process():
    assert_allclose(on_ranks(3, f"{HERE}:fit"), [fit(Group())] * 3, rtol=1e-4)


def test_a_group_resumes_from_its_checkpoint_within_an_epoch(tmp_path):
    path = str(tmp_path / "run.ckpt")
    on_ranks(2, f"{HERE}:train", path, 14)
    assert on_ranks(2, f"{HERE}:train", path) == on_ranks(2, f"{HERE}:train")
