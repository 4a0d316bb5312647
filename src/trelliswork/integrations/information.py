r"""The expected gain of labels: by how much labeling sentences reduces the uncertainty of a model about a pool.

A label teaches something about the attributes of its token: here its word, its last letters, and, at the start of a
sentence, both once more. What the tokens of a set S tell about an attribute a is their Fisher information,

.. math:: I_S(a) = \sum_{t \in S,\, a \in t} u_t, \qquad u_t = 1 - \sum_k p_t(k)^2

where u is the variance of the answer: a label that is certain beforehand tells nothing. The weight of an attribute has
a variance of about 1 / (lambda + I_L(a)) after the labels of L, and the tokens of the pool suffer from it by their own
information. So labels are chosen for the least Fisher information ratio (Zhang and Oles, 2000; Hoi, Jin and Lyu, 2006)

.. math:: \sum_a \frac{c_a\, I_{pool}(a)}{\lambda + I_L(a)}

with fixed weights c of kinds of attributes. The gain of a sentence is the decrease of this sum. It counts attributes
that are frequent in the pool and little known, and it only falls when other sentences are chosen.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from trelliswork.features.presets import shape

PRIOR = 0.2  # lambda: the information about each attribute before all labels
WORD, THREE, TWO, FIRST, START = 1.0, 0.5, 0.25, 2.0, 1.0  # c of the kinds of attributes
Floats = NDArray[np.float64]


def attributes(words: Sequence[str]) -> Iterator[tuple[int, str, float]]:
    """Yield position, name and weight of the attributes of the tokens of a sentence."""
    for t, word in enumerate(words):
        lower = word.lower()
        yield t, f"word {lower}", WORD
        yield t, f"suffix {lower[-3:]}", THREE
        yield t, f"suffix2 {lower[-2:]}", TWO
        if t == 0:
            yield t, f"first {lower}", FIRST
            yield t, f"start {shape(word)} {lower[-2:]}", START


def variances(tables: Sequence[Floats]) -> Floats:
    """Return the variance u of the answer of each token (T,), from the marginals (T, S) of each layer."""
    return np.sum([np.maximum(1 - np.square(p).sum(axis=1), 0.0) for p in tables], axis=0)


class Gains:
    """The gains of the sentences of a pool, given those that are labeled or chosen already.

    Parameters
    ----------
    words : list of lists of str
        Sentences of the pool.
    values : list of ndarray (T,)
        The variances of their tokens.
    """

    def __init__(self, words: Sequence[Sequence[str]], values: Sequence[Floats]) -> None:
        self._ids: dict[str, int] = {}
        ids = self._ids
        weights: list[float] = []
        ends, columns, entries = [0], [], []
        for row, own in zip(words, values, strict=True):
            u = own.tolist()
            for t, name, weight in attributes(row):
                if ids.setdefault(name, len(ids)) == len(weights):
                    weights.append(weight)
                columns.append(ids[name])
                entries.append(u[t])
            ends.append(len(columns))
        pool = scipy.sparse.csr_array((entries, columns, ends), shape=(len(words), len(ids)), dtype=np.float64)
        pool.sum_duplicates()
        self._ends, self._columns, self._entries = pool.indptr, pool.indices, pool.data
        self._importance = np.array(weights) * pool.sum(axis=0)
        self._known = np.full(len(ids), PRIOR)

    def know(self, words: Sequence[Sequence[str]], values: Sequence[Floats]) -> None:
        """Take sentences outside the pool as labeled."""
        for row, own in zip(words, values, strict=True):
            u = own.tolist()
            for t, name, _ in attributes(row):
                if name in self._ids:
                    self._known[self._ids[name]] += u[t]

    def __call__(self, sentence: int) -> float:
        """Return the gain of a sentence."""
        entries = slice(self._ends[sentence], self._ends[sentence + 1])
        columns, more = self._columns[entries], self._entries[entries]
        known = self._known[columns]
        return float((self._importance[columns] * more / (known * (known + more))).sum())

    def add(self, sentence: int) -> None:
        """Choose a sentence: its attributes are known better from now on."""
        entries = slice(self._ends[sentence], self._ends[sentence + 1])
        self._known[self._columns[entries]] += self._entries[entries]
