"""N-gram models in ARPA files: a scorer with dictionaries, files written by hand, and KenLM where it is installed."""

import gzip
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tests.commands import run
from trelliswork.data import bundled
from trelliswork.errors import DataError
from trelliswork.integrations.convert.arpa import read_arpa, read_orders, write_arpa
from trelliswork.models import KneserNey, load

BACK_OFF = """Comments are allowed before the data.

\\data\\
ngram 1=5
ngram 2=4
ngram 3=2

\\1-grams:
-99\t<s>\t-0.4
-0.9\t</s>
-1.5\t<unk>
-0.6\ta\t-0.25
-0.7\tb\t0.1

\\2-grams:
-0.3\t<s> a\t-0.2
-0.5\ta b\t-0.125
-2\tb a
-0.4\tb </s>

\\3-grams:
-0.1\t<s> a b
-3\ta b </s>

\\end\\
"""


def write(path, text=BACK_OFF):
    path.write_text(text, encoding="utf-8")
    return path


def log10(model, sentence):
    return float(model.log_prob([sentence.split()])[0]) / math.log(10)


def reference(path, order):
    """Return log10 p of a sentence by the definition of back-off, from the lines of a file."""
    p, weight = {}, {}
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)  # noqa: PTH123, SIM115
    with opened as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            if len(fields) > 1:
                gram = tuple(fields[1].split(" "))
                p[gram], weight[gram] = float(fields[0]), float(fields[2]) if len(fields) == 3 else 0.0

    def score(history, word):
        if (*history, word) in p:
            return p[*history, word]
        return weight.get(history, 0.0) + score(history[1:], word) if history else p["<unk>",]

    def sentence(words):
        words = ["<s>", *(w if (w,) in p else "<unk>" for w in words), "</s>"]
        return sum(score(tuple(words[max(0, t - order + 1) : t]), words[t]) for t in range(1, len(words)))

    return sentence


def test_a_back_off_model_scores_as_its_file_says(tmp_path):
    model = read_arpa(write(tmp_path / "lm.arpa"))
    assert model.order == 3
    assert model.n_ngrams() == [4, 4, 2]
    assert_allclose(log10(model, "a b"), -0.3 - 0.1 - 3, rtol=1e-12)  # all listed, although below the lower order
    assert_allclose(log10(model, "b"), (-0.4 - 0.7) - 0.4, rtol=1e-12)
    assert_allclose(log10(model, "a b a"), -0.3 - 0.1 + (-0.125 - 2) + (-0.25 - 0.9), rtol=1e-12)
    assert_allclose(log10(model, "zzz"), (-0.4 - 1.5) - 0.9, rtol=1e-12)
    word, p = model.predict_next(["a"], 1)[0]
    assert (word, round(math.log10(p), 6)) == ("b", -0.1)


def test_a_model_from_a_file_is_saved_and_written_as_it_was_read(tmp_path):
    model = read_arpa(write(tmp_path / "lm.arpa"))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    write_arpa(again, tmp_path / "again.arpa.gz")
    third = read_arpa(tmp_path / "again.arpa.gz")
    text = [["a", "b", "a"], ["b"], ["zzz"], []]
    assert_allclose(again.log_prob(text), model.log_prob(text), rtol=0, atol=0)
    assert_allclose(third.log_prob(text), model.log_prob(text), rtol=1e-8)
    assert gzip.decompress((tmp_path / "again.arpa.gz").read_bytes()).startswith(b"\\data\\\n")
    assert "Back-off" in again.describe().title


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=10),
    st.integers(1, 4),
    st.booleans(),
)
def test_written_files_mean_the_same_by_the_definition_of_back_off(tmp_path_factory, text, order, strict):
    path = tmp_path_factory.mktemp("arpa") / ("lm.arpa.gz" if strict else "lm.arpa")
    model = KneserNey(order, unknown="error" if strict else "symbol").fit(text)
    write_arpa(model, path)
    score, again = reference(path, order), read_arpa(path)
    more = [*text, ["d", "a"], ["a"] * 5] if not strict else text
    expected = model.log_prob(more)
    assert_allclose([score(words) * math.log(10) for words in more], expected, rtol=1e-7)
    assert_allclose(again.log_prob(more), expected, rtol=1e-7)
    assert_allclose(again.next_distribution(text[0][:2]), model.next_distribution(text[0][:2]), rtol=1e-7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", "expected the line"),
        ("ngram 2=4", "ngram 2=5", r"lm.arpa:21: expected 5 2-grams, as .data. says, got 4"),
        ("ngram 2=4", "ngram 3=4", r":5: expected ngram 2=NUMBER"),
        ("-0.5\ta b", "-0.5\ta x", "lm.arpa:17: expected words of the 1-grams, got 'x'"),
        ("-0.5\ta b", "-0.5\ta", "expected log10 p, 2 words"),
        ("-0.5\ta b", "0.5\ta b", "log10 of a probability"),
        ("-0.5\ta b", "nan\ta b", "log10 of a probability"),
        ("-0.5\ta b", "p\ta b", "expected numbers"),
        ("-2\tb a", "-2\ta b", "occurs twice"),
        ("-0.7\tb", "-0.7\ta", "occurs twice"),
        ("-0.1\t<s> a b", "-0.1\ta a b", "lm.arpa:22: expected an n-gram whose first 2 words are listed"),
        ("-0.9\t</s>", "-0.9\tc", "expected a 1-gram </s>"),
        ("\\end\\", "", r"expected .end., got 'the end of the file'"),
        ("\\3-grams:", "\\4-grams:", "expected .3-grams:"),
    ],
)
def test_damaged_files_are_errors_that_name_the_line(tmp_path, old, new, message):
    path = write(tmp_path / "lm.arpa", BACK_OFF.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        read_orders(path)


def test_words_that_do_not_fit_and_places_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match="does not fit into an ARPA file"):
        write_arpa(KneserNey(1, unknown="error").fit([["a b", "c"]]), tmp_path / "lm.arpa")
    with pytest.raises(DataError, match="expected a file"):
        write_arpa(KneserNey(1).fit([["a", "c"]]), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def kenlm():
    return pytest.importorskip("kenlm", reason="kenlm is not installed: pip install kenlm")


@pytest.fixture(scope="module")
def texts():
    return [[list(s.words) for s in bundled.load(part)] for part in ("train", "dev")]


@pytest.mark.parametrize(("order", "name"), [(2, "lm.arpa"), (3, "lm.arpa"), (5, "lm.arpa.gz")])
def test_kenlm_scores_our_files_as_we_do(kenlm, texts, tmp_path, order, name):
    train, dev = texts
    model = KneserNey(order, min_count=2).fit(train)
    write_arpa(model, tmp_path / name)
    theirs = kenlm.Model(str(tmp_path / name))
    assert theirs.order == order
    expected = np.array([sum(p for p, _, _ in theirs.full_scores(" ".join(words))) for words in dev])
    assert_allclose(model.log_prob(dev) / math.log(10), expected, rtol=0, atol=1e-5)


def test_we_score_files_as_kenlm_does(kenlm, tmp_path):
    path = write(tmp_path / "lm.arpa", BACK_OFF.partition("\n\n")[2])  # KenLM reads no comments
    theirs, model = kenlm.Model(str(path)), read_arpa(path)
    for words in ("a b", "b a b", "zzz a", "", "a a a b b"):
        assert_allclose(log10(model, words), sum(p for p, _, _ in theirs.full_scores(words)), atol=1e-5)


def test_score_prints_the_perplexity_of_kenlm(kenlm, texts, tmp_path):
    train, dev = texts
    write_arpa(KneserNey(3, min_count=2).fit(train), tmp_path / "lm.arpa")
    (tmp_path / "dev.txt").write_text("".join(" ".join(words) + "\n" for words in dev[:200]))
    assert run("convert", tmp_path / "lm.arpa", "--out", tmp_path / "model").returncode == 0
    done = run("score", tmp_path / "model", tmp_path / "dev.txt")
    theirs = kenlm.Model(str(tmp_path / "lm.arpa"))
    total = sum(theirs.score(" ".join(words)) for words in dev[:200])
    n = sum(len(words) + 1 for words in dev[:200])
    assert f"perplexity {10 ** (-total / n):.2f} per token" in done.stdout  # "including OOVs" of KenLM's query
    scores = [score for words in dev[:200] for score in theirs.full_scores(" ".join(words))]
    known = [p for p, _, unknown in scores if not unknown]
    expected = f"({10 ** (-sum(known) / len(known)):.2f} without {len(scores) - len(known):,} unknown words)"
    assert expected in done.stdout  # "excluding OOVs"
