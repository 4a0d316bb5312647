r"""Lifted upper bound on the log partition function of a field of tags and words; its cost does not depend on N.

The field. N positions form a circle; each has a tag and a word. Tags at distance l = 1..K are connected by
:math:`\phi^l(t, t')`, the tag at i and the word at i + m by :math:`\psi^m(t, w)` for L offsets m; each word has
:math:`c(w)`:

.. math:: A = \log \sum_{t, w} \exp \sum_i \Big(\sum_l \phi^l(t_i, t_{i+l}) + \sum_m \psi^m(t_i, w_{i+m}) + c(w_i)\Big)

The cover. For each pair (l, m) keep only the tag edges of distance l and the word edges of offset m. Tags then form
chains (each i is connected only to i + l and i - l) and every word is attached to exactly one tag: all nodes are
covered, and sums are easy. The part has the weight :math:`\rho_{lm} > 0`; all weights sum to 1. The edges of distance l
appear with the weight :math:`\rho_l = \sum_m \rho_{lm}`, those of offset m with :math:`\sigma_m = \sum_l \rho_{lm}`,
and every node with weight 1. So the potentials

.. math::
   \phi^l / \rho_l, \qquad \psi^m / \sigma_m, \qquad a_{lm}(t), \qquad b_{lm}(w), \qquad
   \sum_{lm} \rho_{lm} a_{lm} = 0, \quad \sum_{lm} \rho_{lm} b_{lm} = c

average to those of the field, and by the convexity of A in its potentials

.. math:: A / N \le \sum_{lm} \rho_{lm} \log \lambda(M_{lm}), \qquad
   M_{lm}(t, t') = \exp\big(\phi^l(t, t') / \rho_l + a_{lm}(t')\big)
   \sum_w \exp\big(\psi^m(t', w) / \sigma_m + b_{lm}(w)\big)

:math:`\lambda` is the Perron root. At finite N the chains of distance l are g = gcd(N, l) circles, whose log partition
function over N is :math:`g \log \mathrm{tr}(M^{N/g}) / N \le \log\lambda + g \log T / N`: a correction below 1e-4 for
any real corpus. The bound is exact for K = L = 1. The paper's cover of K + 1 stars (figure 7) leaves nodes out unless
K + 1 = L, and is then not a bound; here each node is in each part for all K and L. The bound is jointly convex
in the potentials, :math:`\rho_{lm} a_{lm}`, :math:`\rho_{lm} b_{lm}` and :math:`\rho`; its gradient by the potentials
is the weighted mean of the parts' marginals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eig

from trelliswork.compute import threads

Floats = NDArray[np.float64]


@dataclass
class Cover:
    """Weights of the parts, and how they share the nodes."""

    log_weights: Floats  # (K, L) rho is their softmax
    tags: Floats  # (K, L, T) a before its weighted mean is subtracted
    words: Floats  # (K, L, C) b before its weighted mean is subtracted

    def weights(self) -> Floats:
        """Return rho (K, L)."""
        rho = np.exp(self.log_weights - self.log_weights.max())
        return rho / rho.sum()


@dataclass
class Bound:
    """The bound per position, and its gradient."""

    value: float
    tag_pairs: Floats  # (K, T, T) by phi: expected pairs of tags
    tag_words: Floats  # (L, T, C) by psi
    words: Floats  # (C,) by c
    cover: Cover  # by the cover


def transfer(phi: Floats, psi: Floats, a: Floats, b: Floats) -> tuple[Floats, float, Floats, Floats]:
    """Return the matrix M (T, T) of a part over exp(shift), the shift, log sums of words (T,), p(word | tag) (T, C)."""
    scores = psi + b
    top = scores.max(axis=1, initial=-np.inf)
    scores -= top[:, None]
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1)
    scores /= sums[:, None]
    log_sums = np.log(sums) + top
    log_matrix = phi + (a + log_sums)
    shift = float(log_matrix.max())
    return np.exp(log_matrix - shift), shift, log_sums, scores


def cover_bound(phi: Floats, psi: Floats, unary: Floats, cover: Cover) -> Bound:
    """Return the bound on A / N and its gradient; the module has the equations.

    ``phi[l - 1, t, u]`` scores tag u at l positions after tag t, ``psi[m, t, w]`` word w at the m-th offset from tag t,
    and ``unary`` (C,) is c. Time O(K L (T C + T^3)), memory O(K L T C).
    """
    (K, T, _), (L, _, C) = phi.shape, psi.shape
    rho = cover.weights()
    rho_tags, rho_words = rho.sum(axis=1), rho.sum(axis=0)
    mean_a = np.einsum("lm,lmt->t", rho, cover.tags)
    excess_b = np.einsum("lm,lmw->w", rho, cover.words) - unary
    log_root = np.empty((K, L))
    pairs, tags, emission = np.empty((K, L, T, T)), np.empty((K, L, T)), np.empty((K, L, T, C))

    def work(start: int, stop: int) -> None:
        for k in range(start, stop):
            i, m = divmod(k, L)
            a, b = cover.tags[i, m] - mean_a, cover.words[i, m] - excess_b
            matrix, shift, _, emission[i, m] = transfer(phi[i] / rho_tags[i], psi[m] / rho_words[m], a, b)
            root, left, right = perron(matrix)
            log_root[i, m] = np.log(root) + shift
            pairs[i, m] = left[:, None] * matrix * right / (root * (left @ right))
            tags[i, m] = left * right / (left @ right)

    threads.run(work, [(k, k + 1) for k in range(K * L)])
    words = np.einsum("lmt,lmtw->lmw", tags, emission)
    joint = tags[..., None] * emission  # (K, L, T, C)
    tag_pairs = np.einsum("lm,lmtu->ltu", rho / rho_tags[:, None], pairs)
    tag_words = np.einsum("lm,lmtw->mtw", rho / rho_words, joint)
    # By rho: the root itself, potentials that are divided by sums of rho, and the means that are subtracted.
    by_weight = log_root.copy()
    by_weight -= (np.einsum("ltu,ltu->l", phi, tag_pairs) / rho_tags)[:, None]
    by_weight -= np.einsum("mtw,mtw->m", psi, tag_words) / rho_words
    mean_tags, mean_words = np.einsum("lm,lmt->t", rho, tags), np.einsum("lm,lmw->w", rho, words)
    by_weight -= cover.tags @ mean_tags + cover.words @ mean_words
    slope = Cover(
        rho * (by_weight - (rho * by_weight).sum()),
        rho[..., None] * (tags - mean_tags),
        rho[..., None] * (words - mean_words),
    )
    return Bound(float((rho * log_root).sum()), tag_pairs, tag_words, mean_words, slope)


def perron(matrix: Floats) -> tuple[float, Floats, Floats]:
    """Return the largest eigenvalue of a positive matrix, and its positive left and right eigenvectors."""
    values, left, right = eig(matrix, left=True, right=True)
    k = int(np.argmax(values.real))
    return float(values[k].real), np.abs(left[:, k].real), np.abs(right[:, k].real)
