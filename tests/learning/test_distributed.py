"""Groups of processes: what they send each other, and that training in a group ends as in one process."""

import numpy as np
import pytest

from tests.estimators import made
from tests.processes import RankError, on_ranks
from trelliswork import CRF
from trelliswork.compute.sharing import Group
from trelliswork.data import bundled

HERE = "tests.learning.test_distributed"


def messages(group, seed):
    rng = np.random.default_rng((seed, group.rank))
    keys = rng.permutation(40)[: 10 + 5 * group.rank].astype(np.int64)
    parts = [np.full(group.rank + to, 10 * group.rank + to) for to in range(group.size)]
    return {
        "share": group.share(10),
        "sum": group.sum(np.arange(3.0) + group.rank).tolist(),
        "maximum": group.maximum(np.array([group.rank, -group.rank])).tolist(),
        "total": group.total(0.5),
        "gather": group.gather({"rank": group.rank}),
        "arrays": [a.tolist() for a in group.gather_arrays(np.arange(group.rank))],
        "first": group.first(lambda: ["from", group.rank]),
        "first_arrays": group.first_arrays(lambda: {"a": np.ones(2)})["a"].tolist(),
        "exchange": [a.tolist() for a in group.exchange(parts)],
        "own": keys.tolist(),
        "union": group.union(np.sort(keys)).tolist(),
        "count": [a.tolist() for a in group.count(keys, keys + 1, 20)],
        "names": group.count_names({f"w{k}": int(k) for k in keys}, 3),
    }


@pytest.mark.programs
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_messages(size):
    results = on_ranks(size, f"{HERE}:messages", 7)
    own = [r.pop("own") for r in results]
    for rank, result in enumerate(results):
        assert result.pop("exchange") == [[10 * r + rank] * (r + rank) for r in range(size)]
        assert result.pop("share") == [rank * 10 // size, (rank + 1) * 10 // size]
    assert all(result == results[0] for result in results)
    result = results[0]
    assert result["sum"] == [sum(k + r for r in range(size)) for k in range(3)]
    assert result["maximum"] == [size - 1, 0]
    assert result["total"] == size / 2
    assert result["gather"] == [{"rank": r} for r in range(size)]
    assert result["arrays"] == [list(range(r)) for r in range(size)]
    assert result["first"] == ["from", 0]
    assert result["first_arrays"] == [1, 1]
    together = list(dict.fromkeys(k for keys in own for k in keys))
    assert result["union"] == sorted(together)
    totals = {k: sum((k + 1) * (k in keys) for keys in own) for k in together}
    frequent = {k: n for k, n in totals.items() if n >= 20}
    assert result["count"] == [list(frequent), list(frequent.values())]
    names = {f"w{k}": sum(k * (k in keys) for keys in own) for k in together}
    assert list(result["names"].items()) == [(name, n) for name, n in names.items() if n >= 3]


def test_one_process_is_a_group_of_one():
    group, keys = Group(), np.array([5, 2, 9])
    assert group.count(keys, np.array([1, 3, 2]), 2)[0].tolist() == [2, 9]
    assert group.count_names({"a": 1, "b": 2}, 2) == {"b": 2}
    assert group.share(10) == (0, 10)


def fails(group, where):
    if group.rank == where:
        raise ValueError("nothing to be done")
    group.barrier()


def of_other_types(group):
    group.sum(np.zeros(3, int if group.rank else float))


@pytest.mark.slow  # ends the group
def test_messages_of_different_types_are_refused():
    with pytest.raises(RankError, match="same kind of message"):
        on_ranks(2, f"{HERE}:of_other_types")


@pytest.mark.slow  # ends the group
def test_a_failing_rank_ends_the_group():
    with pytest.raises(RankError, match=r"nothing to be done|rank 1 of 2"):
        on_ranks(2, f"{HERE}:fails", 1)
    assert on_ranks(2, f"{HERE}:messages", 1)[0]["total"] == 1.0


def train(group, n, options):
    sentences = bundled.load("train")[:n]
    start, stop = group.share(n)
    own = sentences[start:stop]
    crf = made(CRF, **options).fit([list(s.words) for s in own], [list(s.tags) for s in own])
    dev = bundled.load("test")[:50]
    predicted = crf.predict([list(s.words) for s in dev])
    return [crf.report_.value, predicted, float(crf._learned.weights.sum()), crf.report_.details.get("processes")]


@pytest.mark.programs
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_training_in_a_group_ends_as_in_one_process(size):
    options = {"tol": 1e-9, "l2": 0.5, "min_count": 2}
    alone = train(Group(), 40, options)
    together = on_ranks(size, f"{HERE}:train", 40, options)
    again = on_ranks(size, f"{HERE}:train", 40, options)
    for rank in range(size):
        assert together[rank][0] == pytest.approx(alone[0], rel=1e-6)
        assert together[rank][1] == alone[1]
        assert together[rank][:3] == again[rank][:3]  # bit for bit
        usage = together[rank][3][rank]
        assert min(usage["bytes_sent"], usage["computation"]) > 0
