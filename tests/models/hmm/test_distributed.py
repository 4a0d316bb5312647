"""HMMs in a group of processes: the model of one process, whatever the number of ranks and their shares."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.estimators import made
from tests.models.hmm.cases import HALF, IDS, TAGS, WORDS
from tests.processes import on_ranks
from trelliswork import HMM
from trelliswork.compute.sharing import Group
from trelliswork.data import bundled

HERE = "tests.models.hmm.test_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks
MORE = [*WORDS, *([word.upper() for word in s] for s in WORDS[:3]), ["a", "dog", "runs"], ["cats", "run"]] * 2
HIDDEN = [*HALF, *TAGS[:3], None, ["N", None], *TAGS, None, None, None, ["D", "N", None], ["N", "V"]]
NEW = [["the", "Man", "sees", "dogs"], ["bark"], ["zzz", "running", "the"]]

CASES = {  # options, sentences, states
    "order 1": ({}, MORE[:5], TAGS),
    "order 2": ({"order": 2}, WORDS, TAGS),
    "order 3": ({"order": 3}, WORDS, TAGS),
    "one symbol for unknown words": ({"unknown": "symbol", "min_count": 2}, WORDS, TAGS),
    "ids": ({}, IDS, TAGS),
    "two sentences": ({"n_states": 2, "max_iter": 3, "tol": 0}, WORDS[:2], None),
    "EM": ({"n_states": 3, "max_iter": 10, "tol": 0}, MORE, None),
    "EM, ids, no end": ({"n_states": 3, "max_iter": 10, "tol": 0, "end": False}, IDS, None),
    "rare words": ({"n_states": 3, "max_iter": 5, "tol": 0, "min_count": 3}, MORE, None),
    "restarts": ({"n_states": 2, "n_restarts": 3, "probe": 2, "max_iter": 6, "tol": 0}, MORE, None),
    "variational Bayes": ({"n_states": 3, "algorithm": "vb", "max_iter": 10, "tol": 0}, MORE, None),
    "beam": ({"n_states": 4, "beam": "size=2", "max_iter": 3, "tol": 0}, MORE, None),
    "partly labeled": ({"max_iter": 5, "tol": 0}, MORE, HIDDEN),
    "one more state": ({"n_states": 4, "max_iter": 5, "tol": 0}, MORE, HIDDEN),
    "partly labeled, vb": ({"algorithm": "vb", "max_iter": 5, "tol": 0, "unknown": "symbol"}, MORE, HIDDEN),
}


def ends(size, n, uneven):
    """Return where the shares of the ranks end; if uneven, rank 1 has none and the last one has one sentence."""
    return [n - 1 if uneven and rank < size - 1 else (rank + 1) * n // size for rank in range(size)]


def share(group, n, uneven):
    limits = [0, *ends(group.size, n, uneven)]
    return slice(limits[group.rank], limits[group.rank + 1])


def facts(hmm):
    """Return what a model has learned, as plain data."""
    words = IDS if hmm.vocabulary_[0] == "0" else [*WORDS, *NEW]
    report = hmm.report_
    plain = {
        "labels": list(hmm.labels_),
        "words": list(hmm.vocabulary_),
        "predicted": hmm.predict(words),
        "n_iter": report.n_iter,
        "reason": report.reason,
        "metric": report.metric,
    }
    numbers = [*hmm.log_prob(words).tolist(), *hmm.transitions().ravel().tolist()]
    numbers += [report.dev or 0.0, report.value]
    numbers += [v for step in report.history for v in (step.value, step.log_evidence, step.dev or 0.0)]
    numbers += report.details.get("restarts", [])
    if report.beam is not None:
        numbers += [report.beam.mean_size, report.beam.max_size, report.beam.gap_estimate, report.beam.n_positions]
    return plain, np.nan_to_num(numbers).tolist()


def train(group, names, uneven):
    results = []
    for name in names:
        options, X, y = CASES[name]
        part = share(group, len(X), uneven)
        results.append(facts(made(HMM, **options).fit(X[part], None if y is None else y[part])))
    return results


@pytest.mark.parametrize(("size", "uneven"), [(2, False), (3, True)])
@pytest.mark.filterwarnings("ignore::trelliswork.errors.ConvergenceWarning")
def test_a_group_learns_the_model_of_one_process(size, uneven):
    alone = train(Group(), list(CASES), False)
    ranks = on_ranks(size, f"{HERE}:train", list(CASES), uneven)
    for results in ranks:
        for name, (plain, numbers), (plain_alone, numbers_alone) in zip(CASES, results, alone, strict=True):
            assert plain == plain_alone, name
            assert_allclose(numbers, numbers_alone, rtol=1e-9, atol=1e-12, err_msg=name)
    assert ranks[0] == ranks[-1]
    few = ["EM", "variational Bayes", "partly labeled"]
    again = on_ranks(size, f"{HERE}:train", few, uneven)
    assert str(again[0]) == str([ranks[0][list(CASES).index(name)] for name in few])  # bit for bit


def with_dev(group, directory, stop):
    """Train with development data and a checkpoint; a first run stops after some iterations, on the last rank."""
    sentences = bundled.load("train")[:60]
    X, y = [list(s.words) for s in sentences], [list(s.tags) if k % 2 else None for k, s in enumerate(sentences)]
    dev = [list(s.words) for s in bundled.load("test")[:20]], [list(s.tags) for s in bundled.load("test")[:20]]
    part, last = share(group, 60, False), group.rank == group.size - 1
    results = []
    for algorithm, other in (("em", dev), ("vb", dev[0])):
        path = None if directory is None else f"{directory}/{algorithm}"
        hmm = HMM(50, algorithm=algorithm, max_iter=3, tol=0, patience=50, min_count=2)
        given = y[part] if other is dev else None
        if stop:
            hmm.fit(X[part], given, dev=other, checkpoint=path, callback=lambda step: last and step.iteration == 2)
            assert hmm.report_.n_iter == 2
        hmm.fit(X[part], given, dev=other, checkpoint=path)
        history = [(step.value, step.dev) for step in hmm.report_.history]
        results.append([history, hmm.report_.dev, hmm.predict(dev[0]), float(hmm.log_prob(dev[0]).sum())])
    return results


def test_development_data_and_checkpoints(tmp_path):
    alone = with_dev(Group(), None, False)
    whole = on_ranks(2, f"{HERE}:with_dev", None, False)
    resumed = on_ranks(2, f"{HERE}:with_dev", str(tmp_path), True)
    assert whole[0] == whole[1]
    assert resumed == whole  # bit for bit
    for one, two in zip(alone, whole[0], strict=True):
        assert_allclose(two[0], one[0], rtol=1e-9)
        assert two[1] == pytest.approx(one[1], rel=1e-9)
        assert two[2] == one[2]


def stream(group):
    """Train on batches: of two, rank 0 has most sentences and rank 1 a few of the first, others none."""
    parts = [[MORE[:10], MORE[15:]], [MORE[10:15], []]] if group.size > 1 else [[MORE[:15], MORE[15:]]]
    own = [*parts, [[], []]][min(group.rank, 2)]
    words = Counter(word for X in own for x in X for word in x)
    hmm = HMM(3, min_count=3, unknown="symbol")
    for X in own * 3:
        hmm.partial_fit(X, words=words)
    return facts(hmm)


def test_streams_in_step():
    """An update takes a part of the batch of each rank: that of one process that has them joined."""
    plain, numbers = stream(Group())
    assert plain["n_iter"] == 6
    for own, values in on_ranks(3, f"{HERE}:stream"):
        assert own == plain
        assert_allclose(values, numbers, rtol=1e-9)


def raises(group, X, y, options):
    try:
        made(HMM, **options).fit(X if group.rank == 0 else [], y if group.rank == 0 else [])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def test_errors_of_the_whole_are_raised_on_all_ranks():
    nothing = on_ranks(2, f"{HERE}:raises", [], [], {})
    assert nothing == ["DataError: X has no sentences: training needs at least one."] * 2
    partly = on_ranks(2, f"{HERE}:raises", [["a", "b"]], [["X", None]], {"order": 2})
    assert len(set(partly)) == 1
    assert "order=2 is estimated by counting" in partly[0]
    assert on_ranks(2, f"{HERE}:raises", [["a", "b"]], [["X", "Y"]], {}) == ["nothing"] * 2
