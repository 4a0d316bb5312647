"""Compiled queries of n-grams: text or ids to the probabilities of words and sentence ends.

Text becomes ids, and ids are scored in blocks of tokens. Each token has its context, the longest one of the present
order that ends there: the n-grams of the next order that extend it (``begin:end``) and the factor of the order below
(``rest``). The end of a sentence is the start of the next one.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get, prefetch, put
from trelliswork.data.kernels.bytes import BASIS, PRIME, finished, is_white
from trelliswork.models.baselines.kernels.queries import (
    NODES,
    REST,
    REST_BITS,
    SHARE,
    SHARE_BITS,
    WORDS,
    Store,
)

SEPARATOR, LINE = 31, 10  # between words, if it is not white space; between sentences
OTHER = -1  # a text that needs the general functions: most likely an error
BLOCK = 512  # tokens
LEAST = 1e-150  # least product of probabilities; the next one is above 1e-99
FIRST_STEP = 8  # words between the place of a word in an even spread and the next one that is compared
AHEAD = 12  # tokens between the request of a cache line and its use


class Model(NamedTuple):
    """Tables of n-grams, and the numbers of words in them."""

    store: Store
    numbers: NDArray[np.int64]  # (C,) of the word with each id
    n_words: int
    interpolated: bool


class Block(NamedTuple):
    """Tokens that are scored together; each array (tokens,)."""

    words: NDArray[np.int64]  # numbers in the tables; 0 is a sentence edge
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    at: NDArray[np.int64]  # the n-gram of this order that ends at the token, or -1
    rest: NDArray[np.float64]
    p: NDArray[np.float64]


@helper(inline="always")
def _guess(begin, end, word, scale):
    """Return where a word would be if words were spread evenly."""
    return min(begin + np.int64(np.float64(word) * np.float64(end - begin) * scale), end - 1)


@helper
def _find(words, begin, end, word, scale):
    """Return the index of a word in ``words[begin:end]``, which rise, or -1.

    The search begins where the word would be in an even spread, takes ever longer steps towards it, and ends by
    bisection.
    """
    i, step, last = _guess(begin, end, word, scale), FIRST_STEP, end
    if np.int64(get(words, i)) < word:
        begin = i + 1
        while begin + step < end and np.int64(get(words, begin + step - 1)) < word:
            begin += step
            step *= 2
        end = min(end, begin + step)
    else:
        end = i
        while end - step > begin and np.int64(get(words, end - step)) >= word:
            end -= step
            step *= 2
        begin = max(begin, end - step)
    while begin < end:
        middle = (begin + end) >> 1
        if np.int64(get(words, middle)) < word:
            begin = middle + 1
        else:
            end = middle
    return begin if begin < last and np.int64(get(words, begin)) == word else np.int64(-1)


@helper(inline="always")
def _set_context(t, begin, end, rest, words, n, scale, block):
    """Store the context at token t, and request the ``words`` of the next order that extend it."""
    put(block.begin, t, begin)
    put(block.end, t, end)
    put(block.rest, t, rest)
    if begin < end and t + 1 < n:
        prefetch(words, _guess(begin, end, get(block.words, t + 1), scale))


@helper(inline="always")
def _number(values, node, shift, bits, i):
    """Return a number of n-gram i: by a code of some bits of its node, or without one."""
    return get(values, i if bits == 0 else np.int64(node >> np.uint64(shift)) & ((1 << bits) - 1))


@helper(inline="always")
def _extend(model, m, n, scale, block):
    """Replace the contexts of n tokens, of m words, by those of m + 1 words.

    From the end to the start, so that each token still finds the context before it. Two tokens are under way: the
    words after one are searched, the node of the other, which was requested from memory, is read.
    """
    store, last = model.store, m == len(model.store.orders) - 1
    order = store.orders[m]
    share_bits, rest_bits = order[SHARE_BITS], order[REST_BITS]
    own, following = store.words[order[WORDS] :], store.words[0 if last else store.orders[m + 1, WORDS] :]
    nodes, codes = store.nodes[order[NODES] :], store.codes
    shares, rests = store.values[order[SHARE] :], store.values[order[REST] :]
    shift = np.uint64(share_bits + rest_bits)
    for t in range(n - 1, -AHEAD, -1):
        if t >= 1:
            i, word = np.int64(-1), get(block.words, t)
            begin, end = get(block.begin, t - 1), get(block.end, t - 1)
            if begin < end:
                i = _find(own, begin, end, word, scale)
                if i >= 0 and last:
                    prefetch(codes, i)
                elif i >= 0:
                    prefetch(nodes, i)
            put(block.at, t, i)
        late = t + AHEAD
        if late >= n:
            continue
        i = get(block.at, late)
        value = get(block.p, late) * get(block.rest, late - 1)
        begin, end, rest = np.int64(0), np.int64(0), 1.0
        if i >= 0:
            if last:
                share = get(shares, np.int64(get(codes, i)) if share_bits else i)
            else:
                node = get(nodes, i)
                if get(block.words, late) != 0:
                    begin, end = np.int64(node >> shift), np.int64(get(nodes, i + 1) >> shift)
                    rest = _number(rests, node, share_bits, rest_bits, i)
                share = _number(shares, node, 0, share_bits, i)
            value = value + share if model.interpolated else share
        put(block.p, late, value)
        if not last:
            _set_context(late, begin, end, rest, following, n, scale, block)
    block.begin[0], block.end[0], block.rest[0] = 0, 0, 1.0  # nothing is known of longer contexts


@helper
def _score(model, n, block):
    """Fill p of n tokens; those without all of their context in the block are wrong."""
    store, order = model.store, model.store.orders[0]
    nodes, shares, rests = store.nodes, store.values[order[SHARE] :], store.values[order[REST] :]
    share_bits, rest_bits = order[SHARE_BITS], order[REST_BITS]
    shift, scale = np.uint64(share_bits + rest_bits), 1.0 / model.n_words
    for t in range(n):
        word = get(block.words, t)
        node = get(nodes, word)
        put(block.p, t, get(shares, word))
        begin, end = np.int64(node >> shift), np.int64(get(nodes, word + 1) >> shift)
        rest = _number(rests, node, share_bits, rest_bits, word)
        _set_context(t, begin, end, rest, store.words, n, scale, block)
    for m in range(1, len(store.orders)):
        _extend(model, m, n, scale, block)


@helper(allocates=True)
def _make_block(n_tokens, n_before):
    """Return a block for n tokens, or for parts of them with some tokens of context before."""
    size = min(n_tokens, BLOCK) + n_before + 1  # room for new tokens after the context, whatever n is
    memory = np.empty(6 * size)  # one array: making it takes as long as scoring a word
    whole, rest, p = memory.view(np.int64), 4 * size, 5 * size
    words, begin, end, at = whole[:size], whole[size : 2 * size], whole[2 * size : 3 * size], whole[3 * size : rest]
    return Block(words, begin, end, at, memory[rest:p], memory[p:])


@helper(allocates=True)
def _score_all(ids, n, model, p):
    """Fill p of n ids of words, in which 0 is the end of a sentence, a block at a time."""
    store, n_before = model.store, max(1, len(model.store.orders) - 1)
    block = _make_block(n, n_before)
    block.words[0] = 0
    t, filled = 0, 1
    while t < n:
        first, done = t, filled
        while filled < len(block.words) and t < n:
            number = get(model.numbers, get(ids, t))
            put(block.words, filled, number)
            prefetch(store.values, store.orders[0, SHARE] + number)
            prefetch(store.nodes, number)
            filled += 1
            t += 1
        _score(model, filled, block)
        for i in range(done, filled):
            put(p, first + i - done, get(block.p, i))
        kept = min(filled, n_before)
        for i in range(kept):
            put(block.words, i, get(block.words, filled - kept + i))
        filled = kept


@helper
def _word_at(text, t, separator, index, unknown):
    """Return the end of the word at t and its id: 0 if it is an edge, -1 if it is unknown and has no stand-in."""
    n, start, mixed = len(text), t, BASIS
    while t < n:
        byte = text[t]
        if byte in (SEPARATOR, LINE) if separator else (byte == 0 or is_white(byte)):
            break
        mixed = (mixed ^ np.uint64(byte)) * PRIME
        t += 1
    mixed = finished(mixed)
    mask, size = len(index.table) - 1, t - start
    slot = np.int64(mixed) & mask
    while True:
        word = np.int64(get(index.table, slot))
        if word < 0:
            # </s> is no word
            is_end = size == 4 and text[start] == 60 and text[start + 1] == 47
            is_end = is_end and text[start + 2] == 115 and text[start + 3] == 62
            return t, np.int64(0) if is_end else unknown
        if get(index.hashes, word) == mixed:
            first = get(index.starts, word)
            if get(index.stops, word) - first == size:
                k = 0
                while k < size and text[start + k] == get(index.text, first + k):
                    k += 1
                if k == size:
                    return t, word
        slot = (slot + 1) & mask


@helper
def _read(text, separator, index, unknown, ends, ids):
    """Fill the ids of a text and the ends of its sentences among them; return their number, or ``OTHER``."""
    n_text, n, n_ends, t, after_separator = len(text), 0, 0, 0, False
    while True:
        if not separator:
            while t < n_text and text[t] != LINE and is_white(text[t]):
                t += 1
        if not after_separator and (t == n_text or text[t] == LINE):
            if n_ends == len(ends):
                return OTHER
            put(ids, n, 0)
            n += 1
            ends[n_ends] = n
            n_ends += 1
            if t == n_text:
                return n if n_ends == len(ends) else OTHER
            t += 1
            continue
        t, word = _word_at(text, t, separator, index, unknown)
        if word <= 0 or (t < n_text and text[t] == 0):
            return OTHER
        after_separator = separator and t < n_text and text[t] == SEPARATOR
        if after_separator:
            t += 1
        put(ids, n, word)
        n += 1


@helper
def _add_logs(ids, n, p, log_p):
    """Fill log p of the sentences of n tokens; return False if one is impossible.

    One logarithm serves as many tokens as floating-point numbers allow: it is that of a product.
    """
    n_ends, total, product = 0, 0.0, 1.0
    for t in range(n):
        value = get(p, t)
        if value == 0.0:
            return False
        product *= value
        is_end = get(ids, t) == 0
        if is_end or product < LEAST:
            total += math.log(product)
            product = 1.0
        if is_end:
            log_p[n_ends] = total
            n_ends += 1
            total = 0.0
    return True


@kernel(allocates=True)
def score_text(text, separator, model: Model, index, unknown, ends, log_p):
    """Fill log p of the sentences of a text; return the number of tokens.

    ``ends`` (sentences,) are the ends of sentences among the tokens. Returns ``OTHER`` if there are more or fewer
    sentences than ``ends`` has, a word is a sentence edge, impossible, or unknown without a stand-in, or there is a NUL
    between white space. ``index`` is a `data.ids.WordIndex`, ``unknown`` the id of the stand-in for words that it does
    not list, or -1.
    """
    # A word before each separator and each end of a sentence, which may all be empty.
    ids = np.empty(len(text) + 2 * len(ends) + 1, np.int64)
    n = _read(text, separator, index, unknown, ends, ids)
    if n == OTHER:
        return OTHER
    p = np.empty(n)
    _score_all(ids, n, model, p)
    return n if _add_logs(ids, n, p, log_p) else OTHER


@kernel(allocates=True)
def score_ids(ids, model: Model, p):
    """Fill p of ids of words, in which 0 is the start or end of a sentence; values at starts have no meaning."""
    _score_all(ids, len(ids), model, p)
