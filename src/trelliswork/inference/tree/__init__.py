r"""Dependency trees over arc scores: log partition functions, marginals, best and random trees.

.. math:: p(y) = \frac1Z \exp\Big(\sum_d s(h_d, d)\Big)

``tree_potentials`` checks the input once; the functions of ``eisner`` (projective trees) and ``matrix_tree`` (all
spanning trees) take its result. Node 0 is the root; one word hangs from it, or any number. Time O(n^3), memory O(n^2) a
sentence, unless a function says otherwise.
"""

from trelliswork.inference.tree import eisner, matrix_tree
from trelliswork.inference.tree.potentials import Potentials, arcs, check_arcs, tree_potentials

__all__ = ["Potentials", "arcs", "check_arcs", "eisner", "matrix_tree", "tree_potentials"]
