"""Distributions over projective dependency trees."""

from trelliswork.distributions.tree_base import DependencyTree
from trelliswork.inference.tree.autograd import PROJECTIVE


class ProjectiveTree(DependencyTree):
    r"""Projective dependency trees scored by their arcs: no two arcs cross when drawn above the sentence.

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
    Eisner (1996, 2000). Time O(n^3), memory O(n^2) per sentence. float32 or float64, computed in float64; scores of any
    size. Trees are heads (B, n): ``heads[b, d - 1]`` is the head of word d, -1 in the padding; with labels they are
    pairs (B, n, 2) of head and label. ``log_partition``, ``marginals``, ``entropy``, ``log_prob`` and ``kl`` are
    differentiable.

    Examples
    --------
    >>> import torch
    >>> trees = ProjectiveTree(torch.zeros(1, 4, 4), single_root=False)
    >>> round(trees.log_partition().exp().item())  # 12 projective trees over three words
    12
    >>> scores = torch.zeros(1, 4, 4)
    >>> scores[0, 0, 2] = scores[0, 2, 1] = scores[0, 2, 3] = 1.0
    >>> ProjectiveTree(scores).argmax().labels.tolist()
    [[2, 0, 2]]
    """

    engine = PROJECTIVE
    projective = True
