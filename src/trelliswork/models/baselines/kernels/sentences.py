"""Compiled queries of n-grams: text or ids to the probabilities of words and sentence ends.

All tables and the index of the words come in one array, ``tables``, of numbers and addresses (see `compute.addresses`),
since calls are often for one sentence. `models.baselines.sentences` fills it in the order of the names below.

A text is scored in blocks of tokens. Each token has its context, the longest one of the present order that ends there:
the n-grams of the next order that extend it (``begin:end``) and the factor of the order below (``rest``). The end of a
sentence is the start of the next one.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute.addresses import (
    byte_at,
    equal16,
    equal32,
    float64_at,
    int32_at,
    int64_at,
    less16,
    less32,
    lowest_bit,
    prefetch_at,
    uint16_at,
    uint32_at,
    uint64_at,
)
from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get, put
from trelliswork.data.kernels.bytes import BASIS, PRIME, finished, is_white

# Of the model; of its index of words (`data.ids.WordIndex`); then of each order.
N_WORDS, INTERPOLATED, UNKNOWN, NUMBERS, TEXT, TABLE, MASK, HASHES, STARTS, STOPS, ORDERS = range(11)
WORDS, IS_NARROW, NODES, NODE_BYTES, SHARE, REST, SHARE_BITS, REST_BITS, PER_ORDER = range(9)
SEPARATOR, LINE = 31, 10  # between words, if it is not white space; between sentences
OTHER = -1  # a text that needs the general functions: most likely an error
BLOCK = 512  # tokens
NEAR = 4  # cache lines that are searched one after another
LEAST = 1e-150  # least product of probabilities; the next one is above 1e-99
N_OTHERS = 5  # numbers of a block besides its tokens
AHEAD = 12  # tokens between the request of a cache line and its use


class Block(NamedTuple):
    """Tokens that are scored together; each array (tokens,)."""

    words: NDArray[np.int64]  # numbers in the tables; 0 is a sentence edge
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    at: NDArray[np.int64]  # the n-gram of this order that ends at the token, or -1
    rest: NDArray[np.float64]
    p: NDArray[np.float64]
    others: NDArray[np.float64]  # (N_OTHERS,) the state of `_add_logs`, and room for one sentence


@helper(inline="always")
def _guess(begin, end, word, scale):
    """Return where a word would be if words were spread evenly."""
    return min(begin + np.int64(np.float64(word) * np.float64(end - begin) * scale), end - 1)


@helper
def _find(words, log_size, equal, less, begin, end, word, scale):
    """Return the index of a word in ``words[begin:end]``, which rise, or -1.

    The search begins at the cache line where the word would be in an even spread, goes on to the lines beside it, and
    after some of them by bisection. ``words`` is an address. A line that has one of the words can be read, whatever
    else it has: it lies in one page of memory.
    """
    lanes, i, n_lines = 64 >> log_size, _guess(begin, end, word, scale), 0
    while begin < end:
        line = (words + (i << log_size)) & -64
        first = (line - words) >> log_size
        valid = (np.int64(1) << lanes) - 1
        if first < begin:
            valid &= np.int64(-1) << (begin - first)
        if first + lanes > end:
            valid &= (np.int64(1) << (end - first)) - 1
        same = equal(line, word) & valid
        if same:
            return first + lowest_bit(same)
        smaller = less(line, word) & valid
        if smaller == valid:
            begin = i = first + lanes
        elif smaller == 0:
            end, i = first, first - 1
        else:
            return -1
        n_lines += 1
        if n_lines > NEAR:
            i = (begin + end) >> 1
    return -1


@helper(inline="always")
def _set_context(t, begin, end, rest, tables, k, n, scale, block):
    """Store the context at token t, and request the words that extend it, of the order at k."""
    put(block.begin, t, begin)
    put(block.end, t, end)
    put(block.rest, t, rest)
    if begin < end and t + 1 < n:
        i = _guess(begin, end, get(block.words, t + 1), scale)
        prefetch_at(get(tables, k + WORDS) + (i << (1 if get(tables, k + IS_NARROW) else 2)))


@helper(inline="always")
def _extend(tables, k, n, last, scale, block):
    """Replace the contexts of n tokens, of the order below, by those of the order whose numbers start at k.

    From the end to the start, so that each token still finds the context before it. Two tokens are under way: the
    words after one are searched, the node of the other, which was requested from memory, is read.
    """
    own, is_narrow = tables[k + WORDS], tables[k + IS_NARROW]
    nodes, node_bytes = tables[k + NODES], tables[k + NODE_BYTES]
    shares, rests = tables[k + SHARE], tables[k + REST]
    share_bits, rest_bits = tables[k + SHARE_BITS], tables[k + REST_BITS]
    shift = np.uint64(share_bits + rest_bits)
    for t in range(n - 1, -AHEAD, -1):
        if t >= 1:
            i, word = np.int64(-1), get(block.words, t)
            begin, end = get(block.begin, t - 1), get(block.end, t - 1)
            if begin < end:
                if is_narrow:
                    i = _find(own, 1, equal16, less16, begin, end, word, scale)
                else:
                    i = _find(own, 2, equal32, less32, begin, end, word, scale)
                if i >= 0:
                    prefetch_at(nodes + node_bytes * i)
            put(block.at, t, i)
        late = t + AHEAD
        if late >= n:
            continue
        i = get(block.at, late)
        value = get(block.p, late) * get(block.rest, late - 1)
        begin, end, rest = np.int64(0), np.int64(0), 1.0
        if i >= 0:
            code = i
            if not last:
                node = uint64_at(nodes, i)
                if get(block.words, late) != 0:
                    begin, end = np.int64(node >> shift), np.int64(uint64_at(nodes, i + 1) >> shift)
                    rest = _rest(rests, node, share_bits, rest_bits, i)
                if share_bits:
                    code = np.int64(node) & ((1 << share_bits) - 1)
            elif share_bits:
                code = uint16_at(nodes, i) if node_bytes == 2 else uint32_at(nodes, i)
            share = float64_at(shares, code)
            value = value + share if tables[INTERPOLATED] else share
        put(block.p, late, value)
        if not last:
            _set_context(late, begin, end, rest, tables, k + PER_ORDER, n, scale, block)
    block.begin[0], block.end[0], block.rest[0] = 0, 0, 1.0  # nothing is known of longer contexts


@helper(inline="always")
def _rest(rests, node, share_bits, rest_bits, i):
    if rest_bits == 0:
        return float64_at(rests, i)
    return float64_at(rests, np.int64(node >> np.uint64(share_bits)) & ((1 << rest_bits) - 1))


@helper
def _score(tables, n, block):
    """Fill p of n tokens; those without all of their context in the block are wrong."""
    nodes, shares, rests = tables[ORDERS + NODES], tables[ORDERS + SHARE], tables[ORDERS + REST]
    share_bits, rest_bits = tables[ORDERS + SHARE_BITS], tables[ORDERS + REST_BITS]
    shift, last = np.uint64(share_bits + rest_bits), len(tables) - PER_ORDER
    scale = 1.0 / tables[N_WORDS]
    for t in range(n):
        word = get(block.words, t)
        node = uint64_at(nodes, word)
        put(block.p, t, float64_at(shares, word))
        begin, end = np.int64(node >> shift), np.int64(uint64_at(nodes, word + 1) >> shift)
        rest = _rest(rests, node, share_bits, rest_bits, word)
        _set_context(t, begin, end, rest, tables, min(ORDERS + PER_ORDER, last), n, scale, block)
    for k in range(ORDERS + PER_ORDER, len(tables), PER_ORDER):
        _extend(tables, k, n, k == last, scale, block)


@helper(inline="always", allocates=True)
def _block(n_tokens, tables):
    """Return a block for a text of n tokens, or for parts of it, and the number of tokens of context between parts."""
    n_before = max(1, (len(tables) - ORDERS) // PER_ORDER - 1)
    size = min(n_tokens, BLOCK) + n_before + 1  # room for new tokens after the context, whatever n is
    memory = np.empty(6 * size + N_OTHERS)  # one array: making it takes as long as scoring a word
    whole, rest, p, others = memory.view(np.int64), 4 * size, 5 * size, 6 * size
    whole[0] = 0
    words, begin, end, at = whole[:size], whole[size : 2 * size], whole[2 * size : 3 * size], whole[3 * size : rest]
    block = Block(words, begin, end, at, memory[rest:p], memory[p:others], memory[others:])
    block.others[:3] = 0, 0, 1
    return block, n_before


@helper(inline="always")
def _move(n, n_before, block):
    """Move the last tokens of n to the start of the block, as the context of the next ones; return their number."""
    n_before = min(n, n_before)
    for t in range(n_before):
        block.words[t] = block.words[n - n_before + t]
    return n_before


@helper
def _word_at(text, t, separator, tables):
    """Return the end of the word at t and its id: 0 if it is an edge, -1 if it is unknown and has no stand-in."""
    n, start, mixed = len(text), t, BASIS
    while t < n:
        byte = text[t]
        if byte in (SEPARATOR, LINE) if separator else (byte == 0 or is_white(byte)):
            break
        mixed = (mixed ^ np.uint64(byte)) * PRIME
        t += 1
    mixed = finished(mixed)
    mask, size = tables[MASK], t - start
    slot = np.int64(mixed) & mask
    while True:
        word = int32_at(tables[TABLE], slot)
        if word < 0:
            # </s> is no word
            is_end = size == 4 and text[start] == 60 and text[start + 1] == 47
            is_end = is_end and text[start + 2] == 115 and text[start + 3] == 62
            return t, np.int64(0) if is_end else tables[UNKNOWN]
        if uint64_at(tables[HASHES], word) == mixed:
            first = int64_at(tables[STARTS], word)
            if int64_at(tables[STOPS], word) - first == size:
                k = 0
                while k < size and text[start + k] == byte_at(tables[TEXT], first + k):
                    k += 1
                if k == size:
                    return t, word
        slot = (slot + 1) & mask


@helper
def _add_logs(first, n, block, log_p):
    """Add log p of the tokens ``first`` to n to those of their sentences; return False if one is impossible.

    The block holds the number of sentences that have ended, and of the present one the logarithm of a part of its
    tokens and the product of the others: one logarithm serves as many tokens as floating-point numbers allow.
    """
    state = block.others
    n_ends, total, product = np.int64(state[0]), state[1], state[2]
    for t in range(first, n):
        p = get(block.p, t)
        if p == 0.0:
            return False
        product *= p
        is_end = get(block.words, t) == 0
        if is_end or product < LEAST:
            total += math.log(product)
            product = 1.0
        if is_end:
            log_p[n_ends] = total
            n_ends += 1
            total = 0.0
    state[0], state[1], state[2] = n_ends, total, product
    return True


@helper
def _score_text(text, separator, tables, ends, p, log_p, block, n_before):
    """Fill ``ends``, and p or log_p unless they are empty, by blocks; see the kernels. Makes no arrays."""
    n_text, n_ends, n_out, t = len(text), 0, 0, 0
    n = n_done = 1  # tokens of the block, and those of them that have been scored
    after_separator, at_end = False, False
    while not at_end:
        while n < len(block.words):
            if not separator:
                while t < n_text and text[t] != LINE and is_white(text[t]):
                    t += 1
            if not after_separator and (t == n_text or text[t] == LINE):
                if n_ends == len(ends):
                    return OTHER
                block.words[n] = 0
                n += 1
                ends[n_ends] = n_out + n - n_done
                n_ends += 1
                at_end = t == n_text
                if at_end:
                    break
                t += 1
                continue
            t, word = _word_at(text, t, separator, tables)
            if word <= 0 or (t < n_text and text[t] == 0):
                return OTHER
            after_separator = separator and t < n_text and text[t] == SEPARATOR
            if after_separator:
                t += 1
            block.words[n] = number = int64_at(tables[NUMBERS], word)
            prefetch_at(tables[ORDERS + SHARE] + 8 * number)
            prefetch_at(tables[ORDERS + NODES] + 8 * number)
            n += 1
        _score(tables, n, block)
        if len(log_p):
            if not _add_logs(n_done, n, block, log_p):
                return OTHER
        elif n_out + n - n_done > len(p):
            return OTHER
        else:
            for i in range(n_done, n):
                if block.p[i] == 0.0:
                    return OTHER
                p[n_out + i - n_done] = block.p[i]
        n_out += n - n_done
        n = n_done = _move(n, n_before, block)
    return n_out if n_ends == len(ends) else OTHER


@kernel(allocates=True)
def score_text(text, separator, tables, ends, p, log_p):
    """Fill p of the words and sentence ends of a text, or, if p is empty, log p of its sentences.

    ``ends`` (sentences,) are the ends of sentences among the tokens. Returns the number of tokens. Or ``OTHER``: there
    are more tokens than p has room for, more or fewer sentences than ``ends`` has, a word is a sentence edge,
    impossible, or unknown without a stand-in, or there is a NUL between white space.
    """
    block, n_before = _block((len(text) >> 1) + 2, tables)
    return _score_text(text, separator, tables, ends, p, log_p, block, n_before)


@kernel(allocates=True)
def log_prob(text, separator, tables, n_words):
    """Return log p of a text of one sentence, or nan where `score_text` returns ``OTHER``.

    Also if the number of words is not ``n_words``, unless that is negative.
    """
    block, n_before = _block((len(text) >> 1) + 2, tables)
    ends, log_p = block.others[3:4].view(np.int64), block.others[4:]
    n = _score_text(text, separator, tables, ends, log_p[:0], log_p, block, n_before)
    return log_p[0] if n == n_words + 1 or (n >= 0 and n_words < 0) else np.nan


@helper
def _score_ids(ids, tables, p, block, n_before):
    """Fill p by blocks; see `score_ids`."""
    t, n = 0, 1
    while t < len(ids):
        first, n_done = t, n
        while n < len(block.words) and t < len(ids):
            block.words[n] = int64_at(tables[NUMBERS], ids[t])
            n += 1
            t += 1
        _score(tables, n, block)
        for i in range(n_done, n):
            p[first + i - n_done] = block.p[i]
        n = _move(n, n_before, block)


@kernel(allocates=True)
def score_ids(ids, tables, p):
    """Fill p of ids of words, in which 0 is the start or end of a sentence; values at starts have no meaning."""
    block, n_before = _block(len(ids), tables)
    _score_ids(ids, tables, p, block, n_before)
