"""Compiled templates on columns of ids or hashes: shifts within sentences, hashes of templates, rows of attributes."""

import numpy as np

from trelliswork.compute.jit import helper, kernel


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
