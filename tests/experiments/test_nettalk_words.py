"""The NetTalk dictionary: reading, errors, the split by spelling, and the full file."""

import pytest

from experiments.nettalk_words import read_nettalk, split_words
from trelliswork.errors import DataError

GOOD = "The license\n\nof it\n\naback\txb@k-\t0>1<<\t0\nabbe\t@-be\t0<>1\t2\n"


def test_letters_phonemes_and_stress(tmp_path):
    path = tmp_path / "nettalk.data"
    path.write_text(GOOD)
    assert read_nettalk(path) == ([list("aback"), list("abbe")], [list("xb@k-"), list("@-be")])
    assert read_nettalk(path, stress=True)[1][1] == ["@0", "-<", "b>", "e1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "abc\tab\t0>1\t0\n", ":7: expected one phoneme per letter, got 3 letters and 2 phonemes"),
        (GOOD + "abc abc\n", ":7: expected word, phonemes"),
        ("nothing here\n", "records"),
    ],
)
def test_broken_files(tmp_path, text, message):
    path = tmp_path / "nettalk.data"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_nettalk(path)


def test_split_keeps_records_of_a_word_together():
    letters = [list(f"w{n // 2}") for n in range(40)]
    labels = [["x"] * len(w) for w in letters]
    (train, _), (test, _) = split_words(letters, labels, n_test=5, seed=1)
    assert not {"".join(w) for w in train} & {"".join(w) for w in test}
    assert (len(train) + len(test), len(test)) == (40, 6)
    assert split_words(letters, labels, n_test=5, seed=1)[1][0] == test


def test_full_dictionary(data_dir):
    letters, labels = read_nettalk(data_dir / "nettalk" / "nettalk.data")
    assert (len(letters), sum(map(len, letters))) == (20_008, 146_943)
    assert len({p for word in labels for p in word}) == 51
    assert len(read_nettalk(data_dir / "nettalk" / "nettalk.data", stress=True)[0]) == 20_007
    (train, _), (test, _) = split_words(letters, labels)
    assert (len(train), len(test)) in {(20_008 - n, n) for n in range(934, 940)}
