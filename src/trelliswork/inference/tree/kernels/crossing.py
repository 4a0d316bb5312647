"""The best change of one head of a tree by which an arc crosses others."""

import numpy as np

from trelliswork.compute.jit import helper, kernel
from trelliswork.inference.tree.kernels.records import Batch


@helper
def _is_below(heads, node, word):
    """Return True if a node is the word or a word below it."""
    while node > 0:
        if node == word:
            return True
        node = heads[node - 1]
    return False


@helper
def _crosses(heads, n, head, word):
    """Return True if the arc from head to word crosses an arc of another word of the tree."""
    low, high = min(head, word), max(head, word)
    for d in range(1, n + 1):
        if d != word:
            h = heads[d - 1]
            if (low < d < high and not low <= h <= high) or (low < h < high and not low <= d <= high):
                return True
    return False


@kernel
def moves(start, stop, batch: Batch, heads, words, targets, gains):
    """Fill the word, its new head and the gain of the best change of each tree (B, n); word 0 if there is none."""
    for at in range(start, stop):
        b = batch.order[at]
        n, scores, tree = batch.lengths[b], batch.log_arc[b], heads[b]
        words[b], targets[b], gains[b] = 0, 0, -np.inf
        for d in range(1, n + 1):
            old = tree[d - 1]
            for h in range(1 if batch.single_root else 0, n + 1):
                gain = scores[h, d] - scores[old, d]
                if gain > gains[b] and h != d and h != old and _crosses(tree, n, h, d) and not _is_below(tree, h, d):
                    words[b], targets[b], gains[b] = d, h, gain
