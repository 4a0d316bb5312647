"""The experiment on few labeled sentences, on generated text."""

import gzip

import pytest

from experiments.chain_tagging import KINDS, raw_text, representations
from trelliswork.data import bundled
from trelliswork.data.writers import write_conllu, write_text


@pytest.fixture
def data(tmp_path):
    for folder in ("ud-en-ewt", "wikitext-2", "ptb-lm", "raw-text"):
        (tmp_path / folder).mkdir()
    for part in ("train", "test"):
        with (tmp_path / "ud-en-ewt" / f"en_ewt-ud-{part}.conllu").open("w") as file:
            write_conllu(bundled.load(part)[:60], file)
    for name in ("wikitext-2/wiki.train.tokens", "ptb-lm/ptb.train.txt"):
        with (tmp_path / name).open("w") as file:
            write_text(bundled.load("train")[:100], file)
    (tmp_path / "raw-text" / "a.txt.gz").write_bytes(gzip.compress(b"The dog barks. It's old.\n"))
    return tmp_path


def test_every_kind_of_features_is_measured(data):
    table = representations(data, sizes=(20, 40), n_clusters=8, n_words=100, n_dims=4, max_iter=10)
    assert [row[:2] for row in table.rows] == [[n, kind] for n in (20, 40) for kind in KINDS]
    assert all(0 < row[2] <= 100 for row in table.rows)
    assert [len(curve.x) for curve in table.curves] == [2] * len(KINDS)


def test_raw_text_is_tokenized_and_limited(data):
    sentences = list(raw_text(data))
    assert [list(s) for s in sentences[-2:]] == [["The", "dog", "barks", "."], ["It", "'s", "old", "."]]
    assert len(list(raw_text(data, 10))) == 7
