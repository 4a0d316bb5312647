"""Log-bilinear language models in a group of processes."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.processes import on_ranks
from trelliswork.compute.sharing import Group
from trelliswork.models import LogBilinear

HERE = "tests.models.baselines.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
CUTS = {1: [0, 80], 2: [0, 11, 80], 3: [0, 50, 50, 80]}  # uneven shards, one of them empty
SETTINGS = {"rank": 6, "max_iter": 6, "learning_rate": 0.3, "l2": 0.1}


def sentences(n, seed=0):
    """Return sentences in which a word mostly determines the next one."""
    rng = np.random.default_rng(seed)
    starts, noise = rng.integers(0, 5, n), rng.random((n, 6)) < 0.1
    return [
        [f"w{(start + i + k) % 5}" for i, k in enumerate(row.tolist())]
        for start, row in zip(starts, noise, strict=True)
    ]


def train(group, settings, checkpoint=None, stop=0):
    cuts = CUTS[group.size]
    own = sentences(80)[cuts[group.rank] : cuts[group.rank + 1]]
    model = LogBilinear(**SETTINGS, **settings)
    callback = (lambda step: step.iteration == stop) if stop else None
    model.fit(own, dev=sentences(10, 1), checkpoint=checkpoint, callback=callback)
    arrays = model._state()[1]
    digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    history = [[step.value, step.dev, step.learning_rate, step.n_tokens] for step in model.report_.history]
    return {"digest": digest, "history": history, "next": model.next_distribution(["w1"]).tolist()}


@pytest.mark.parametrize("size", [2, 3])
def test_one_batch_per_epoch_gives_the_model_of_one_process(size):
    settings = {"batch_size": 10_000}
    alone, together = train(Group(), settings), on_ranks(size, f"{HERE}:train", settings)
    assert all(result == together[0] for result in together)  # the parameters too, bit for bit
    assert_allclose(together[0]["history"], alone["history"], rtol=1e-4)
    assert_allclose(together[0]["next"], alone["next"], atol=1e-4)


@pytest.mark.parametrize("size", [2, 3])
def test_smaller_batches_give_a_model_as_good_as_that_of_one_process(size):
    settings = {"batch_size": 50}
    alone, together = train(Group(), settings), on_ranks(size, f"{HERE}:train", settings)
    assert all(result == together[0] for result in together)
    assert together == on_ranks(size, f"{HERE}:train", settings)
    best = [max(dev for _, dev, _, _ in result["history"]) for result in (alone, together[0])]
    assert best[1] > best[0] - 0.03


def test_a_group_resumes_from_its_checkpoint(tmp_path):
    settings, path = {"batch_size": 50}, str(tmp_path / "run.ckpt")
    on_ranks(2, f"{HERE}:train", settings, path, 3)
    assert on_ranks(2, f"{HERE}:train", settings, path) == on_ranks(2, f"{HERE}:train", settings)
