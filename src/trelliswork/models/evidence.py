"""Evidence about tokens: a label, a set of possible labels, or nothing."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError

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
