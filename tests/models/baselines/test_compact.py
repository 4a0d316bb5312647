"""Compact tables of n-grams: damaged files, searches, and orders with many words."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from trelliswork.data.storage import load_model, save_model
from trelliswork.errors import DataError
from trelliswork.models import KneserNey, load
from trelliswork.models.baselines import compact


def sentences(n=200, seed=0, n_words=60):
    rng = np.random.default_rng(seed)
    return [[f"w{min(int(z), n_words)}" for z in rng.zipf(1.3, rng.integers(1, 12))] for _ in range(n)]


NEW = [*sentences(30, seed=1), [], ["w1"] * 30]


@pytest.mark.parametrize("mapped", [False, True])
def test_a_loaded_model_has_the_same_scores(tmp_path, mapped):
    model = KneserNey(5).fit(sentences())
    model.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m", mapped=mapped).log_prob(NEW), model.log_prob(NEW))


@pytest.mark.parametrize(
    ("order", "name", "index", "value"),
    [
        (2, "words", 0, 60_000),
        (2, "words", 1, 0),
        (1, "nodes", 3, 2**63),
        (2, "nodes", -1, 0),
        (2, "nodes", 2, 2**64 - 1),
        (3, "nodes", 4, 60_000),
        (2, "share", 0, np.nan),
        (1, "rest", 0, np.inf),
        (1, "share", 0, -1.0),
    ],
)
def test_damaged_tables_are_refused(tmp_path, order, name, index, value):
    """Not by checksums alone: no query reads beyond an array, whatever a file says."""
    KneserNey(3).fit(sentences()).save(tmp_path / "m")
    plain, arrays = load_model(tmp_path / "m")
    arrays = {key: array.copy() for key, array in arrays.items()}
    sizes, numbers = plain["tables"]["sizes"], plain["tables"]["numbers"]
    store = compact.Store(*(arrays[key] for key in compact._ARRAYS), compact._orders(sizes, numbers))
    getattr(compact._levels(store, sizes)[order - 1], name)[index] = value
    del plain["checksum"], plain["files"]
    save_model(tmp_path / "m", KneserNey.kind, plain, arrays)
    with pytest.raises(DataError, match=r"damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize("name", ["words", "nodes", "codes", "values"])
def test_tables_of_other_lengths_are_refused(tmp_path, name):
    KneserNey(3).fit(sentences()).save(tmp_path / "m")
    plain, arrays = load_model(tmp_path / "m")
    del plain["checksum"], plain["files"]
    save_model(tmp_path / "m", KneserNey.kind, plain, arrays | {name: arrays[name][:-1].copy()})
    with pytest.raises(DataError, match=r"damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize("key", ["stride", "numbers", "sizes", "n_words"])
def test_incomplete_tables_are_refused(tmp_path, key):
    KneserNey(3).fit(sentences()).save(tmp_path / "m")
    plain, arrays = load_model(tmp_path / "m")
    del plain["checksum"], plain["files"], plain["tables"][key]
    save_model(tmp_path / "m", KneserNey.kind, plain, arrays)
    with pytest.raises(DataError, match="incomplete"):
        load(tmp_path / "m")


def test_numbers_without_codes_and_wide_words(monkeypatch):
    """Orders whose codes do not fit into a node list their numbers; many words take 4 bytes each."""
    expected = KneserNey(4).fit(sentences()).log_prob(NEW)
    monkeypatch.setattr(compact, "_bits", lambda n: 33)
    monkeypatch.setattr(compact, "_width", lambda C: np.uint32)
    model = KneserNey(4).fit(sentences())
    assert [level.rest_bits for level in model._tables.levels] == [33, 0, 0, 0]
    assert_allclose(model.log_prob(NEW), expected, rtol=1e-12)


def test_a_full_codebook_grows(monkeypatch):
    expected = KneserNey(4).fit(sentences()).log_prob(NEW)
    monkeypatch.setattr(compact, "_CODES", 2)
    monkeypatch.setattr(compact, "_PART", 7)
    assert_array_equal(KneserNey(4).fit(sentences()).log_prob(NEW), expected)


@pytest.mark.parametrize("C", [1, 2, 3, 7, 100, 65_536])
def test_the_stride_numbers_all_words(C):
    assert len(set((np.arange(C) * compact.even_stride(C) % C).tolist())) == C
