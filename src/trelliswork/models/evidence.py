"""What is known about tokens: a label, some that are possible, or nothing."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from trelliswork.data import Vocabulary
from trelliswork.errors import ShapeError

Known = str | Collection[str] | None
Labels = Sequence[Sequence[Known]]


def names_of(token: str | Collection[str]) -> list[str]:
    """The labels a token may have; of a set in the order of the alphabet, so that nothing depends on hashing."""
    if isinstance(token, str):
        return [token]
    return sorted(token) if isinstance(token, set | frozenset) else list(token)


def ruled_out(known: Labels, lengths: NDArray[np.int64], labels: Vocabulary) -> NDArray[np.bool_]:
    """(n_tokens, S): labels that evidence excludes."""
    if [-1 if sentence is None else len(sentence) for sentence in known] != lengths.tolist():
        raise ShapeError("known must have as many sentences and tokens as X; None where nothing is known.")
    out = np.zeros((int(lengths.sum()), len(labels)), bool)
    for i, token in enumerate(token for sentence in known for token in sentence):
        if token is not None:
            out[i] = True
            out[i, labels.ids(names_of(token))] = False
    return out
