"""HMM language models in a group of processes: the same batches, and so the same model, as in one process."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.processes import on_ranks
from trelliswork.compute.sharing import Group
from trelliswork.errors import DataError
from trelliswork.models import HMMLanguageModel

HERE = "tests.models.hmm_lm.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
CUTS = {1: [0, 60], 2: [0, 13, 60], 3: [0, 40, 40, 60]}  # uneven shards, one of them empty
SETTINGS = {
    "softmax": {"n_states": 6, "hidden": 8},
    "kernel with clustered tokens": {"n_states": 6, "hidden": 8, "parameterization": "kernel", "n_features": 4},
    "kernel with a band": {"n_states": 6, "hidden": 8, "parameterization": "kernel", "n_features": 4, "band": 1},
    "Brown clusters": {"n_states": 6, "hidden": 8, "clusters": 2},
    "EM": {"n_states": 3, "hidden": 8, "em_iterations": 2},
}
COMMON = {"max_iter": 3, "batch_tokens": 40, "evaluations": 2, "learning_rate": 0.02, "state_dropout": 0.2, "clip": 0.5}


def sentences(n, seed=0):
    """Return sentences in which words of two kinds alternate."""
    rng = np.random.default_rng(seed)
    return [[f"{'ab'[t % 2]}{rng.integers(0, 5)}" for t in range(rng.integers(1, 9))] for _ in range(n)]


def train(group, settings, checkpoint=None, stop=0):
    cuts, dev = CUTS[group.size], sentences(9, 1)
    own = sentences(60)[cuts[group.rank] : cuts[group.rank + 1]]
    model = HMMLanguageModel(**COMMON, **settings)
    model.fit(own, dev=dev, checkpoint=checkpoint, callback=(lambda step: step.iteration == stop) if stop else None)
    arrays = model._state()[1]
    digest = hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    history = [[step.value, step.dev, step.learning_rate, step.n_tokens] for step in model.report_.history]
    return {"digest": digest, "history": history, "tokens": model.n_tokens_, "next": model.predict_next(["a1"], 4)}


@pytest.mark.parametrize(("name", "size"), [("softmax", 2), *zip(SETTINGS, (3, 3, 2, 3, 2), strict=True)])
def test_training_in_a_group_is_that_of_one_process(name, size):
    alone, together = train(Group(), SETTINGS[name]), on_ranks(size, f"{HERE}:train", SETTINGS[name])
    assert all(result == together[0] for result in together)  # the parameters too, bit for bit
    assert together == on_ranks(size, f"{HERE}:train", SETTINGS[name])
    assert together[0]["tokens"] == alone["tokens"]
    assert_allclose(together[0]["history"], alone["history"], rtol=2e-4)
    assert [word for word, _ in together[0]["next"]] == [word for word, _ in alone["next"]]


def test_a_group_resumes_from_its_checkpoint(tmp_path):
    settings, path = SETTINGS["softmax"], str(tmp_path / "run.ckpt")
    on_ranks(2, f"{HERE}:train", settings, path, 3)
    assert on_ranks(2, f"{HERE}:train", settings, path) == on_ranks(2, f"{HERE}:train", settings)


def nothing(group):
    with pytest.raises(DataError, match="no sentences"):
        HMMLanguageModel(2).fit([])
    return True


def test_a_text_without_sentences_on_all_ranks_is_an_error():
    assert all(on_ranks(2, f"{HERE}:nothing"))
