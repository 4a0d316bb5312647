"""Evidence: a label of a token, a set of possible labels, or nothing; and rules about whole sentences."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError
from trelliswork.inference.chain import queries
from trelliswork.rules.chains import Ruled

Known = str | Collection[str] | None
Labels = Sequence[Sequence[Known]]


def names_of(token: str | Collection[str]) -> list[str]:
    """Return the possible labels of a token; those of a set in alphabetical order, so that results are reproducible."""
    if isinstance(token, str):
        return [token]
    return sorted(token) if isinstance(token, set | frozenset) else list(token)


def ruled_out(known: Labels, lengths: NDArray[np.int64], labels: Vocabulary) -> NDArray[np.bool_]:
    """Return the labels that the evidence excludes, (n_tokens, S)."""
    if [-1 if sentence is None else len(sentence) for sentence in known] != lengths.tolist():
        raise ShapeError("known must have as many sentences and tokens as X, with None where nothing is known.")
    out = np.zeros((int(lengths.sum()), len(labels)), bool)
    for i, token in enumerate(token for sentence in known for token in sentence):
        if token is not None:
            out[i] = True
            out[i, labels.ids(names_of(token))] = False
    return out


class SentenceRules:
    """Rules of sentences, by layer of labels: one for all sentences, or a list with one for each, ``None`` for none."""

    def __init__(self, layers: Sequence[tuple[Any, Sequence[str]]], n_sentences: int) -> None:
        asked = [_asked(rules, labels, n_sentences) for rules, labels in layers]
        self._each = list(zip(*asked, strict=True))

    def split(self, batches: Iterator[Any]) -> Iterator[tuple[tuple[Any, ...], NDArray[np.int64], Any]]:
        """Yield parts of batches of scored sentences, in order, that have the same rules.

        These are what answers queries about each layer, the numbers of the sentences, and their scores.
        """
        first = 0
        for scores in batches:
            own = self._each[first : first + len(scores.lengths)]
            cuts = [*(b for b in range(len(own)) if not b or own[b] != own[b - 1]), len(own)]
            for start, stop in pairwise(cuts):
                which = np.arange(start, stop)
                yield own[start], first + which, queries.take(scores, which)
            first += len(own)


def _asked(rules: Any, labels: Sequence[str], n_sentences: int) -> list[Any]:
    """Return for each sentence what answers queries about its labels: `queries`, or rules."""
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        return [queries if rules is None else Ruled.of(rules, labels)] * n_sentences
    if len(rules) != n_sentences:
        raise ShapeError(f"rules must be one for all sentences or a list of {n_sentences}, got {len(rules)}.")
    known = {id(one): queries if one is None else Ruled.of(one, labels) for one in rules}
    return [known[id(one)] for one in rules]
