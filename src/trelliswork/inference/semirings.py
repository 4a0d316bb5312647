r"""Compiled recursions of any structure whose structures are the paths of a graph, generic in the semiring.

A structure is one plain function that lists the edges into a node; `Recursions` compiles it into every query. Nodes are
numbered so that edges lead from lower to higher numbers; all paths lead from node 0, which has no edges into it, to the
last node. An edge takes a score of its sequence (its *part*, such as a label at a position) and one that all sequences
share (its *pair*, such as a transition), or one of both. With :math:`w_e` the sum of both, :math:`\oplus` the sum of
a semiring and :math:`e = (u, v)`:

.. math::
    \alpha_0 &= 0 & (1)\\
    \alpha_v &= \textstyle\bigoplus_{e = (u, v)} \alpha_u + w_e, \qquad \log Z = \alpha_{\text{last}} & (2)\\
    q_e &= \exp(\alpha_u + w_e - \alpha_v) & (3)\\
    p_{\text{last}} &= 1, \qquad p_e = p_v\, q_e, \qquad p_u = \textstyle\sum_{e = (u, v)} p_e & (4)

A semiring is the function that does (2) for one node: `log_sum`, and `best` for the k best (k = 1: the maximum).
:math:`q_e` is the probability that a path to v arrives by e. Expectations (4) are the gradient of log Z; a sample
follows (3) from the last node to node 0. With all scores 0, exp(log Z) is the number of structures.

This is the plain tier: log space, float64, no intrinsics, right for every input, one sequence after the other.

>>> def words(sizes, b, v, sources, parts, pairs):
...     "The edges of a chain of two labels: node 1 + 2 t + j is label j at position t."
...     n_labels = 2
...     t, j = (v - 1) // n_labels, (v - 1) % n_labels
...     if t == 0:
...         sources[0], parts[0], pairs[0] = 0, j, -1
...         return 1
...     for i in range(n_labels):
...         sources[i] = 1 + (t - 1) * n_labels + i
...         last = v == 1 + sizes.lengths[b] * n_labels  # the last node
...         parts[i], pairs[i] = (-1, -1) if last else (t * n_labels + j, i * n_labels + j)
...     return n_labels
>>> class Sizes(NamedTuple):
...     lengths: Any
>>> lengths = np.array([3, 1])
>>> graph = Lattice(Sizes(lengths), nodes=2 + 2 * lengths, widest=2, longest=5)
>>> chains = Recursions(words)
>>> chains.log_partition(graph, np.zeros((2, 6)), np.zeros(4)).round(4).tolist()  # 8 and 2 structures
[2.0794, 0.6931]
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trelliswork.compute import threads
from trelliswork.compute.checks import number_of_best
from trelliswork.compute.jit import helper, kernel
from trelliswork.compute.kernels.merge import insert
from trelliswork.compute.limits import check_cost

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
COST = 20  # multiplications that an edge takes as long as


class Lattice(NamedTuple):
    """The graphs of a batch.

    ``edges(sizes, b, v, sources, parts, pairs)`` writes the nodes from which the edges into node v of sequence b come,
    the index of the score of each in row b, and that of its shared score, or -1 for none; it returns their number.
    """

    sizes: Any  # what ``edges`` reads: a NamedTuple of arrays and whole numbers
    nodes: Integers  # (B,) number of nodes
    widest: int  # largest number of edges into a node
    longest: int  # largest number of nodes of a path


class Expectations(NamedTuple):
    """log Z (B,), expected parts (B, P) and pairs (B, Q); zeros where no path is possible."""

    log_z: Doubles
    parts: Doubles
    pairs: Doubles


@helper
def log_sum(terms, sources, v, values, back):
    """Set values[v, 0] to the log of the sum of exp(values of the source + term) over edges; no pointers."""
    top = -np.inf
    for k in range(terms.size):
        top = max(top, values[sources[k], 0] + terms[k])
    if top > -np.inf:
        mass = 0.0
        for k in range(terms.size):
            mass += math.exp(values[sources[k], 0] + terms[k] - top)
        top += math.log(mass)
    values[v, 0] = top


@helper
def best(terms, sources, v, values, back):
    """Set values[v] to the K largest of values of the source + term, sorted, and back[v] to source * K + rank there."""
    K = values.shape[1]
    values[v] = -np.inf
    for k in range(terms.size):
        for rank in range(K):
            value = values[sources[k], rank] + terms[k]
            if not value > values[v, K - 1]:
                break
            back[v, insert(value, values[v], back[v])] = sources[k] * K + rank


class Links(NamedTuple):
    """All edges of a batch, sorted by the level of their node: the number of edges of the longest way to it."""

    level: Integers  # (E,)
    node: Integers  # (E,) numbered through the batch
    source: Integers  # (E,) numbered through the batch
    sequence: Integers  # (E,)
    part: Integers  # (E,) -1 for none
    pair: Integers  # (E,) -1 for none


class Kernels(NamedTuple):
    """The compiled functions of a structure."""

    log_partition: Any
    expectations: Any
    topk: Any
    sample: Any
    links: Any


class Recursions:
    """The compiled queries of a structure, made from its ``edges`` (see `Lattice`), a plain function."""

    def __init__(self, edges: Callable[..., int]) -> None:
        self.kernels = _compiled(helper(edges))

    def log_partition(self, lattice: Lattice, parts: Doubles, pairs: Doubles) -> Doubles:
        """Return log Z (B,) from scores of parts (B, P) and pairs (Q,); -inf where no path is possible."""
        log_z = np.empty(len(lattice.nodes))
        threads.run(self.kernels.log_partition, _ranges(lattice), lattice, parts, pairs, log_z)
        return log_z

    def expectations(self, lattice: Lattice, parts: Doubles, pairs: Doubles) -> Expectations:
        """Return log Z and the expected use of each part and pair, from one pass forward and one back."""
        B = len(lattice.nodes)
        out = Expectations(np.empty(B), np.zeros(parts.shape), np.zeros((B, len(pairs))))
        threads.run(self.kernels.expectations, _ranges(lattice, 2), lattice, parts, pairs, out)
        return out

    def topk(self, lattice: Lattice, parts: Doubles, pairs: Doubles, k: int) -> tuple[Integers, Doubles]:
        """Return the nodes of the k best paths (B, k, longest), last node first, -1 beyond, and scores (B, k).

        The score is -inf where there are fewer than k; axis 1 is shorter if there are always fewer.
        """
        k = number_of_best(k, (lattice.widest, lattice.longest))
        B, n = len(lattice.nodes), int(lattice.nodes.max())
        what = f"a search for the {k:,} best structures"
        check_cost(what, operations=float(n) * lattice.widest * k, n_bytes=(16.0 * n + 8.0 * B * lattice.longest) * k)
        paths, scores = np.full((B, k, lattice.longest), -1), np.full((B, k), -np.inf)
        threads.run(self.kernels.topk, _ranges(lattice, k), lattice, parts, pairs, paths, scores)
        return paths, scores

    def sample(self, lattice: Lattice, parts: Doubles, pairs: Doubles, uniforms: Doubles) -> tuple[Doubles, Integers]:
        """Return log Z (B,) and the nodes of exact draws (n, B, longest), last node first, -1 beyond.

        ``uniforms`` (n, B, longest) are numbers in [0, 1).
        """
        log_z, paths = np.empty(len(lattice.nodes)), np.full(uniforms.shape, -1)
        threads.run(self.kernels.sample, _ranges(lattice, 2), lattice, parts, pairs, uniforms, log_z, paths)
        return log_z, paths

    def links(self, lattice: Lattice) -> Links:
        """Return all edges, for recursions in torch operations."""
        offsets = np.concatenate([[0], np.cumsum(lattice.nodes)])
        rows = np.empty((self.kernels.links(lattice, offsets, np.empty((0, 6), np.int64)), 6), np.int64)
        self.kernels.links(lattice, offsets, rows)
        return Links(*rows[np.argsort(rows[:, 0], kind="stable")].T.copy())


def labels_of(paths: Integers, n_positions: int, n_labels: int, n_nodes: int) -> Integers:
    """Return labels (.., T) of paths (.., longest) over graphs with ``n_nodes`` nodes per position after node 0.

    The first nodes of a position are its labels. There is -1 where a path has none.
    """
    labels = np.full((*paths.shape[:-1], n_positions), -1)
    position, label = np.divmod(paths[..., 1:] - 1, n_nodes)  # without the last node
    *row, node = np.nonzero((position >= 0) & (label < n_labels))
    labels[*row, position[*row, node]] = label[*row, node]
    return labels


def _ranges(lattice: Lattice, times: int = 1) -> threads.Ranges:
    return threads.cut(lattice.nodes * (lattice.widest * COST * times), least=threads.LEAST_WORK)


@helper
def _weigh(row, pairs, part, pair):
    """Return the score of an edge."""
    score = row[part] if part >= 0 else 0.0
    return score + pairs[pair] if pair >= 0 else score


def _over_nodes(into: Any, combine: Any) -> Any:
    """Return the recursion (1), (2) of a semiring over the nodes of one sequence."""

    @helper
    def over_nodes(lattice, b, row, pairs, links, terms, values, back):
        """Fill values (nodes, K), best first, and back."""
        values[0] = -np.inf
        values[0, 0] = 0.0
        for v in range(1, lattice.nodes[b]):
            n = into(lattice, b, v, row, pairs, links, terms)
            combine(terms[:n], links[0], v, values, back)

    return over_nodes


def _compiled(edges: Any) -> Kernels:
    """Return the kernels of a structure."""

    @helper
    def into(lattice, b, v, row, pairs, links, terms):
        """Fill links (3, widest), the edges into a node, and terms, their scores; return their number."""
        n = edges(lattice.sizes, b, v, links[0], links[1], links[2])
        for k in range(n):
            terms[k] = _weigh(row, pairs, links[1, k], links[2, k])
        return n

    sums, maxima = _over_nodes(into, log_sum), _over_nodes(into, best)

    @kernel(allocates=True)
    def log_partition(start, stop, lattice, parts, pairs, log_z):
        """Fill log_z (B,)."""
        alpha, links = np.empty((lattice.nodes[start:stop].max(), 1)), np.empty((3, lattice.widest), np.int64)
        terms = np.empty(lattice.widest)
        for b in range(start, stop):
            sums(lattice, b, parts[b], pairs, links, terms, alpha, links)
            log_z[b] = alpha[lattice.nodes[b] - 1, 0]

    @kernel(allocates=True)
    def expectations(start, stop, lattice, parts, pairs, out):
        """Fill `Expectations` from zero."""
        alpha, links = np.empty((lattice.nodes[start:stop].max(), 1)), np.empty((3, lattice.widest), np.int64)
        reached, terms = np.empty(alpha.shape[0]), np.empty(lattice.widest)
        for b in range(start, stop):
            row, last = parts[b], lattice.nodes[b] - 1
            sums(lattice, b, row, pairs, links, terms, alpha, links)
            out.log_z[b] = alpha[last, 0]
            if out.log_z[b] == -np.inf:
                continue
            reached[:last] = 0.0
            reached[last] = 1.0
            for v in range(last, 0, -1):
                if reached[v] == 0:
                    continue
                n = into(lattice, b, v, row, pairs, links, terms)
                for k in range(n):
                    u, part, pair = links[0, k], links[1, k], links[2, k]
                    p = reached[v] * math.exp(alpha[u, 0] + terms[k] - alpha[v, 0])  # (3), (4)
                    reached[u] += p
                    if part >= 0:
                        out.parts[b, part] += p
                    if pair >= 0:
                        out.pairs[b, pair] += p

    @kernel(allocates=True)
    def topk(start, stop, lattice, parts, pairs, paths, scores):
        """Fill the k best paths (B, k, longest) and scores (B, k), best first."""
        K = scores.shape[1]
        n_nodes = lattice.nodes[start:stop].max()
        values, back = np.empty((n_nodes, K)), np.empty((n_nodes, K), np.int64)
        links, terms = np.empty((3, lattice.widest), np.int64), np.empty(lattice.widest)
        for b in range(start, stop):
            last = lattice.nodes[b] - 1
            maxima(lattice, b, parts[b], pairs, links, terms, values, back)
            scores[b] = values[last]
            for k in range(K):
                if scores[b, k] == -np.inf:
                    break
                v, rank, at = last, k, 0
                while v > 0:
                    paths[b, k, at] = v
                    v, rank = back[v, rank] // K, back[v, rank] % K
                    at += 1
                paths[b, k, at] = 0

    @kernel(allocates=True)
    def sample(start, stop, lattice, parts, pairs, uniforms, log_z, paths):
        """Draw paths (n, B, longest), with one uniform number per node; fill log_z (B,)."""
        alpha, links = np.empty((lattice.nodes[start:stop].max(), 1)), np.empty((3, lattice.widest), np.int64)
        terms = np.empty(lattice.widest)
        for b in range(start, stop):
            row = parts[b]
            sums(lattice, b, row, pairs, links, terms, alpha, links)
            log_z[b] = alpha[lattice.nodes[b] - 1, 0]
            if log_z[b] == -np.inf:
                continue
            for draw in range(paths.shape[0]):
                v, at = lattice.nodes[b] - 1, 0
                while v > 0:
                    paths[draw, b, at] = v
                    n = into(lattice, b, v, row, pairs, links, terms)
                    left, chosen = uniforms[draw, b, at], -1
                    for k in range(n):
                        q = math.exp(alpha[links[0, k], 0] + terms[k] - alpha[v, 0])
                        if q > 0:
                            chosen = k  # the last possible edge takes the remainder of rounding
                            left -= q
                            if left < 0:
                                break
                    v = links[0, chosen]
                    at += 1
                paths[draw, b, at] = 0

    @kernel(allocates=True)
    def links(lattice, offsets, rows):
        """Fill rows (E, 6), see `Links`, in order of nodes; return E. With no rows, count only."""
        level, found, n_edges = np.zeros(lattice.nodes.max(), np.int64), np.empty((3, lattice.widest), np.int64), 0
        for b in range(lattice.nodes.size):
            for v in range(1, lattice.nodes[b]):
                n = edges(lattice.sizes, b, v, found[0], found[1], found[2])
                level[v] = 0
                for k in range(n):
                    level[v] = max(level[v], level[found[0, k]] + 1)
                for k in range(n if rows.shape[0] else 0):
                    row = rows[n_edges + k]
                    row[0], row[1], row[2], row[3] = level[v], offsets[b] + v, offsets[b] + found[0, k], b
                    row[4], row[5] = found[1, k], found[2, k]
                n_edges += n
        return n_edges

    return Kernels(log_partition, expectations, topk, sample, links)
