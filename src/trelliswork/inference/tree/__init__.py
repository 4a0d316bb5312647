r"""Dependency trees over arc scores: log partition functions, marginals, best and random trees.

.. math:: p(y) = \frac1Z \exp\Big(\sum_d s(h_d, d)\Big)

``tree_potentials`` checks the input once; the methods of ``eisner`` (projective trees) and ``matrix_tree`` (all
spanning trees) take its result, and ``match_marginals`` inverts them; `NearlyProjective` gives crossing arcs a cost,
and ``with_crossings`` adds them to projective trees.
Node 0 is the root; one word depends on it, or any number. Time O(n^3) and memory O(n^2) per sentence, unless stated
otherwise. ``second_order`` adds siblings and grandparents.
"""

from trelliswork.inference.tree.crossing import crossing_moves, with_crossings
from trelliswork.inference.tree.matching import match_marginals
from trelliswork.inference.tree.nearly import NearlyProjective
from trelliswork.inference.tree.passes import eisner, matrix_tree
from trelliswork.inference.tree.potentials import Potentials, arcs, check_arcs, tree_potentials

__all__ = [
    "NearlyProjective",
    "Potentials",
    "arcs",
    "check_arcs",
    "crossing_moves",
    "eisner",
    "match_marginals",
    "matrix_tree",
    "tree_potentials",
    "with_crossings",
]
