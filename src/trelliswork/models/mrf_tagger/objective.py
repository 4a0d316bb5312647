"""Objective of the MRF tagger: the likelihood of its moments under the lifted bound, by weights of features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from trelliswork.learning import whole
from trelliswork.learning.evaluation import Evaluation
from trelliswork.models.mrf_tagger.bound import Cover, cover_bound

Floats = NDArray[np.float64]


def offsets_of(n_words: int) -> list[int]:
    """Return the offsets of the words nearest to a tag, nearest first: 0, -1, 1, -2, 2, and so on."""
    return [(k + 1) // 2 * (-1 if k % 2 else 1) for k in range(n_words)]


@dataclass
class TaggerMoments:
    """Counts of a tagged corpus as a circle with pads between sentences: the last tag and word 0."""

    tag_pairs: Floats  # (K, T, T) [l - 1, t, u]: number of times that tag u is l positions after t
    tag_words: tuple[csr_matrix, ...]  # (T, C) number of times that word w is at each of L offsets from tag t
    n_positions: int  # N


def tagger_moments(
    words: NDArray[np.int64], tags: NDArray[np.int64], ends: NDArray[np.int64], K: int, L: int, T: int, C: int
) -> TaggerMoments:
    """Count a corpus: ids of all tokens, sentence n being ``ends[n]`` to ``ends[n + 1]``; T and C include the pads.

    There are as many pads between sentences as distances and offsets reach, so that no pair joins two sentences. The
    counts are those of the whole corpus, of which this process may have a part.
    """
    offsets = offsets_of(L)
    pads = max(K, max(abs(m) for m in offsets))
    n_sentences = len(ends) - 1
    N = len(words) + pads * n_sentences
    place = np.arange(len(words)) + pads * (np.repeat(np.arange(n_sentences), np.diff(ends)) + 1)
    all_words, all_tags = np.zeros(N, np.int64), np.full(N, T - 1)
    all_words[place], all_tags[place] = words, tags
    pairs = np.empty((K, T, T))
    for k in range(1, K + 1):
        pairs[k - 1] = np.bincount(all_tags * T + np.roll(all_tags, -k), minlength=T * T).reshape(T, T)
    (pairs,) = whole.summed(pairs)
    tag_words = []
    for m in offsets:
        (counts,) = whole.summed(np.bincount(all_tags * C + np.roll(all_words, -m), minlength=T * C))
        tag_words.append(csr_matrix(counts.reshape(T, C).astype(np.float64)))
    return TaggerMoments(pairs, tuple(tag_words), int(whole.total(N)))


@dataclass
class TaggerLayout:
    """Layout of the parameters in one vector: V (K, T, T), U of each offset (features, T), c (C,), and the cover."""

    K: int
    T: int
    C: int
    n_features: list[int]  # at each offset

    @property
    def n_weights(self) -> int:
        """Number of weights of features, which are penalized."""
        return self.K * self.T * self.T + sum(self.n_features) * self.T

    @property
    def size(self) -> int:
        """Number of all parameters."""
        return self.n_weights + self.C + self.K * len(self.n_features) * (1 + self.T + self.C)

    def weights(self, x: Floats) -> tuple[Floats, list[Floats]]:
        """Return V (K, T, T) and U (features, T) of each offset, as views."""
        at = self.K * self.T * self.T
        U = []
        for n in self.n_features:
            U.append(x[at : at + n * self.T].reshape(n, self.T))
            at += n * self.T
        return x[: self.K * self.T * self.T].reshape(self.K, self.T, self.T), U

    def unary(self, x: Floats) -> Floats:
        """Return c (C,), as a view."""
        return x[self.n_weights : self.n_weights + self.C]

    def cover(self, x: Floats) -> Cover:
        """Return the cover, as views."""
        K, L, T, C = self.K, len(self.n_features), self.T, self.C
        rest = x[self.n_weights + C :]
        a, b = K * L, K * L * (1 + T)
        return Cover(rest[:a].reshape(K, L), rest[a:b].reshape(K, L, T), rest[b:].reshape(K, L, C))


class TaggerObjective:
    r"""Negative lower bound on the log-likelihood of a corpus, plus an L2 penalty.

    .. math:: f = N \Big(B(\phi, \psi) - \langle\hat\mu, (\phi, \psi)\rangle\Big) + c\, \lVert (U, V) \rVert^2

    B is the bound of ``cover_bound``, :math:`\hat\mu` the moments over N. It is minimized jointly over the weights of
    features and the cover. The time of a call depends on the numbers of types, tags and features, not on the size of
    the corpus. ``features`` (C, F_m) are those of each word at each offset, ``l2`` is c.
    """

    def __init__(self, moments: TaggerMoments, features: list[csr_matrix], *, l2: float) -> None:
        K, T = moments.tag_pairs.shape[:2]
        self.moments, self.features, self.l2 = moments, features, l2
        self.layout = TaggerLayout(K, T, features[0].shape[0], [table.shape[1] for table in features])
        self._words = np.asarray(moments.tag_words[0].sum(axis=0)).ravel()
        self._transposed = [csr_matrix(table.T) for table in features]
        # Observed features by tag: (F_m, T).
        self._observed = [(t @ n.T).toarray() for t, n in zip(self._transposed, moments.tag_words, strict=True)]

    def start(self, lead: NDArray[np.int64]) -> Floats:
        """Return the first parameters: p(tag | preceding tag) and p(word) as an HMM would count them, and ``lead``.

        Those are features at the first offset of which each word has exactly one: that it is this word, or that it is
        rare. They start with log p(feature | tag) / p(feature), smoothed; all others with 0.
        """
        x = np.zeros(self.layout.size)
        V, U = self.layout.weights(x)
        n_tags = self.moments.tag_pairs[0].sum(axis=1)
        V[0] = np.log((self.moments.tag_pairs[0] + 0.1) / (n_tags[:, None] + 0.1 * len(n_tags)))
        self.layout.unary(x)[:] = np.log(self._words / self._words.sum())
        seen = self._observed[0][lead]
        expected = seen.sum(axis=1, keepdims=True) * n_tags / n_tags.sum()
        U[0][lead] = np.log((seen + 1.0) / (expected + 1.0))
        return x

    def scales(self) -> Floats:
        """Return one over the root of the approximate second derivatives: units in which steps suit all parameters.

        Counts range from one to a hundred thousand; without the scales, rare features would learn a hundred times
        slower.
        """
        layout, N = self.layout, self.moments.n_positions
        curvature = np.zeros(layout.size)
        V, U = layout.weights(curvature)
        tags = self.moments.tag_pairs[0].sum(axis=1)
        V += (self.moments.tag_pairs + tags[:, None] * tags / N) / 2
        for u, table, n in zip(U, self._transposed, self.moments.tag_words, strict=True):
            seen = (table.power(2) @ n.T).toarray()  # values of features may be any numbers
            u += (seen + seen.sum(axis=1, keepdims=True) * tags / N) / 2
        curvature[: layout.n_weights] += 2 * self.l2
        layout.unary(curvature)[:] = self._words
        cover = layout.cover(curvature)
        rho = cover.log_weights.size
        cover.log_weights += N / rho
        cover.tags += tags / rho
        cover.words += self._words / rho
        return 1 / np.sqrt(curvature + 0.1)

    def potentials(self, x: Floats) -> tuple[Floats, Floats]:
        """Return phi (K, T, T) and psi (L, T, C)."""
        V, U = self.layout.weights(x)
        psi = np.stack([(table @ u).T for table, u in zip(self.features, U, strict=True)])
        return V, np.ascontiguousarray(psi)

    def __call__(self, x: Floats) -> Evaluation:
        """Return value and gradient."""
        layout, N = self.layout, self.moments.n_positions
        phi, psi = self.potentials(x)
        bound = cover_bound(phi, psi, layout.unary(x), layout.cover(x))
        V, U = layout.weights(x)
        fit = (self.moments.tag_pairs * V).sum() + self._words @ layout.unary(x)
        fit += sum((seen * u).sum() for seen, u in zip(self._observed, U, strict=True))
        gradient = np.zeros(layout.size)
        dV, dU = layout.weights(gradient)
        dV += N * bound.tag_pairs - self.moments.tag_pairs
        for slope, table, expected, seen in zip(dU, self._transposed, bound.tag_words, self._observed, strict=True):
            slope += N * (table @ expected.T) - seen
        layout.unary(gradient)[:] = N * bound.words - self._words
        cover = layout.cover(gradient)
        cover.log_weights += N * bound.cover.log_weights
        cover.tags += N * bound.cover.tags
        cover.words += N * bound.cover.words
        gradient[: layout.n_weights] += 2 * self.l2 * x[: layout.n_weights]
        return Evaluation(float(N * bound.value - fit + self.penalty(x)), gradient)

    def penalty(self, x: Floats) -> float:
        """Return the L2 penalty."""
        n = self.layout.n_weights
        return self.l2 * float(x[:n] @ x[:n])
