"""Experiments with Markov random fields on tiny data: held-out sentences, curves, missing words."""

import importlib.util

import pytest
from numpy.testing import assert_allclose

from experiments import mrf_neighbors as neighbors
from experiments import mrf_tagging as tagging
from trelliswork.data import bundled
from trelliswork.errors import DataError, ValueRangeError

GENSIM = importlib.util.find_spec("gensim") is not None


@pytest.fixture(scope="module")
def conll(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "conll2000"
    folder.mkdir()
    for part in ("train", "test"):
        rows = ["\n".join(f"{w} {t}" for w, t in zip(s.words, s.tags, strict=True)) for s in bundled.load(part)[:60]]
        (folder / f"{part}.txt").write_text("\n\n".join(rows) + "\n")
    return folder.parent


def test_the_test_part_is_only_evaluated(conll, monkeypatch):
    """Models are trained on nine tenths of the training part; the last tenth chooses the iteration."""
    seen = []
    fit = tagging.MRFTagger.fit
    monkeypatch.setattr(
        tagging.MRFTagger,
        "fit",
        lambda self, X, y, *, dev: (seen.append((X, dev[0])), fit(self, X, y, dev=dev))[1],
    )
    table = tagging.mrf_tagging(conll, datasets=("conll2000",), max_iter=4)
    train = [list(s.words) for s in bundled.load("train")[:60]]
    assert seen == [(train[:54], train[54:])]
    assert [row[1] for row in table.rows] == [
        "HMM, one unknown symbol",
        "HMM, suffix model",
        "MRF, L=1",
        "MRF, L=1, dictionary",
    ]
    assert len(table.figures) == 8
    assert [curve.name.split(", ", 1)[1] for curve in table.curves] == [row[1] for row in table.rows[:3]]
    assert table.curves[2].x == [1, 2, 3, 4]
    assert all(0 < y <= 100 for curve in table.curves for y in curve.y)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptb")
    (folder / "ptb.train.txt").write_text("a b c\nb c a c a\nc rare a b\n" * 4 + "once\n")
    (folder / "ptb.valid.txt").write_text("a b\nc a b\n")
    return folder


def test_unknown_words_are_an_error_before_training(text, monkeypatch):
    monkeypatch.setattr(neighbors, "fit", None)
    with pytest.raises(ValueRangeError, match="zebra not in the text"):
        neighbors.mrf_neighbors(text, words=("a", "zebra"))


def test_neighbors_by_all_models(text):
    options = {"n": 2, "rank": 2, "max_words": 3, "minutes": 0.0}
    table = neighbors.mrf_neighbors(text, words=("a", "once"), **options)
    assert [row[0] for row in table.rows] == ["a", "once"]
    assert len(table.rows[0][1].split()) == len(table.rows[0][2].split()) == 2
    assert table.rows[1][1:3] == ["", ""]  # not one of the three words
    notes = [figure.note for figure in table.figures]
    assert notes.count("not in the vocabulary of the model") == 2
    assert notes.count("gensim is not installed") == (0 if GENSIM else 2)
    assert any(note.startswith("MRF lifted: 1 iterations in") for note in table.notes)
    assert [curve.name for curve in table.curves][:1] == ["MRF lifted, MRF pseudo-likelihood"]
    assert len(table.curves) == (3 if GENSIM else 1)
    assert table.curves[0].x == [1, 2, 3]  # <unk> is one of the four words
    assert table.curves[0].y[-1] == 100
    assert all(len(curve.x) == len(curve.y) for curve in table.curves)


def test_ratings_of_word_pairs(tmp_path):
    (tmp_path / "ptb-lm").mkdir()
    (tmp_path / "ptb-lm" / "ptb.train.txt").write_text("The cat saw a dog\nthe dog saw a cat\n" * 5 + "once\n")
    with pytest.raises(DataError, match="expected ratings"):
        neighbors.mrf_neighbors(tmp_path / "ptb-lm", parts=("similarity",))
    (tmp_path / "word-similarity").mkdir()
    ratings = tmp_path / "word-similarity" / "animals.txt"
    ratings.write_text("Cat\tdog\t9.0\r\n\r\ncat saw 1\ndog saw 2\ncat zebra 5\n")
    assert neighbors.read_ratings(ratings)[0] == ("cat", "dog", 9.0)
    table = neighbors.word_similarities(tmp_path, ranks=(2,), minutes=0.0)
    assert table.columns == ["vectors", "dimensions", "animals", "CPU s"]
    assert [row[0] for row in table.rows] == ["MRF lifted", "MRF spectral", *(["skip-gram"] if GENSIM else [])]
    assert all("(3 of 4)" in row[2] for row in table.rows)
    assert [figure.ours for figure in table.figures] == [
        pytest.approx(float(row[2][:5]), abs=1e-3) for row in table.rows
    ]
    assert GENSIM or "gensim is not installed" in table.notes[-1]
    ratings.write_text("cat dog\n")
    with pytest.raises(DataError, match=r"animals.txt:1: expected two words and a number, got 'cat dog'"):
        neighbors.word_similarities(tmp_path)


def test_agreement_of_neighbors():
    lists = {"x": "bcd", "y": "cbe", "z": ""}
    models = {name: lambda word, n, other=other: [(o, 1.0) for o in other[:n]] for name, other in lists.items()}
    xy, xz, _ = neighbors._agreement(models, ["a"])
    assert (xy.name, xy.x, xz.x) == ("x, y", [1, 2, 3], [])
    assert_allclose(xy.y, [0, 100, 200 / 3])


def test_word2vec_by_gensim():
    pytest.importorskip("gensim")
    near = neighbors._word2vec([["a", "b", "c"], ["c", "b"]] * 5)
    assert [word for word, _ in near("a", 2)] in (["b", "c"], ["c", "b"])
