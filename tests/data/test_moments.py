"""Moments against counting by hand, for any number of threads, blocks and files."""

import gzip
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trelliswork.compute import threads
from trelliswork.data import Corpus, Vocabulary, storage
from trelliswork.data import ids as ids_module
from trelliswork.data import moments as moments_module
from trelliswork.data.moments import Moments, count_moments
from trelliswork.data.moments import runs as runs_module
from trelliswork.errors import DataError, ValueRangeError

sentences = st.lists(st.lists(st.sampled_from("abcdé"), min_size=1, max_size=6), min_size=1, max_size=12)


def by_hand(text: list[list[str]], K: int) -> tuple[Counter, list[Counter]]:
    """Count words and pairs of the circle of all sentences, with K pads before each."""
    ring = [word for sentence in text for word in ["<s>"] * K + list(sentence)]
    pairs = [Counter((ring[i], ring[(i + k) % len(ring)]) for i in range(len(ring))) for k in range(1, K + 1)]
    return Counter(ring), pairs


def as_counters(moments: Moments) -> tuple[Counter, list[Counter]]:
    words = moments.vocabulary
    unary = Counter({word: int(n) for word, n in zip(words, moments.unary, strict=True) if n})
    pairs = []
    for matrix in moments.pairs:
        coo = matrix.tocoo()
        assert len({*zip(coo.row, coo.col, strict=True)}) == coo.nnz
        pairs.append(Counter({(words[x], words[y]): int(n) for x, y, n in zip(coo.row, coo.col, coo.data)}))  # noqa: B905
    return unary, pairs


def same(a: Moments, b: Moments) -> bool:
    parts = [("data", "indices", "indptr")] * a.K
    return (
        a.vocabulary.items == b.vocabulary.items
        and np.array_equal(a.unary, b.unary)
        and np.array_equal(a.lengths, b.lengths)
        and all(
            np.array_equal(getattr(x, name), getattr(y, name))
            for x, y, names in zip(a.pairs, b.pairs, parts, strict=True)
            for name in names
        )
    )


@given(sentences, st.integers(1, 4))
def test_counts_equal_counting_by_hand(text, K):
    if len(text) * K + sum(map(len, text)) <= K:
        return
    moments = count_moments(text, K)
    assert as_counters(moments) == by_hand(text, K)
    assert moments.vocabulary[0] == "<s>"
    assert moments.n_tokens == sum(map(len, text))
    assert moments.n_sentences == len(text)
    assert moments.n_positions == moments.unary.sum() == moments.n_tokens + K * len(text)
    for matrix in moments.pairs:
        assert np.array_equal(np.asarray(matrix.sum(axis=0)).ravel(), moments.unary)
        assert np.array_equal(np.asarray(matrix.sum(axis=1)).ravel(), moments.unary)


@pytest.fixture
def text() -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [[f"w{min(int(z), 60)}" for z in rng.zipf(1.3, rng.integers(1, 12))] for _ in range(400)]


@pytest.fixture
def files(text, tmp_path):
    lines = [" ".join(sentence) for sentence in text]
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "a.txt").write_text("\n".join(lines[:150]) + "\n\n  \n", encoding="utf-8")
    (tmp_path / "shards" / "b.gz").write_bytes(gzip.compress("\r\n".join(lines[150:]).encode()))
    (tmp_path / "shards" / ".hidden").write_text("no word of this\n")
    (tmp_path / "all.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_files_shards_sentences_and_corpora_are_counted_alike(text, files):
    expected = count_moments(text, 2)
    assert as_counters(expected) == by_hand(text, 2)
    shards = files / "shards"
    for source in (files / "all.txt", shards, [shards / "a.txt", shards / "b.gz"], Corpus.from_sentences(text)):
        assert same(count_moments(source, 2), expected)
    assert same(count_moments(iter(text), 2), expected)


def test_counts_do_not_depend_on_threads_blocks_or_spilling(text, files, monkeypatch):
    expected = count_moments(files / "all.txt", 3, min_count=2)
    monkeypatch.setattr(ids_module, "BLOCK", 100)
    monkeypatch.setattr(ids_module, "TOKENS", 50)
    monkeypatch.setattr(runs_module, "_SLICE", 101)
    monkeypatch.setattr(runs_module, "FAN_IN", 3)
    spills = []
    spill = runs_module.Runs.spill
    monkeypatch.setattr(runs_module.Runs, "spill", lambda self: (spills.append(self), spill(self)))
    for n in (1, 3):
        with threads.num_threads(n):
            for limit in (1 << 30, 4000):
                assert same(count_moments(files / "all.txt", 3, min_count=2, memory_limit=limit), expected)
                assert same(count_moments(text, 3, min_count=2, memory_limit=limit), expected)
    assert len(spills) > 10


def test_memory_is_bounded_by_the_limit_and_the_result(tmp_path):
    rng, limit = np.random.default_rng(0), 1 << 20
    lines = [" ".join(f"w{z}" for z in rng.integers(0, 400, 20)) for _ in range(2500)]
    (tmp_path / "text").write_text("\n".join(lines))
    text = tmp_path / "text"
    expected, peaks = count_moments([text] * 3, 2), []  # loads the kernels
    for files in ([text], [text] * 3):
        tracemalloc.start()
        moments = count_moments(files, 2, memory_limit=limit)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 12 * moments.n_pairs + 1.75 * limit  # however long the text is
    assert same(moments, expected)


def test_words_left_out_are_unknown():
    text = [["a", "b", "a", "c"], ["a", "b", "d"]]
    moments = count_moments(text, 1, min_count=2)
    assert moments.vocabulary.items == ["<s>", "a", "b", "<unk>"]
    assert moments.unary.tolist() == [2, 3, 2, 2]
    assert moments.vocabulary.id("new") == 3
    assert count_moments(text, 1, max_words=1).vocabulary.items == ["<s>", "a", "<unk>"]
    listed = count_moments([*text, ["<unk>"]], 1, max_words=1)
    assert dict(zip(listed.vocabulary, listed.unary, strict=True)) == {"<s>": 3, "a": 3, "<unk>": 5}


def test_given_vocabulary(text, tmp_path):
    train, rest = text[:300], [*text[300:], ["never", "seen"]]
    moments = count_moments(train, 2, min_count=3)
    dev = count_moments(rest, 2, vocabulary=moments.vocabulary)
    assert dev.vocabulary is moments.vocabulary
    stand_ins = [[w if w in moments.vocabulary else "<unk>" for w in s] for s in rest]
    assert as_counters(dev) == by_hand(stand_ins, 2)
    whole = moments.merged(dev)
    everything = [[w if w in moments.vocabulary else "<unk>" for w in s] for s in [*train, *rest]]
    assert same(whole, count_moments(everything, 2, vocabulary=moments.vocabulary))
    closed = count_moments([["a"]], 1)
    with pytest.raises(DataError, match="sentence 0, token 1: 'b' is not in the vocabulary"):
        count_moments([["a", "b"]], 1, vocabulary=closed.vocabulary)
    with pytest.raises(ValueRangeError, match="<s> first"):
        count_moments([["a", "b"]], 1, vocabulary=Vocabulary(["a", "b"]))
    with pytest.raises(ValueRangeError, match="same vocabulary"):
        closed.merged(count_moments([["b"]], 1))
    with pytest.raises(ValueRangeError, match="same K"):
        closed.merged(count_moments([["a"]], 2))


def test_load_is_the_inverse_of_save(text, tmp_path):
    moments = count_moments(text, 2, min_count=2)
    moments.save(tmp_path / "m")
    moments.save(tmp_path / "m")  # over itself
    loaded = Moments.load(tmp_path / "m")
    assert same(loaded, moments)
    description = tmp_path / "m" / "moments.json"
    description.write_text(description.read_text() + " ")
    with pytest.raises(DataError, match="checksum"):
        Moments.load(tmp_path / "m")
    assert same(Moments.load(tmp_path / "m", verify=False), moments)
    assert loaded.vocabulary.id("new") == moments.vocabulary.id("<unk>")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(DataError, match="not moments"):
        moments.save(tmp_path / "other")
    with pytest.raises(DataError, match="not moments"):
        Moments.load(tmp_path / "other")
    (arrays,) = (tmp_path / "m").glob("moments-*.safetensors")
    arrays.write_bytes(arrays.read_bytes()[:-9])
    for verify in (True, False):
        with pytest.raises(DataError, match="count again"):
            Moments.load(tmp_path / "m", verify=verify)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rows", [0, 3, 9, 0]),  # with a last row of 0, SciPy checks nothing
        ("rows", [0, 5, 3, 7]),
        ("rows", [0, 3, 7]),
        ("right", [0, 1, 2, 0, 2, 0, 9]),
        ("right", [0, 1, 2, 0, 2, 0, -1]),
        ("counts", [2.0, 1, 1, 1, 1, 1, np.inf]),
        ("counts", [2.0, 1, 1, 1, 1, 1, -1]),
    ],
)
def test_damaged_matrices_are_refused(name, values, tmp_path, monkeypatch):
    count_moments([["a", "b", "a"], ["b"]], 2).save(tmp_path / "m")
    description, arrays = storage.load_model(tmp_path / "m", layout=storage.MOMENTS)
    assert len(arrays["pairs.1.counts"]) == 7
    arrays[f"pairs.1.{name}"] = np.array(values, arrays[f"pairs.1.{name}"].dtype)
    monkeypatch.setattr(moments_module, "load_model", lambda *_, **__: (description, arrays))
    with pytest.raises(DataError, match="not a matrix of counts"):
        Moments.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b\n<s> c\n", r"bad.txt:2: <s> marks"),
        (b"a b\n\nc \xff\xfe\n", r"bad.txt:3: expected UTF-8, but byte [13] of the line is 0xff"),
        (b"a b\nc\0d\n", r"bad.txt:2: expected text, got a NUL byte"),
        (b"\n \n", "at least one sentence"),
        (gzip.compress(b"a b\n" * 1000, mtime=0)[:-20], "truncated|damaged"),
    ],
)
def test_damaged_files_raise(content, message, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        count_moments(path, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b\n<s> a\n", r"bad.txt:2: <s> marks"),
        (b"a b\n\na \xff\xfe\n", r"bad.txt:3: expected UTF-8, but byte [13] of the line is 0xff"),
    ],
)
@pytest.mark.parametrize("unknown", [True, False])
def test_damaged_files_raise_with_a_given_vocabulary(content, message, unknown, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    words = count_moments([["a", "b", "a", "b", "c"] if unknown else ["a", "b"]], 1, min_count=1 + unknown).vocabulary
    assert ("<unk>" in words) == unknown
    with pytest.raises(DataError, match=message):
        count_moments(path, 1, vocabulary=words)
    for wrong in ("<s>", "\udc80", 3):
        with pytest.raises(DataError, match="sentence 0, token 1: "):
            count_moments([["a", wrong]], 1, vocabulary=words)


def test_iterators_of_paths(files):
    expected = count_moments(files / "shards", 2)
    assert same(count_moments((path for path in sorted((files / "shards").glob("?.*"))), 2), expected)
    with pytest.raises(ValueRangeError, match="give files as a list"):
        count_moments(iter(["a.txt"]), 1)


def test_invalid_arguments_raise(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        count_moments(tmp_path / "none", 1)
    with pytest.raises(DataError, match="has none"):
        count_moments(tmp_path, 1)
    with pytest.raises(ValueRangeError, match="K must be"):
        count_moments([["a"]], 0)
    with pytest.raises(ValueRangeError, match="positive"):
        count_moments([["a"]], 1, min_count=0)
    with pytest.raises(ValueRangeError, match="split it"):
        count_moments(iter(["a b"]), 1)


def test_progress_is_reported(files):
    steps = []
    count_moments(files / "all.txt", 1, callback=lambda step: steps.append((step.done, step.total, step.n_tokens)))
    size = (files / "all.txt").stat().st_size
    assert steps[-1][:2] == (size, size)
    assert steps[-1][2] > 0
