"""Segmentations of sequences, with a label for each segment (semi-Markov chains): their graph, for `Recursions`.

Between positions stand *starts*, where a segment with a label begins; at positions stand *ends*. An edge from start to
end is a segment and takes its score; an edge from end to start takes the transition between the labels of both.
"""

from typing import NamedTuple

from trelliswork.inference.semirings import Integers, Lattice, Recursions


class Sizes(NamedTuple):
    """What `edges` reads: lengths (B,) of sequences, the largest length of a segment, the number of labels."""

    lengths: Integers
    longest: int
    n_labels: int


def edges(sizes: Sizes, b: int, v: int, sources: Integers, parts: Integers, pairs: Integers) -> int:
    """List the edges into node v. Nodes are 0, then S starts and S ends of each position, and the last one."""
    S, L = sizes.n_labels, sizes.longest
    if v == 1 + 2 * sizes.lengths[b] * S:  # the last node, from the ends at the last position
        for i in range(S):
            sources[i], parts[i], pairs[i] = v - S + i, -1, -1
        return S
    t, j = (v - 1) // (2 * S), (v - 1) % S
    if (v - 1) % (2 * S) < S:  # a start, from the ends at the position before
        if t == 0:
            sources[0], parts[0], pairs[0] = 0, -1, -1
            return 1
        for i in range(S):
            sources[i], parts[i], pairs[i] = v - j - S + i, -1, i * S + j
        return S
    n = min(L, t + 1)  # an end, from the starts of segments of n lengths
    for k in range(n):
        sources[k], parts[k], pairs[k] = v - S - 2 * S * k, ((t - k) * L + k) * S + j, -1
    return n


SEGMENTATIONS = Recursions(edges)


def lattice(lengths: Integers, n_positions: int, longest: int, n_labels: int) -> Lattice:
    """Return the graphs of a batch. Parts are segments (T, L, S) by start, length - 1 and label; pairs are (S, S)."""
    sizes = Sizes(lengths, longest, n_labels)
    return Lattice(sizes, 2 + 2 * lengths * n_labels, max(longest, n_labels), 2 + 2 * n_positions)
