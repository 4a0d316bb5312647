"""Moments that several processes count together: equal to those of one."""

import numpy as np
import pytest

from tests.processes import RankError, on_ranks
from trelliswork.compute import sharing
from trelliswork.compute.sharing import Group
from trelliswork.data.moments import count_moments
from trelliswork.data.reading.shares import shares

HERE = "tests.data.test_moments_distributed"
pytestmark = pytest.mark.slow  # a group for each number of ranks


def sentences(n):
    rng = np.random.default_rng(0)
    return [[f"w{min(int(z), 60)}" for z in rng.zipf(1.3, rng.integers(1, 12))] for _ in range(n)]


def plain(moments):
    pairs = [[m.data.tolist(), m.indices.tolist(), m.indptr.tolist()] for m in moments.pairs]
    return [moments.vocabulary.items, moments.unary.tolist(), moments.lengths.tolist(), pairs]


def count(group, n, rest, limit):
    """Count the sentences of this rank; ``rest`` ranks at the end have none."""
    busy = max(1, group.size - rest)
    low, high = (min(k, busy) * n // busy for k in (group.rank, group.rank + 1))
    moments = count_moments(sentences(n)[low:high], 3, min_count=2, memory_limit=limit)
    other = count_moments(sentences(n)[low:high], 1, vocabulary=moments.vocabulary)
    return plain(moments), plain(other)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("n", "rest", "limit"), [(300, 0, 1 << 30), (300, 1, 4000), (1, 0, 1 << 20)])
def test_processes_count_like_one(size, n, rest, limit):
    expected = list(count(Group(), n, 0, 1 << 30))
    for result in on_ranks(size, f"{HERE}:count", n, rest, limit):
        assert result == expected


def count_file(group, path):
    return plain(count_moments(shares([path], group.rank, group.size, blank_lines=False), 2))


def test_shares_of_a_file(tmp_path):
    path = tmp_path / "text"
    path.write_text("\n".join(" ".join(s) for s in sentences(100)) + "\n")
    expected = plain(count_moments(path, 2))
    assert on_ranks(2, f"{HERE}:count_file", str(path)) == [expected] * 2


def concatenate(group, sizes):
    """Concatenate arrays in pieces of three items."""
    before, sharing.PIECE = sharing.PIECE, 3
    try:
        return group.concatenated(10 * group.rank + np.arange(sizes[group.rank])).tolist()
    finally:
        sharing.PIECE = before


def test_long_arrays_are_sent_in_pieces():
    sizes = [7, 0, 4]
    expected = [10 * rank + k for rank, n in enumerate(sizes) for k in range(n)]
    assert on_ranks(3, f"{HERE}:concatenate", sizes) == [expected] * 3


def count_nothing(group):
    return plain(count_moments([], 2))


def test_no_sentence_on_any_rank():
    with pytest.raises(RankError, match="at least one sentence"):
        on_ranks(2, f"{HERE}:count_nothing")
