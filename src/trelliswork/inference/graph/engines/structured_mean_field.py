r"""Structured mean field: components of variables with exact inference inside each, a lower bound of log Z.

.. math:: q(x) = \prod_d q_d(x_d), \qquad
          q_d(x_d) \propto \exp \sum_f E_{\prod_{d' \ne d} q_{d'}} [\theta_f(x_f)]

A component is a forest: a factor may touch one of its variables, or two, which it then couples. Each update is one
sum-product pass over the component, maximizes the bound over q_d, and so never lowers it. With one component the result
is exact. Zeros are treated as in `mean_field`; those inside a component are handled exactly.
Burkett and Klein, Variational Inference for Structured NLP Models (ACL 2013 tutorial), structured mean field.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from trelliswork.inference.graph.engines import mean_field
from trelliswork.inference.graph.engines.components import find, split
from trelliswork.inference.graph.kernels.mean_field import Components
from trelliswork.inference.graph.kernels.records import Flat
from trelliswork.inference.graph.potentials import Wiring
from trelliswork.inference.graph.result import Result


def run(wiring: Wiring, components: Iterable[Sequence[int]] | None = None, **options: Any) -> Result:
    """Run coordinate ascent on the bound, one component at a time.

    Parameters
    ----------
    wiring : Wiring
    components : iterable of sequences of int, optional
        Variables of each component, each variable in one of them. By default chains and trees are found. The factors
        inside one must not form a cycle, nor touch three of its variables.
    **options
        As in `mean_field.run`, as are result, errors and time. A component starts as its distribution without the
        factors between components.
    """

    def lay_out(wiring: Wiring, flat: Flat) -> Components:
        return split(wiring, flat, find(wiring, flat) if components is None else components)

    return mean_field.run(wiring, lay_out=lay_out, **options)
