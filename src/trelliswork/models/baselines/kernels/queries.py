"""Compiled code that fills and checks compact tables of n-grams, see `models.baselines.compact`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.jit import helper, kernel


class Level(NamedTuple):
    """The n-grams of one order: those that extend one context follow each other, by word.

    A node has, from its lowest bits on, the code of its share, the code of its rest, and the first n-gram of the next
    order that extends it. Without bits for a code, the index of the n-gram is the code.
    """

    words: NDArray[np.unsignedinteger]  # (n,) last words; empty in order 1, which lists all words
    nodes: NDArray[np.unsignedinteger]  # (n + 1,); (n,) in the highest order, whose nodes have shares only
    share: NDArray[np.float64]  # by code: probability, or the part of it that is added to that of the order below
    rest: NDArray[np.float64]  # by code: factor of the order below after this n-gram
    share_bits: int
    rest_bits: int


class Store(NamedTuple):
    """The n-grams of all orders, one order after the other; a `Level` has views of them."""

    words: NDArray[np.unsignedinteger]  # of the orders from 2 on
    nodes: NDArray[np.uint64]  # of the orders below the highest; of order 1 if that is the highest
    codes: NDArray[np.unsignedinteger]  # nodes of the highest order, or empty
    values: NDArray[np.float64]  # shares and rests of all orders
    orders: NDArray[np.int64]  # (orders, 6) where the arrays of each begin, and its bits: see `WORDS`


WORDS, NODES, SHARE, REST, SHARE_BITS, REST_BITS = range(6)  # columns of ``orders``


class Codebook(NamedTuple):
    """Distinct numbers in order of appearance, and a hash table of their codes."""

    values: NDArray[np.float64]
    slots: NDArray[np.int64]  # (a power of two,) code or -1
    n: NDArray[np.int64]  # (1,)


@helper(inline="always")
def _encode(value, book):
    """Return the code of a number, new if it is; -1 if there is no room."""
    mask = len(book.slots) - 1
    mixed = np.uint64(np.int64(value * 4503599627370496.0)) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(20)) & mask
    while True:
        code = book.slots[slot]
        if code < 0:
            code = book.n[0]
            if code == len(book.values):
                return -1
            book.slots[slot], book.values[code] = code, value
            book.n[0] += 1
            return code
        if book.values[code] == value:
            return code
        slot = (slot + 1) & mask


class Coded(NamedTuple):
    """An order while it is converted: n-grams, and the contexts that they extend."""

    words: NDArray[np.unsignedinteger]  # (n,)
    shares: NDArray[np.uint32]  # (n,) codes
    rests: NDArray[np.uint32]  # (contexts,) codes
    first: NDArray[np.int64]  # (contexts + 1,)


@kernel
def encode(start, stop, at, table, n_words, discounts, shares, rests, out):
    """Convert the counts of the n-grams from ``at`` on, which extend the contexts ``start:stop``.

    ``table`` are keys and counts. Returns the first n-gram after them, or -1 if a codebook is full.
    """
    keys, counts = table
    n = len(keys)
    for c in range(start, stop):
        out.first[c] = begin = at
        total = once = twice = more = 0
        while at < n and keys[at] < (c + 1) * n_words:
            count = counts[at]
            total += count
            once += count == 1
            twice += count == 2
            more += count >= 3
            at += 1
        lost = once * discounts[1] + twice * discounts[2] + more * discounts[3]
        code = _encode(lost / total if total > 0 else 1.0, rests)
        if code < 0:
            return -1
        out.rests[c] = code
        for i in range(begin, at):
            code = _encode((counts[i] - discounts[min(counts[i], 3)]) / total, shares)
            if code < 0:
                return -1
            out.shares[i] = code
            out.words[i] = keys[i] - c * n_words
    out.first[stop] = at
    return at


@kernel
def pack(shares, rests, first, share_bits, rest_bits, nodes):
    """Fill nodes with codes, none where the number of bits is 0, and the first n-gram of the next order."""
    for i in range(len(first)):
        node = np.uint64(first[i]) << np.uint64(share_bits + rest_bits)
        if i < len(first) - 1:
            if rest_bits:
                node |= np.uint64(rests[i]) << np.uint64(share_bits)
            if share_bits:
                node |= np.uint64(shares[i])
        nodes[i] = node


@kernel
def falls(words, n_words):
    """Return how often a word is not greater than the one before it; -1 if one is not below ``n_words``."""
    n, largest = 0, words[0] if len(words) else 0
    for i in range(1, len(words)):
        n += words[i] <= words[i - 1]
        largest = max(largest, words[i])
    return n if largest < n_words else -1


@kernel
def falls_between(level, n, words):
    """Return how often the first word after a context is not greater than the last one after the context before it.

    ``words`` are those of the next order; -1 if a node of these n contexts is impossible: the code of a number that is
    not listed, or n-grams of the next order that begin before those of the node before, or beyond the last one.
    """
    shift, bits, n_next = np.uint64(level.share_bits + level.rest_bits), np.uint64(level.share_bits), len(words)
    share_mask, rest_mask = (1 << level.share_bits) - 1, (1 << level.rest_bits) - 1
    n_shares, n_rests = len(level.share) if level.share_bits else 1, len(level.rest) if level.rest_bits else 1
    if np.int64(level.nodes[0] >> shift) != 0 or np.int64(level.nodes[n] >> shift) != n_next:
        return -1
    between, is_bad, first = 0, False, np.int64(0)
    for i in range(n):
        node = level.nodes[i]
        code, rest = np.int64(node) & share_mask, np.int64(node >> bits) & rest_mask
        end = np.int64(level.nodes[i + 1] >> shift)
        is_bad |= (code >= n_shares) | (rest >= n_rests) | (end < first)
        if end > n_next:
            return -1
        if 0 < first < end:
            between += words[first] <= words[first - 1]
        first = end
    return -1 if is_bad else between


@kernel
def are_codes_sound(level):
    """Return whether the codes of the highest order are possible."""
    largest = 0
    for i in range(len(level.nodes)):
        largest = max(largest, np.int64(level.nodes[i]))
    return largest < len(level.share) or not len(level.nodes)
