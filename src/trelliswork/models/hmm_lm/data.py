"""Sentences as arrays for HMM language models: words, sentence ends, and evidence about words."""

import os
from collections.abc import Collection, Sequence

import numpy as np
import torch

from trelliswork.data import Corpus, Vocabulary
from trelliswork.data.vocabulary import UNKNOWN
from trelliswork.errors import ShapeError, ValueRangeError
from trelliswork.inference.lowrank import Open
from trelliswork.models.hmm_lm.network import Tables, log_sums
from trelliswork.models.hmm_lm.objective import Sentences

Evidence = str | Collection[str] | None  # a word, some words, or any word
Text = Corpus | Sequence[Sequence[str]] | os.PathLike[str]


def open_vocabulary(sentences: Sequence[Sequence[Evidence]], min_count: int) -> Vocabulary:
    """Return the vocabulary of words that occur often enough; all others are ``<unk>``."""
    return Vocabulary.from_sequences(sentences, min_count=min_count, unknown=_unknown)  # type: ignore[arg-type]


def restored_vocabulary(words: Sequence[str]) -> Vocabulary:
    """Return the vocabulary of a saved model."""
    return Vocabulary(words, unknown=_unknown)


def _unknown(word: str) -> str:
    return UNKNOWN


def number(sentences: Sequence[Sequence[Evidence]], words: Vocabulary) -> Sentences:
    """Return words as ids, with the sentence end, id V, after each sentence."""
    ids: list[int] = []
    offsets = [0]
    for sentence in sentences:
        ids += [*words.ids(sentence), len(words)]  # type: ignore[arg-type]
        offsets.append(len(ids))
    return Sentences(np.array(ids, np.int64), np.array(offsets, np.int64))


def is_plain(sentences: Sequence[Sequence[Evidence]]) -> bool:
    """Return whether every token is a word."""
    return all(isinstance(word, str) for sentence in sentences for word in sentence)


def observed(sentence: Sequence[Evidence], words: Vocabulary, tables: Tables, *, end: bool = True) -> list[Open]:
    """Return the blocks that the tokens of a sentence, and its end, open.

    A token is a word, a collection of words (one of them), or ``None`` (any word, but not the end of the sentence).
    """
    every = None
    found = []
    for token in sentence:
        ids = _word_ids(token, words)
        if ids is None:
            every = every or _opened(np.arange(len(words)), tables)
            found.append(every)
        else:
            found.append(_opened(np.array(ids), tables))
    return [*found, _opened(np.array([len(words)]), tables)] if end else found


def _opened(ids: np.ndarray, tables: Tables) -> Open:
    blocks = tables.blocks[ids]
    opened = np.unique(blocks)
    rows = [tables.log_emission[torch.from_numpy(ids[blocks == c])] for c in opened]
    return Open(opened, torch.stack([row[0] if len(row) == 1 else log_sums(row) for row in rows]))


def _word_ids(token: Evidence, words: Vocabulary) -> tuple[int, ...] | None:
    """Return the ids of the words that a token may be; ``None`` for any word."""
    if token is None or isinstance(token, str):
        return None if token is None else (words.id(token),)
    ids = tuple(sorted({words.id(word) for word in token}))
    if not ids:
        raise ValueRangeError(
            "evidence about a token must be a word, a collection of words or None, got an empty collection."
        )
    return ids


def both(one: Sequence[Evidence], other: Sequence[Evidence], words: Vocabulary) -> list[Evidence] | None:
    """Return the conjunction of two pieces of evidence; ``None`` if they exclude each other."""
    if len(one) != len(other):
        raise ShapeError(f"both must have the same number of tokens, got {len(one)} and {len(other)}.")
    joint: list[Evidence] = []
    for a, b in zip(one, other, strict=True):
        if a is None or b is None:
            joint.append(b if a is None else a)
            continue
        sets = [{words.id(w) for w in ([x] if isinstance(x, str) else x)} for x in (a, b)]
        common = sets[0] & sets[1]
        if not common:
            return None
        joint.append([words[i] for i in sorted(common)])
    return joint
