"""Mini-batches whose sentences are spread over processes: what the ranks send each other for one update.

Each rank computes the residuals (S numbers per token: expected minus observed labels) of its own sentences. It sends
them with the ids of the weights of each token, and its counts of label pairs (S x S): per token 4 bytes for each weight
of an attribute and for each label, whatever the number of features. Every rank then applies the contributions of all
ranks in order of rank, so that weights stay the same bit for bit. Tokens without a residual are left out.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trelliswork.models.crf.kernels.objective import TokenRows
from trelliswork.models.crf.layout import Floats, counting

Numbers = NDArray[np.int32]


def shares(sizes: Sequence[int], batch_size: int, rank: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the mini-batches end among the sentences of a rank (n + 1,), and their total sizes (n,).

    Each rank has a share of every batch in proportion to its number of sentences (``sizes``), rounded so that the sums
    vary little: rank r of R starts r / R of a sentence ahead. Batches of no sentence are possible.

    Examples
    --------
    >>> shares([4, 2], 2, 0)
    (array([0, 1, 2, 4]), array([2, 1, 3]))
    """
    n, R = -(-sum(sizes) // batch_size), len(sizes)
    ends = [(np.arange(n + 1) * size * R + r * n) // (n * R) for r, size in enumerate(sizes)]
    return ends[rank], np.diff(sum(ends))


def pack(tokens: TokenRows, which: NDArray[np.int64], residual: Floats, counts: Floats) -> Numbers:
    """Return what the tokens ``which`` contribute: their weights, residuals (n, S) in float32, and counts (S, S)."""
    wide_n, narrow_n = (ptr[which + 1] - ptr[which] for ptr in (tokens.wide_ptr, tokens.narrow_ptr))
    wide = np.repeat(tokens.wide_ptr[which], wide_n) + counting(wide_n)
    narrow = np.repeat(tokens.narrow_ptr[which], narrow_n) + counting(narrow_n)
    values = []
    if len(tokens.wide_values) + len(tokens.narrow_values):
        values = [tokens.wide_values[wide], tokens.narrow_values[narrow]]
    floats = [np.ascontiguousarray(array).reshape(-1).view(np.int32) for array in (residual, counts, *values)]
    head = np.array([len(which), len(wide), len(narrow), len(values)])
    integers = head, wide_n, narrow_n, tokens.wide_ids[wide], tokens.narrow_ids[narrow]
    return np.concatenate([*(array.astype(np.int32) for array in integers), *floats])


def unpack(parts: Sequence[Numbers], n_labels: int, width: int) -> tuple[TokenRows, Floats, Floats]:
    """Return the contributions of all ranks together: weights of tokens, residuals (n, Sw) and counts (S, S)."""
    S, pieces, has_values = n_labels, [], any(part[3] for part in parts)
    for part in parts:
        n, n_wide, n_narrow, given = part[:4].tolist()
        sizes = [4, n, n, n_wide, n_narrow, n * S, 2 * S * S, *([n_wide, n_narrow] if given else [])]
        _, *piece = np.split(part, np.cumsum(sizes)[:-1])
        if has_values and not given:
            piece += [np.ones(size, np.float32).view(np.int32) for size in (n_wide, n_narrow)]
        pieces.append(piece)
    wide_n, narrow_n, wide_ids, narrow_ids, rows, pairs, *values = zip(*pieces, strict=True)
    wide_values, narrow_values = (np.concatenate(v).view(np.float32) for v in values or (_NONE, _NONE))
    wide_ptr, narrow_ptr = (np.concatenate([[0], np.cumsum(np.concatenate(n))]) for n in (wide_n, narrow_n))
    wide, narrow = (wide_ptr, np.concatenate(wide_ids)), (narrow_ptr, np.concatenate(narrow_ids))
    residual = np.zeros((len(wide_ptr) - 1, width), np.float32)
    residual[:, :S] = np.concatenate(rows).view(np.float32).reshape(-1, S)
    counts = sum((pair.view(np.float64) for pair in pairs), np.zeros(S * S)).reshape(S, S)
    return TokenRows(*wide, wide_values, *narrow, narrow_values), residual, counts


_NONE = (np.empty(0, np.int32),)  # all values are 1
