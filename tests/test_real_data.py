"""Taggers on real text: part-of-speech tags of CoNLL-2000 and of UD English EWT."""

from pathlib import Path

import numpy as np
import pytest

from trelliswork import HMM, read_conllu


def read(path: Path) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return words and tags of the sentences of a column file."""
    sentences = [block.split("\n") for block in path.read_text(encoding="utf-8").strip().split("\n\n")]
    rows = [[line.split() for line in sentence] for sentence in sentences]
    return [tuple(r[0] for r in s) for s in rows], [tuple(r[1] for r in s) for s in rows]


@pytest.fixture(scope="module")
def tagged(data_dir):
    return read(data_dir / "conll2000" / "train.txt"), read(data_dir / "conll2000" / "test.txt")


def accuracies(model, words, tags):
    """Return the accuracies on all tokens, and on those whose word is not in the training data."""
    known = model.known_words()
    rows = [
        (word in known, a == b)
        for x, p, y in zip(words, model.predict(words), tags, strict=True)
        for word, a, b in zip(x, p, y, strict=True)
    ]
    return np.mean([right for _, right in rows]), np.mean([right for seen, right in rows if not seen])


def test_hidden_markov_taggers_on_conll2000(tagged):
    """The public first-order tagger with a suffix model has 96.96 and 82.37 percent."""
    (train_words, train_tags), test = tagged
    for order, total, unseen in ((1, 0.9715, 0.848), (2, 0.9755, 0.866)):
        on_all, on_unseen = accuracies(HMM(order=order).fit(train_words, train_tags), *test)
        assert on_all > total
        assert on_unseen > unseen


def test_hidden_markov_taggers_on_ewt(data_dir):
    """NLTK's TnT with its best helper for unknown words has 92.7 and 68.6 percent."""
    train, test = (
        read_conllu(data_dir / "ud-en-ewt" / f"en_ewt-ud-{part}.conllu", columns=("form", "xpos"))
        for part in ("train", "test")
    )
    model = HMM(order=2).fit(train.sentences(0), train.sentences(1))
    total, unseen = accuracies(model, test.sentences(0), test.sentences(1))
    assert total > 0.935
    assert unseen > 0.75
