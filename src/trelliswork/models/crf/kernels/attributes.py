"""Compiled scores of labels from attributes, for tagging: each token is scored once, so few are laid out at a time."""

from typing import Any, NamedTuple

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.compute.simd import get
from trelliswork.models.crf.kernels.objective import TokenRows, scores

FEW = 3  # single weights of an attribute are fewer than this
TOGETHER = 64  # tokens whose rows are laid out together, in the cache


class AttributeRows(NamedTuple):
    """Attributes of tokens in compressed rows, and where the weights of each attribute are.

    ``places[a]`` is the dense row of attribute a or, if it has single weights, -1 - (FEW f + n): n weights from f on.
    """

    token_ptr: Any
    ids: Any
    values: Any  # empty: all 1
    places: Any  # (n_attributes,)


@kernel(allocates=True)
def attribute_scores(start, stop, tokens, weights, n_labels, out):
    """Store the label scores of tokens ``start`` to ``stop``, Sw numbers each, in ``out`` (n_tokens, Sw)."""
    token_ptr, ids, values, places = tokens
    most, Sw = 1, weights.wide.shape[1]
    for first in range(start, stop, TOGETHER):
        most = max(most, token_ptr[min(first + TOGETHER, stop)] - token_ptr[first])
    wide_ptr, narrow_ptr = np.zeros(TOGETHER + 1, np.int64), np.zeros(TOGETHER + 1, np.int64)
    wide_ids, narrow_ids = np.empty(most, np.int32), np.empty((FEW - 1) * most, np.int32)
    n_values = most if values.size else 0
    wide_values, narrow_values = np.empty(n_values, np.float32), np.empty((FEW - 1) * n_values, np.float32)
    rows = TokenRows(wide_ptr, wide_ids, wide_values, narrow_ptr, narrow_ids, narrow_values)
    for first in range(start, stop, TOGETHER):
        n_tokens = min(TOGETHER, stop - first)
        w = n = 0
        for i in range(n_tokens):
            for at in range(token_ptr[first + i], token_ptr[first + i + 1]):
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
            wide_ptr[i + 1], narrow_ptr[i + 1] = w, n
        scores(0, n_tokens, rows, weights, n_labels, out, first * Sw)
