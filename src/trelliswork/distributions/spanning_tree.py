"""Distributions over all dependency trees, projective or not."""

from trelliswork.distributions.tree_base import DependencyTree
from trelliswork.inference.tree.autograd import SPANNING


class SpanningTree(DependencyTree):
    r"""Dependency trees scored by their arcs, projective or not: spanning trees of a directed graph.

    .. math:: p(h) \propto \exp\Big(\sum_{d=1}^n s(h_d, d)\Big)

    Parameters
    ----------
    log_arc : Tensor (B, n+1, n+1) or (B, n+1, n+1, L)
        ``log_arc[b, h, d]`` scores the arc from head h to word d; node 0 is the root. -inf forbids an arc. With a
        fourth axis, arcs have one of L labels, and each label a score of its own. The diagonal and column 0 are never
        read.
    lengths : Tensor of int (B,), optional
        Words of each sentence, 1 to n; all n by default. What stands behind them is never read.
    single_root : bool
        True if exactly one word hangs from node 0, False if any number may.
    allowed : Tensor of bool (B, n+1, n+1) or (B, n+1, n+1, L), optional
        Arcs that a tree may have.
    forced : Tensor of bool (B, n+1, n+1), optional
        Arcs that a tree must have: a partial tree.
    backend : {"auto", "kernel", "torch"}
        ``auto`` takes compiled kernels for CPU tensors. ``torch`` computes log Z and marginals by torch operations on
        the tensors' device; best trees and samples are always found on the CPU.

    Notes
    -----
    log Z by the matrix-tree theorem: the Laplacian's determinant, by an elimination without subtractions, so that
    scores of any size are exact (``inference/tree/matrix_tree_kernels.py``). Time O(n^3), memory O(n^2) a sentence.
    ``argmax`` is Chu-Liu-Edmonds, O(n^2); ``topk`` partitions the set of trees, O(k n^3). Marginals are right to about
    1e-12: what is impossible may show a rounding error of that size, and ``kl`` takes nothing below 1e-11 for possible.
    float32 or float64, computed in float64. Trees are given as heads (B, n): ``heads[b, d - 1]`` is the head of word d,
    -1 in the padding; with labels as pairs (B, n, 2) of head and label. ``log_partition``, ``marginals``, ``entropy``,
    ``log_prob`` and ``kl`` are differentiable.

    Examples
    --------
    >>> import torch
    >>> round(SpanningTree(torch.zeros(1, 4, 4), single_root=False).log_partition().exp().item())  # (n + 1) ** (n - 1)
    16
    >>> round(SpanningTree(torch.zeros(1, 4, 4)).log_partition().exp().item())  # n ** (n - 1) with a single root
    9
    """

    engine = SPANNING
    projective = False
    noise = 1e-11
