"""Compiled exchange and merging of clusters of words; the objective is in ``features.brown``.

``counts`` (K, K) are integer counts of pairs of clusters, row first, and ``transposed`` the same with columns first:
sums over candidates then read memory in order. ``left`` and ``right`` (K,) are their row and column sums. The first C
clusters are free, those behind them only context. f(n) = n log n is looked up in a ``table`` for small counts.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel


class Neighbors(NamedTuple):
    """Words next to each word: those of w are ``words[first[w] : first[w + 1]]``, with their ``counts``."""

    first: Any
    words: Any
    counts: Any


class Clustering(NamedTuple):
    """The cluster of each word (-1: none yet) and the counts of clusters."""

    of_word: Any  # (V,)
    sizes: Any  # (K,) number of words
    counts: Any  # (K, K)
    transposed: Any  # (K, K)
    left: Any  # (K,)
    right: Any  # (K,)


class Text(NamedTuple):
    """Pairs of words: ``after`` and ``before`` are ``Neighbors`` on either side, a word itself left out."""

    after: Any
    before: Any
    own: Any  # (V,) count of each word followed by itself
    left: Any  # (V,) row sums of the counts of pairs of words
    right: Any  # (V,) column sums


class Side(NamedTuple):
    """Clusters next to a word on one side: the first ``n`` of ``clusters``, with their counts in ``sums`` (K,)."""

    sums: Any
    clusters: Any
    n: Any


@helper
def _f(n, table):
    """Return n log n."""
    return table[n] if n < len(table) else n * np.log(n)


@helper
def _gather(w, neighbors, of_word, sums, listed):
    """Return the clusters next to a word, with their counts; ``sums`` are zero before."""
    n = 0
    for at in range(neighbors.first[w], neighbors.first[w + 1]):
        d = of_word[neighbors.words[at]]
        if d >= 0:
            if sums[d] == 0:
                listed[n] = d
                n += 1
            sums[d] += neighbors.counts[at]
    return Side(sums, listed, n)


@helper
def _clear(side):
    for k in range(side.n):
        side.sums[side.clusters[k]] = 0


@helper
def _add_gains(n, column, C, total, table, gains):
    """Add to ``gains`` what n more pairs with a cluster add, for each candidate; ``column`` are their counts."""
    if total + n < len(table):  # no count is larger than the sum of its row
        for c in range(C):
            gains[c] += table[column[c] + n] - table[column[c]]
    else:
        for c in range(C):
            gains[c] += _f(column[c] + n, table) - _f(column[c], table)


@helper
def _add_side(gain, c, a, side, other, counts, table):
    """Add to ``gain`` what the clusters on one side of a word add in cluster c, whose counts with them are given."""
    for k in range(side.n):
        d = side.clusters[k]
        if d != c:
            n = counts[d]
            if c == a:
                n -= side.sums[d]
            elif d == a:
                n -= other.sums[c]
            gain += _f(n + side.sums[d], table) - _f(n, table)
    return gain


@helper
def _gain(w, c, a, text, now, following, preceding, table):
    """Return what word w adds to the objective in cluster c, compared with no cluster; a is its cluster, or -1."""
    gain = _add_side(0.0, c, a, following, preceding, now.counts[c], table)
    gain = _add_side(gain, c, a, preceding, following, now.transposed[c], table)
    inside = following.sums[c] + preceding.sums[c] + text.own[w]
    n = now.counts[c, c] - (inside if c == a else 0)
    gain += _f(n + inside, table) - _f(n, table)
    left, right = now.left[c], now.right[c]
    if c == a:
        left, right = left - text.left[w], right - text.right[w]
    gain -= _f(left + text.left[w], table) - _f(left, table)
    return gain - (_f(right + text.right[w], table) - _f(right, table))


@kernel(allocates=True)
def choose(start, stop, order, text, now, n_free, table, best):
    """Set best[i] to the best cluster of the word order[i], for i from ``start`` to ``stop``; nothing is moved."""
    K, C = len(now.left), n_free
    after, before = np.zeros(K, np.int64), np.zeros(K, np.int64)
    listed_after, listed_before = np.empty(K, np.int64), np.empty(K, np.int64)
    gains = np.empty(C)
    for i in range(start, stop):
        w = order[i]
        a = now.of_word[w]
        following = _gather(w, text.after, now.of_word, after, listed_after)
        preceding = _gather(w, text.before, now.of_word, before, listed_before)
        left, right = text.left[w], text.right[w]
        for c in range(C):
            gains[c] = _f(now.left[c], table) - _f(now.left[c] + left, table)
            gains[c] += _f(now.right[c], table) - _f(now.right[c] + right, table)
        for k in range(following.n):
            d = following.clusters[k]
            _add_gains(after[d], now.transposed[d], C, now.right[d], table, gains)
        for k in range(preceding.n):
            d = preceding.clusters[k]
            _add_gains(before[d], now.counts[d], C, now.left[d], table, gains)
        # These sums are wrong for candidates next to the word, whose pairs with it lie in more than one of the counts,
        # and for its own cluster, whose counts it is a part of: those are computed one by one.
        for side in (following, preceding):
            for k in range(side.n):
                if side.clusters[k] < C:
                    gains[side.clusters[k]] = np.nan
        if a >= 0:
            gains[a] = np.nan
        most = -np.inf
        for c in range(C):
            if np.isnan(gains[c]):
                gains[c] = _gain(w, c, a, text, now, following, preceding, table)
            elif text.own[w] > 0:
                n = now.counts[c, c]
                gains[c] += _f(n + text.own[w], table) - _f(n, table)
            if gains[c] > most:
                most = gains[c]
                best[i] = c
        _clear(following)
        _clear(preceding)


@helper
def _shift(w, c, sign, text, now, following, preceding):
    """Add the pairs of word w with other words to the counts of cluster c, or remove them."""
    after, before = following.sums, preceding.sums
    for k in range(following.n):
        d = following.clusters[k]
        now.counts[c, d] += sign * after[d]
        now.transposed[d, c] += sign * after[d]
    for k in range(preceding.n):
        d = preceding.clusters[k]
        now.counts[d, c] += sign * before[d]
        now.transposed[c, d] += sign * before[d]
    now.counts[c, c] += sign * text.own[w]
    now.transposed[c, c] += sign * text.own[w]
    now.left[c] += sign * text.left[w]
    now.right[c] += sign * text.right[w]
    now.sizes[c] += sign


@kernel(allocates=True)
def move(start, stop, order, text, now, table, best):
    """Move the words order[start:stop] to their ``best`` clusters, if that still is a gain; return how many moved.

    A word that is alone in its cluster stays, so that no cluster becomes empty.
    """
    K = len(now.left)
    after, before = np.zeros(K, np.int64), np.zeros(K, np.int64)
    listed_after, listed_before = np.empty(K, np.int64), np.empty(K, np.int64)
    moved = 0
    for i in range(start, stop):
        w, b = order[i], best[i]
        a = now.of_word[w]
        if a == b or (a >= 0 and now.sizes[a] == 1):
            continue
        following = _gather(w, text.after, now.of_word, after, listed_after)
        preceding = _gather(w, text.before, now.of_word, before, listed_before)
        gain = 1.0
        if a >= 0:
            gain = _gain(w, b, a, text, now, following, preceding, table)
            gain -= _gain(w, a, a, text, now, following, preceding, table)
        if gain > 1e-6:
            if a >= 0:
                _shift(w, a, -1, text, now, following, preceding)
            _shift(w, b, 1, text, now, following, preceding)
            now.of_word[w] = b
            moved += 1
        _clear(following)
        _clear(preceding)
    return moved


@kernel
def add_losses(start, stop, alive, d, counts, transposed, sign, table, losses):
    """Add to losses[v, x], x < v, what a third cluster d contributes to the loss of merging v and x, times ``sign``.

    v and x are alive[i] and alive[j], for i from ``start`` to ``stop``.
    """
    row, column = counts[d], transposed[d]
    for i in range(start, stop):
        v = alive[i]
        if v == d:
            continue
        f = _f(row[v], table) + _f(column[v], table)
        for j in range(i):
            x = alive[j]
            if x == d:
                continue
            loss = f + _f(row[x], table) + _f(column[x], table)
            loss -= _f(row[v] + row[x], table) + _f(column[v] + column[x], table)
            losses[v, x] += sign * loss


@helper
def _inside(v, x, counts, left, right, table):
    """Return the part of the loss of merging v and x that is due to their own counts and sums."""
    loss = _f(counts[v, v], table) + _f(counts[v, x], table) + _f(counts[x, v], table) + _f(counts[x, x], table)
    loss -= _f(counts[v, v] + counts[v, x] + counts[x, v] + counts[x, x], table)
    loss -= _f(left[v], table) + _f(left[x], table) - _f(left[v] + left[x], table)
    return loss - (_f(right[v], table) + _f(right[x], table) - _f(right[v] + right[x], table))


@helper
def _third(v, x, d, counts, transposed, table):
    """Return the contribution of cluster d to the loss of merging v and x."""
    loss = _f(counts[v, d], table) + _f(counts[x, d], table) - _f(counts[v, d] + counts[x, d], table)
    before = transposed[v, d], transposed[x, d]
    return loss + _f(before[0], table) + _f(before[1], table) - _f(before[0] + before[1], table)


@kernel
def set_losses(start, stop, alive, v, counts, transposed, table, losses):
    """Set the losses of merging v with alive[start:stop], of third clusters only."""
    for i in range(start, stop):
        x = alive[i]
        if x != v:
            loss = 0.0
            for d in range(len(counts)):
                if d not in (v, x):
                    loss += _third(v, x, d, counts, transposed, table)
            losses[max(v, x), min(v, x)] = loss


@kernel
def least_loss(start, stop, alive, counts, left, right, table, losses, out):
    """Set out[i] = (loss, x) of the best merge of alive[i] with a cluster before it, for i in ``start`` to ``stop``."""
    for i in range(start, stop):
        v = alive[i]
        out[i, 0] = np.inf
        for j in range(i):
            x = alive[j]
            loss = losses[v, x] + _inside(v, x, counts, left, right, table)
            if loss < out[i, 0]:
                out[i, 0], out[i, 1] = loss, x
