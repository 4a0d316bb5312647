"""Distributions over all dependency trees, projective or not."""

from trelliswork.distributions.tree_base import DependencyTree
from trelliswork.inference.tree.autograd import SPANNING


class SpanningTree(DependencyTree):
    r"""Dependency trees scored by their arcs, projective or not: spanning trees of a directed graph.

    .. math:: p(h) \propto \exp\Big(\sum_{d=1}^n s(h_d, d)\Big)

    Parameters
    ----------
    log_arc : Tensor (B, n+1, n+1) or (B, n+1, n+1, L)
        ``log_arc[b, h, d]`` is the score of the arc from head h to word d; node 0 is the root. -inf forbids an arc.
        With a fourth axis, arcs have one of L labels, each with its own score. The diagonal and column 0 are ignored.
    lengths : Tensor of int (B,), optional
        Number of words of each sentence, 1 to n; all n by default. The padding is ignored.
    single_root : bool
        True if exactly one word depends on node 0, False if any number may.
    allowed : Tensor of bool (B, n+1, n+1) or (B, n+1, n+1, L), optional
        Arcs that a tree may have.
    forced : Tensor of bool (B, n+1, n+1), optional
        Arcs that a tree must have: a partial tree.
    backend : {"auto", "kernel", "torch"}
        ``auto`` uses compiled kernels for CPU tensors. ``torch`` computes log Z and marginals by torch operations on
        the tensors' device; best trees and samples are always computed on the CPU.

    Notes
    -----
    log Z is the determinant of the Laplacian (matrix-tree theorem), computed by an elimination without subtractions, so
    that scores of any size are exact. Time O(n^3), memory O(n^2) per sentence. ``argmax`` is Chu-Liu-Edmonds, O(n^2);
    ``topk`` partitions the set of trees, O(k n^3). Marginals have errors of up to about 1e-12, also where an arc is
    impossible; ``kl`` treats values below 1e-11 as impossible. float32 or float64, computed in float64. Trees are heads
    (B, n): ``heads[b, d - 1]`` is the head of word d, -1 in the padding; with labels they are pairs (B, n, 2) of head
    and label. ``log_partition``, ``marginals``, ``entropy``, ``log_prob`` and ``kl`` are differentiable.

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
