"""Compiled hash tables from 64-bit keys to consecutive ids, and hashes of templates: strings never appear here.

A table is two arrays whose size is a power of two, ``keys`` and ``ids`` (-1: free). Slots are probed linearly from a
mixed hash, so that consecutive keys do not cluster.
"""

import numpy as np

from trelliswork.compute.jit import helper, kernel

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_SHIFT = np.uint64(32)


@helper
def _slot(key, keys, ids):
    """Return the slot of ``key``, or the free slot where it belongs."""
    mixed = np.uint64(key) * _MULTIPLIER
    mixed ^= mixed >> _SHIFT
    at = np.int64(mixed & np.uint64(len(keys) - 1))
    while ids[at] >= 0 and keys[at] != key:
        at = (at + 1) & (len(keys) - 1)
    return at


@kernel
def number(values, keys, ids, n, out, listed):
    """Set out[i] = id of values[i], with new ids from n on in order of appearance; negative values get -1.

    ``listed`` receives the new keys by id. Returns the new n. The table must have room for all.
    """
    for i in range(len(values)):
        if values[i] < 0:
            out[i] = -1
            continue
        at = _slot(values[i], keys, ids)
        if ids[at] < 0:
            keys[at], ids[at] = values[i], n
            listed[n] = values[i]
            n += 1
        out[i] = ids[at]
    return n


@kernel
def look_up(values, keys, ids, out):
    """Set out[i] = id of values[i], -1 where it is negative or not in the table."""
    for i in range(len(values)):
        out[i] = -1 if values[i] < 0 else ids[_slot(values[i], keys, ids)]


@kernel
def build(listed, keys, ids):
    """Insert listed[id] -> id into an empty table."""
    for n in range(len(listed)):
        at = _slot(listed[n], keys, ids)
        keys[at], ids[at] = listed[n], n


@kernel
def shifted(column, offsets, row, outside_before, outside_after, out):
    """Set out[i] = column[i + row] inside the sentence; else outside_before[k] or _after[k], k+1 positions beyond."""
    for n in range(len(offsets) - 1):
        start, stop = offsets[n], offsets[n + 1]
        for i in range(start, stop):
            at = i + row
            if at < start:
                out[i] = outside_before[start - at - 1]
            elif at >= stop:
                out[i] = outside_after[at - stop]
            else:
                out[i] = column[at]


@helper
def _mix(key):
    """Mix 64 bits by a bijection, the finalizer of SplitMix64 (Steele et al., 2014)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@kernel
def hash_template(hashes, offsets, key, rows, columns, outside_before, outside_after, skip_outside, shift, out):
    """Set out[i] = the bits above ``shift`` of ``key`` mixed with hashes[column, i + row] of each macro in turn.

    Beyond the sentence the hash is outside_before[k] or _after[k], k+1 positions away; out[i] = -1 if skip_outside.
    """
    for n in range(len(offsets) - 1):
        start, stop = offsets[n], offsets[n + 1]
        for i in range(start, stop):
            mixed, skipped = key, False
            for m in range(len(rows)):
                at = i + rows[m]
                if at < start:
                    value, skipped = outside_before[start - at - 1], skip_outside
                elif at >= stop:
                    value, skipped = outside_after[at - stop], skip_outside
                else:
                    value = hashes[columns[m], at]
                mixed = _mix(mixed ^ value)
            out[i] = -1 if skipped else np.int32(mixed >> shift)


@kernel
def gather(words, at, offsets, sources, others, token_ptr, ids):
    """Write the attributes of all tokens, token by token, into CSR form; return their number.

    Template k has ``sources[k] = (slot, row)``: its attribute is words[at[i + row], slot], none beyond the sentence;
    or, if the slot is negative, others[row, i]. An attribute of -1 is none.
    """
    to = 0
    for n in range(len(offsets) - 1):
        start, stop = offsets[n], offsets[n + 1]
        for i in range(start, stop):
            token_ptr[i] = to
            for k in range(len(sources)):
                slot, row = sources[k, 0], sources[k, 1]
                attribute = np.int32(-1)
                if slot < 0:
                    attribute = others[row, i]
                elif start <= i + row < stop:
                    attribute = words[at[i + row], slot]
                if attribute >= 0:
                    ids[to] = attribute
                    to += 1
    token_ptr[offsets[-1]] = to
    return to


@kernel
def compress(columns, token_ptr, ids):
    """Write the non-negative entries of columns (n_templates, n_tokens), token by token, into CSR form."""
    n_templates, n_tokens = columns.shape
    at = 0
    for i in range(n_tokens):
        token_ptr[i] = at
        for k in range(n_templates):
            if columns[k, i] >= 0:
                ids[at] = columns[k, i]
                at += 1
    token_ptr[n_tokens] = at
    return at
