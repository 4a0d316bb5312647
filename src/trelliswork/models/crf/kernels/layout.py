"""Compiled passes over the attributes of all tokens, and scores of labels from attributes for tagging.

Token i has the attributes ``ids[token_ptr[i]:token_ptr[i+1]]``.
"""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.simd import get
from trelliswork.models.crf.kernels.objective import TokenRows, scores

FEW = 3  # single weights of an attribute are fewer than this
TOGETHER = 64  # tokens whose rows are laid out together for tagging, in the cache: each is scored once


class AttributeRows(NamedTuple):
    """Attributes of tokens in compressed rows, and where the weights of each attribute are.

    ``places[a]`` is the dense row of attribute a or, if it has single weights, -1 - (FEW f + n): n weights from f on.
    """

    token_ptr: Any
    ids: Any
    values: Any  # empty: all 1
    places: Any  # (n_attributes,)


@helper
def _lay(first, stop, attributes, rows):
    """Fill ``rows`` (a ``TokenRows``), from the start on, for the tokens ``first`` to ``stop``."""
    token_ptr, ids, values, places = attributes
    wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values = rows
    w = n = 0
    wide_ptr[0] = narrow_ptr[0] = 0
    for i in range(first, stop):
        for at in range(token_ptr[i], token_ptr[i + 1]):
            place = np.int64(get(places, get(ids, at)))
            if place >= 0:
                wide_ids[w] = place
                if values.size:
                    wide_values[w] = values[at]
                w += 1
            else:
                single, count = (-1 - place) // FEW, (-1 - place) % FEW
                for k in range(count):
                    narrow_ids[n] = single + k
                    if values.size:
                        narrow_values[n] = values[at]
                    n += 1
        wide_ptr[i + 1 - first], narrow_ptr[i + 1 - first] = w, n


@kernel
def lay(attributes, rows):
    """Fill ``rows`` (a ``TokenRows``) for all tokens."""
    _lay(0, len(attributes.token_ptr) - 1, attributes, rows)


@kernel(allocates=True)
def attribute_scores(start, stop, attributes, weights, n_labels, out):
    """Store the label scores of tokens ``start`` to ``stop``, Sw numbers each, in ``out`` (n_tokens, Sw)."""
    token_ptr, values = attributes.token_ptr, attributes.values
    most, Sw = 1, weights.wide.shape[1]
    for first in range(start, stop, TOGETHER):
        most = max(most, token_ptr[min(first + TOGETHER, stop)] - token_ptr[first])
    n_values = most if values.size else 0
    rows = TokenRows(
        np.empty(TOGETHER + 1, np.int64), np.empty(most, np.int32), np.empty(n_values, np.float32),
        np.empty(TOGETHER + 1, np.int64), np.empty((FEW - 1) * most, np.int32),
        np.empty((FEW - 1) * n_values, np.float32),
    )  # fmt: skip
    for first in range(start, stop, TOGETHER):
        last = min(first + TOGETHER, stop)
        _lay(first, last, attributes, rows)
        scores(0, last - first, rows, weights, n_labels, out, first * Sw)


@kernel
def mark(token_ptr, ids, labels, n_labels, marks):
    """Set ``marks[a * n_labels + y]`` for each attribute a of each token and the label y of the token."""
    for i in range(len(labels)):
        for at in range(token_ptr[i], token_ptr[i + 1]):
            marks[np.int64(ids[at]) * n_labels + labels[i]] = True


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
