"""One sentence of ready attributes from its JSON text to its best labels, by one call."""

import numpy as np

from trelliswork.compute.jit import kernel
from trelliswork.features.kernels.ready import DEEPEST, DONE, Found, read
from trelliswork.inference.chain.kernels.records import Chains
from trelliswork.inference.chain.kernels.viterbi import viterbi
from trelliswork.models.crf.kernels.layout import AttributeRows, attribute_scores


@kernel(allocates=True)
def best_labels(text, zeros, names, places, weights, ends, n_labels, out):
    """Fill ``out`` (n_tokens,) and return the score; nan if the text is odd.

    ``weights`` is a ``FeatureWeights``, ``ends`` a ``LabelScores``, both with contiguous arrays.
    """
    T, most = len(out), len(text) // 3
    found = Found(np.empty(most, np.int32), np.empty(most, np.float32), np.zeros(T + 1, np.int64))
    at = np.array([1, 0, 0, 0], np.int64)
    name, stack = np.empty(len(text), np.uint8), np.empty((DEEPEST, 3), np.int64)
    if read(text, False, zeros, names, name, stack, found, at) != DONE:
        return np.nan
    n = 0
    for t in range(T):  # without the unknown ones
        first, found.token_ptr[t] = found.token_ptr[t], n
        for k in range(first, found.token_ptr[t + 1]):
            if found.ids[k] >= 0:
                found.ids[n], found.values[n] = found.ids[k], found.values[k]
                n += 1
    found.token_ptr[T] = n
    scores = np.empty((1, T, weights.wide.shape[1]), np.float32)
    rows = AttributeRows(found.token_ptr, found.ids[:n], found.values[:n], places)
    attribute_scores(0, T, rows, weights, n_labels, scores[0])
    scores[0, 0] += ends.start
    scores[0, T - 1] += ends.end
    labels, best = np.empty((1, T), np.int64), np.empty(1)
    chains = Chains(np.zeros(1, np.int64), np.full(1, T), scores)
    viterbi(0, 1, chains, ends.log_transition.reshape(1, n_labels, n_labels), labels, best)
    out[:] = labels[0]
    return best[0]
