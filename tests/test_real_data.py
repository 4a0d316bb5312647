"""Chains on real text: part-of-speech tags of CoNLL-2000 and of UD English EWT."""

from pathlib import Path

import numpy as np
import pytest

from trelliswork import HMM, LinearChain, read_conllu
from trelliswork.data.vocabulary import Vocabulary, word_shape
from trelliswork.models.hmm.counting import count_chain


def read(path: Path) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return words and tags of the sentences of a column file."""
    sentences = [block.split("\n") for block in path.read_text(encoding="utf-8").strip().split("\n\n")]
    rows = [[line.split() for line in sentence] for sentence in sentences]
    return [tuple(r[0] for r in s) for s in rows], [tuple(r[1] for r in s) for s in rows]


def posterior(tagger, words: Vocabulary, sentences: list[tuple[str, ...]]) -> LinearChain:
    """Return a chain over the tags of each sentence: emissions are unary scores, transitions pairwise ones."""
    lengths = [len(s) for s in sentences]
    log_unary = np.zeros((len(sentences), max(lengths), len(tagger.log_start)))
    for b, sentence in enumerate(sentences):
        log_unary[b, : len(sentence)] = tagger.log_emission[:, words.ids(sentence)].T
    return LinearChain(
        log_unary, tagger.log_transition, log_start=tagger.log_start, log_end=tagger.log_end, lengths=lengths
    )


@pytest.fixture(scope="module")
def tagged(data_dir):
    return read(data_dir / "conll2000" / "train.txt"), read(data_dir / "conll2000" / "test.txt")


def test_count_chain_on_conll2000(tagged):
    (train_words, train_tags), (test_words, test_tags) = tagged
    tags = Vocabulary.from_sequences(train_tags)
    words = Vocabulary.from_sequences(train_words, min_count=2, unknown=word_shape)
    tagger = count_chain([tags.ids(y) for y in train_tags], [words.ids(x) for x in train_words], len(tags), len(words))
    chain = posterior(tagger, words, test_words)
    best = chain.mode
    marginals = chain.marginals().numpy()
    hits, confidences = [], []
    for b, (found, gold) in enumerate(zip(best.tolist(), test_tags, strict=True)):
        for t, tag in enumerate(gold):
            hits.append(tags[found[t]] == tag if tag in tags else False)
            confidences.append(float(marginals[b, t, found[t]]))
    assert len(hits) == 47_377
    assert np.mean(hits) > 0.95
    sure = np.array(confidences) > 0.99
    assert np.mean(np.array(hits)[sure]) > 0.98  # confident predictions are more accurate
    assert np.mean(np.array(hits)[~sure]) < 0.9
    assert (chain.log_prob(best) <= 0).all()
    assert (chain.entropy() >= -1e-9).all()


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
