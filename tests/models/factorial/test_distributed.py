"""Factorial CRFs in groups of processes: the same weights on all ranks, and the optimum of one process."""

import pytest

from tests.estimators import made
from tests.models.crf.test_distributed import digest
from tests.processes import on_ranks
from trelliswork import FactorialCRF
from trelliswork.compute.sharing import Group
from trelliswork.data import bundled

HERE = "tests.models.factorial.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
TRAIN, TEST = bundled.load("train")[:16], bundled.load("test")[:10]
CUTS = {2: [0, 10, 16], 3: [0, 0, 10, 16]}  # the first of three ranks has no sentences
SMALL = "U:%x[0,0]\nU:%x[-1,0]"


def labels(sentences):
    return {"pos": [list(s.tags) for s in sentences], "chunk": [list(s.chunks) for s in sentences]}


def train(group, options, path, stop):
    start, end = CUTS[group.size][group.rank : group.rank + 2] if group.size > 1 else (0, 16)
    own, new = TRAIN[start:end], [list(s.words) for s in TEST]
    dev = (new, labels(TEST)) if "patience" in options else None
    model = made(FactorialCRF, features=SMALL, **options).fit(
        [list(s.words) for s in own],
        labels(own),
        dev=dev,
        checkpoint=path,
        callback=lambda step: step.iteration == stop,
    )
    report = model.report_
    measured = None if dev is None else [report.dev, model.score(*dev)]
    predicted = model._predict_layers(new)
    return [report.value, predicted, digest(model._learned.weights), [list(v.labels) for v in model._layers], measured]


@pytest.mark.parametrize(("engine", "size"), [("bp", 3), ("exact", 2)])
def test_training_ends_as_in_one_process(engine, size):
    options = {"engine": engine, "tol": 1e-7, "l2": 1.0, "min_count": 2, "sweep_tol": 1e-6}
    alone = train(Group(), options, None, 0)
    together = on_ranks(size, f"{HERE}:train", options, None, 0)
    assert all(result == together[0] for result in together)
    assert together[0][0] == pytest.approx(alone[0], rel=1e-6)
    assert together[0][1] == alone[1]
    assert together[0][3] == alone[3]


@pytest.mark.filterwarnings("ignore:L-BFGS stopped after")
def test_mean_field_takes_the_same_steps():
    options = {"engine": "structured_mean_field", "max_iter": 4}
    alone = train(Group(), options, None, 0)
    together = on_ranks(2, f"{HERE}:train", options, None, 0)
    assert together[0] == together[1]
    assert together[0][0] == pytest.approx(alone[0], rel=1e-3)


def test_an_interrupted_training_goes_on(tmp_path):
    options, path = {"patience": 3, "l2": 0.5}, str(tmp_path / "run.ckpt")
    whole = on_ranks(2, f"{HERE}:train", options, None, 0)
    assert whole[0] == whole[1]
    assert whole[0][4][0] == whole[0][4][1]  # the metric during training, and at its end
    assert on_ranks(2, f"{HERE}:train", options, path, 3) != whole
    assert on_ranks(2, f"{HERE}:train", options, path, 0) == whole
