"""Sentences to numbers for language models of states: words, ends of sentences, and evidence about words."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trelliswork.data import Corpus, Vocabulary, read_text
from trelliswork.errors import DataError, ShapeError, ValueRangeError
from trelliswork.models.hmm_lm.objective import Sentences

Evidence = str | Collection[str] | None  # a word, some words, or any word
Text = Corpus | Sequence[Sequence[str]] | str | os.PathLike[str]
UNKNOWN = "<unk>"


def sentences_of(X: Text) -> list[Sequence[Evidence]]:
    """Lists of words: of a text file (one sentence a line), of a corpus its first column, or as they are."""
    if isinstance(X, str | os.PathLike):
        return list(read_text(Path(X)).sentences(0))
    return list(X.sentences(0)) if isinstance(X, Corpus) else list(X)


def open_vocabulary(sentences: Sequence[Sequence[Evidence]], min_count: int) -> Vocabulary:
    """Words seen often enough; all others are ``<unk>``."""
    for n, sentence in enumerate(sentences):
        if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
            raise DataError(f"sentence {n}: a list of words (str) is wanted, got {sentence!r:.60}.")
    return Vocabulary.from_sequences(sentences, min_count=min_count, unknown=_unknown)  # type: ignore[arg-type]


def restored_vocabulary(words: Sequence[str]) -> Vocabulary:
    """The same from a file."""
    return Vocabulary(words, unknown=_unknown)


def _unknown(word: str) -> str:
    return UNKNOWN


def number(sentences: Sequence[Sequence[Evidence]], words: Vocabulary) -> Sentences:
    """Words as numbers, with the end of sentence, number V, behind each sentence."""
    ids: list[int] = []
    offsets = [0]
    for n, sentence in enumerate(sentences):
        if isinstance(sentence, str) or not all(isinstance(word, str) for word in sentence):
            raise DataError(f"sentence {n}: a list of words (str) is wanted, got {sentence!r:.60}.")
        ids += words.ids(sentence)  # type: ignore[arg-type]
        ids.append(len(words))
        offsets.append(len(ids))
    return Sentences(np.array(ids, np.int64), np.array(offsets, np.int64))


def is_plain(sentences: Sequence[Sequence[Evidence]]) -> bool:
    """Whether every token is a word."""
    return all(isinstance(word, str) for sentence in sentences for word in sentence)


def observations(
    sentences: Sequence[Sequence[Evidence]], words: Vocabulary, log_emission: Tensor, *, end: bool = True
) -> tuple[Tensor, Sentences]:
    """Rows of log p(evidence | state) (W, S) for all that is known about tokens, and the sentences as rows of it.

    A token is a word, a collection of words (one of them), or ``None`` (any word, but not the end of the sentence).
    """
    rows: list[Tensor] = []
    numbers: dict[object, int] = {}

    def row(token: Evidence) -> int:
        if isinstance(token, str):
            ids: tuple[int, ...] | None = (words.id(token),)
        elif token is None:
            ids = None
        else:
            ids = tuple(sorted({words.id(word) for word in token}))
            if not ids:
                raise ValueRangeError("evidence about a token must be a word, some words or None, got no words.")
        if ids not in numbers:
            numbers[ids] = len(rows)
            chosen = log_emission[:-1] if ids is None else log_emission[list(ids)]
            rows.append(torch.logsumexp(chosen, dim=0) if len(chosen) > 1 else chosen[0])
        return numbers[ids]

    found, offsets = [], [0]
    for sentence in sentences:
        found += [row(token) for token in sentence]
        if end:
            if "end" not in numbers:
                numbers["end"] = len(rows)
                rows.append(log_emission[-1])
            found.append(numbers["end"])
        offsets.append(len(found))
    return torch.stack(rows), Sentences(np.array(found, np.int64), np.array(offsets, np.int64))


def both(one: Sequence[Evidence], other: Sequence[Evidence], words: Vocabulary) -> list[Evidence] | None:
    """What is known if both are; ``None`` if they exclude each other."""
    if len(one) != len(other):
        raise ShapeError(f"both must have the same number of tokens, got {len(one)} and {len(other)}.")
    found: list[Evidence] = []
    for a, b in zip(one, other, strict=True):
        if a is None or b is None:
            found.append(b if a is None else a)
            continue
        sets = [{words.id(w) for w in ([x] if isinstance(x, str) else x)} for x in (a, b)]
        common = sets[0] & sets[1]
        if not common:
            return None
        found.append([words[i] for i in sorted(common)])
    return found


def cluster_numbers(words: Vocabulary, given: dict[str, int]) -> np.ndarray:
    """Clusters (V + 1,) from 0 of a given map of words; words without one go to the last, the end has its own."""
    names = sorted({int(c) for c in given.values()})
    if not names:
        raise ValueRangeError("clusters must map words to numbers, got an empty map.")
    place = {c: k for k, c in enumerate(names)}
    return np.array([place[int(given[w])] if w in given else len(names) - 1 for w in words] + [len(names)])
