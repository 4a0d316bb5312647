"""Counting of n-grams with sorted runs: the same tables with any memory limit, threads and number of processes."""

import mmap

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.processes import on_ranks
from trelliswork.compute import threads
from trelliswork.compute.sharing import Group
from trelliswork.data import ids as ids_module
from trelliswork.data import spooled
from trelliswork.data.ids import read_ids, stream_ids
from trelliswork.data.moments import runs as runs_module
from trelliswork.models import KneserNey, load
from trelliswork.models.baselines import compact, ngrams
from trelliswork.models.baselines.ngrams import NgramTable, count_ngrams, positions_in_sentence

HERE = "tests.models.baselines.test_kneser_ney_out_of_core"


def reference(text, order):
    """Return the tables, counted order by order with the whole text in memory."""
    edged, C = text.with_edges(), len(text.vocabulary)
    flat, depth = edged.ids, positions_in_sentence(len(edged.ids), edged.offsets)
    tables = [NgramTable(np.arange(C), np.bincount(flat[depth > 0], minlength=C))]
    starts, ids = np.zeros(C, bool), flat.copy()
    for m in range(2, order + 1):
        where = np.flatnonzero(depth >= m - 1)
        found = np.unique(ids[where - 1] * C + flat[where], return_index=True, return_inverse=True, return_counts=True)
        keys, first, inverse, counts = found
        first = where[first]
        lower = tables[-1]
        different = np.bincount(ids[first], minlength=len(lower.keys))
        lower.counts = np.where(starts, lower.counts, different)
        tables.append(NgramTable(keys, counts))
        starts = depth[first] == m - 1
        ids = np.full(len(flat), -1)
        ids[where] = inverse
    return tables


def sentences(n=300, seed=0, n_words=40):
    rng = np.random.default_rng(seed)
    return [[f"w{min(int(z), n_words)}" for z in rng.zipf(1.3, rng.integers(1, 12))] for _ in range(n)]


def tables_of(source, order, limit):
    text = stream_ids(source, memory_limit=limit)
    return count_ngrams(text.blocks, order, len(text.vocabulary), limit)


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert_array_equal(a.keys, b.keys)
        assert_array_equal(a.counts, b.counts)


@pytest.mark.parametrize(("order", "n_words"), [(1, 5), (2, 40), (3, 40), (5, 300), (9, 3)])
def test_tables_equal_the_reference_with_any_memory(order, n_words, monkeypatch):
    text = sentences(n_words=n_words)
    expected = reference(read_ids(text), order)
    assert_same(tables_of(text, order, 1 << 30), expected)
    monkeypatch.setattr(ids_module, "TOKENS", 50)
    monkeypatch.setattr(runs_module, "_SLICE", 37)
    monkeypatch.setattr(runs_module, "FAN_IN", 3)
    monkeypatch.setattr(ngrams, "_ROOM", 53)
    spills = []
    spill = runs_module.Runs.spill
    monkeypatch.setattr(runs_module.Runs, "spill", lambda self: (spills.append(self), spill(self)))
    with threads.num_threads(3):
        assert_same(tables_of(text, order, 4000), expected)
    assert len(spills) > 5


def test_many_words_and_orders_need_several_words_per_record():
    """With 22 bits per word two fit into an integer: a record of order 4 has three."""
    C = (1 << 22) - 1
    rng = np.random.default_rng(0)
    ids = rng.choice([1, 2, C // 2, C - 1], 200).astype(np.int32)
    ids[::7] = ids[-1] = -1
    ids = ids[1:]
    few = np.searchsorted([1, 2, C // 2, C - 1], ids).astype(np.int32)
    few = np.where(ids < 0, -1, few + 1).astype(np.int32)
    large, small = (count_ngrams(iter([stream]), 4, n, 1 << 20) for stream, n in ((ids, C), (few, 5)))
    for a, b in zip(large[1:], small[1:], strict=True):
        assert_array_equal(a.counts, b.counts)
    assert_array_equal(large[0].counts[[0, 1, 2, C // 2, C - 1]], small[0].counts)


def test_large_tables_are_mapped_saved_and_scored(tmp_path, monkeypatch):
    text = sentences()
    expected = KneserNey(3).fit(text)
    released = []
    monkeypatch.setattr(spooled.Column, "__init__", _tiny(spooled.Column.__init__))
    monkeypatch.setattr(compact, "room", lambda n, dtype, limit: spooled.room(n, dtype, 100))
    monkeypatch.setattr("trelliswork.data.storage.PIECE", 1000)
    release = spooled.release
    monkeypatch.setattr("trelliswork.data.storage.release", lambda a: (released.append(a), release(a)))
    model = KneserNey(3, options={"memory": 1}).fit(text)
    base = model._tables.levels[1].nodes
    while not isinstance(base, mmap.mmap) and base is not None:
        base = base.obj if isinstance(base, memoryview) else base.base
    assert isinstance(base, mmap.mmap)
    model.save(tmp_path / "m")
    assert released
    for found, other in zip(model._tables.levels, expected._tables.levels, strict=True):
        for one, two in zip(found, other, strict=True):
            assert_array_equal(one, two)
    new = sentences(20, seed=1)
    for other in (model, load(tmp_path / "m")):
        assert_array_equal(other.log_prob(new), expected.log_prob(new))
        assert other.n_ngrams() == expected.n_ngrams()


def _tiny(init):
    return lambda self, limit: init(self, 100)


def train(group, n, order, limit, rest):
    """Count the sentences of this rank; ``rest`` ranks at the end have none."""
    text = sentences(n)
    busy = max(1, group.size - rest)
    low, high = (min(k, busy) * n // busy for k in (group.rank, group.rank + 1))
    tables = tables_of(text[low:high], order, limit)
    return [[t.keys.tolist(), t.counts.tolist()] for t in tables]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("n", "limit", "rest"), [(200, 1 << 30, 0), (200, 4000, 1), (1, 1 << 20, 0)])
def test_processes_count_like_one(size, n, limit, rest):
    expected = train(Group(), n, 4, 1 << 30, 0)
    for result in on_ranks(size, f"{HERE}:train", n, 4, limit, rest):
        assert result == expected
