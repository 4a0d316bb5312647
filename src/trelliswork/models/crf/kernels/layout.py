"""Compiled passes over the attributes of all tokens; they allocate nothing.

Token i has the attributes ``ids[token_ptr[i]:token_ptr[i+1]]``.
"""

import numpy as np

from trelliswork.compute.jit import kernel


@kernel
def mark(token_ptr, ids, labels, n_labels, marks):
    """Set ``marks[a * n_labels + y]`` for each attribute a of each token and the label y of the token."""
    for i in range(len(labels)):
        for at in range(token_ptr[i], token_ptr[i + 1]):
            marks[np.int64(ids[at]) * n_labels + labels[i]] = True


@kernel
def split_sizes(token_ptr, ids, wide_rows, attribute_ptr, wide_ptr, narrow_ptr):
    """Fill the index of each token's first dense row and first single weight, (n_tokens + 1,) each."""
    n_wide = n_narrow = 0
    wide_ptr[0] = narrow_ptr[0] = 0
    for i in range(len(token_ptr) - 1):
        for at in range(token_ptr[i], token_ptr[i + 1]):
            a = ids[at]
            if wide_rows[a] >= 0:
                n_wide += 1
            else:
                n_narrow += attribute_ptr[a + 1] - attribute_ptr[a]
        wide_ptr[i + 1] = n_wide
        narrow_ptr[i + 1] = n_narrow


@kernel
def split(ids, values, wide_rows, attribute_ptr, number, wide_ids, wide_values, narrow_ids, narrow_values):
    """Fill the dense rows and the single weights of all tokens, token after token.

    ``number`` is the index of a feature among the single weights. Values, if any, are copied.
    """
    w = n = 0
    for at in range(len(ids)):
        a = ids[at]
        if wide_rows[a] >= 0:
            wide_ids[w] = wide_rows[a]
            if values.size:
                wide_values[w] = values[at]
            w += 1
        else:
            for f in range(attribute_ptr[a], attribute_ptr[a + 1]):
                narrow_ids[n] = number[f]
                if values.size:
                    narrow_values[n] = values[at]
                n += 1


@kernel
def take(token_ptr, ids, values, which, out_ids, out_values):
    """Fill attributes (and values, if any) of the tokens ``which``, token after token."""
    to = 0
    for i in which:
        for at in range(token_ptr[i], token_ptr[i + 1]):
            out_ids[to] = ids[at]
            if values.size:
                out_values[to] = values[at]
            to += 1
