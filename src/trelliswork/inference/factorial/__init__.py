r"""Factorial chains: several layers of labels over the same tokens, each a chain, tied at every token.

.. math:: p(y) = \frac1Z \exp\Big(\sum_d \sum_t u^d_t(y^d_t) + \sum_d \sum_t w^d(y^d_t, y^d_{t+1})
          + \sum_{d<e} \sum_t v^{de}(y^d_t, y^e_t)\Big)

``factorial_potentials`` checks the input once. ``infer`` runs an engine by its name: ``"exact"`` (the product chain),
``"structured_mean_field"`` (a lower bound) or ``"bp"`` (an estimate); ``decode`` returns a good labeling of all layers,
``topk`` the k best ones.
There is no autograd function: the gradients of the values are the expectations that ``infer`` returns.
"""

from trelliswork.inference.factorial.engines import ENGINES, Beliefs, decode, infer, layer_chains, score
from trelliswork.inference.factorial.potentials import FactorialPotentials, factorial_potentials
from trelliswork.inference.factorial.product import topk

__all__ = [
    "ENGINES",
    "Beliefs",
    "FactorialPotentials",
    "decode",
    "factorial_potentials",
    "infer",
    "layer_chains",
    "score",
    "topk",
]
