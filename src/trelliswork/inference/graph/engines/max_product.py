r"""Max-product: the best assignment on forests, a good one elsewhere.

.. math:: r_{f \to v}(x_v) = \max_{x_f \setminus x_v} \theta_f(x_f) + \sum_{w \ne v} q_{w \to f}(x_w)

The messages are decoded node by node, breadth first: each variable takes its best state given those decided before.
On a forest this is an assignment of largest score, with or without ties.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.inference.graph.engines.schedules import Prepared, check_options, pass_messages, prepare
from trelliswork.inference.graph.kernels import beliefs as belief_kernels
from trelliswork.inference.graph.layout import unpad_states
from trelliswork.inference.graph.potentials import Integers, Wiring
from trelliswork.inference.graph.result import Result


def run(
    wiring: Wiring,
    *,
    schedule: str = "auto",
    damping: float | None = None,
    tolerance: float = 1e-8,
    max_iter: int = 500,
) -> Result:
    """Pass max-product messages and decode an assignment.

    Parameters
    ----------
    wiring : Wiring
    schedule : {"auto", "flooding", "sequential"}
        As in `bp.run`.
    max_iter : int
        Maximum number of iterations.
    damping : float, optional
        Fraction of the old message in the new one; by default 0 on forests and 0.5 elsewhere, where maxima tend to
        oscillate.
    tolerance : float
        Converged when no entry of a message (a score) would change by more; relative beyond 1.

    Returns
    -------
    Result
        ``assignment`` (B, V) and its score ``log_z``: the largest score if ``kind`` is "exact", as for forests, else a
        lower bound of it ("lower"). Where no possible assignment was found, -1 and -inf; on a forest there is none
        then. ``marginals`` are the max-marginals, exp(best score with this state - best score).
    """
    if schedule == "residual":
        raise ValueRangeError("max-product has no schedule='residual': use 'sequential' or 'flooding'.")
    graph = prepare(wiring)
    if damping is None:
        damping = 0.0 if graph.layout.is_forest else 0.5
    progress = pass_messages(graph, check_options(schedule, damping, tolerance, max_iter), maximize=True)
    log_beliefs = np.full_like(graph.messages.log_unary, -np.inf)
    belief_kernels.max_beliefs(graph.layout, graph.messages, log_beliefs)
    assignment = _decode(graph)
    decided = np.asarray((assignment >= 0).all(axis=1))
    score = np.full(wiring.n_graphs, -np.inf)
    if decided.any():
        score[decided] = wiring.score(np.where(decided[:, None], assignment, 0))[decided]
    assignment[score == -np.inf] = -1
    marginals = np.exp(unpad_states(graph.layout, log_beliefs))
    marginals[score == -np.inf] = 0
    exact = graph.layout.is_forest and bool(progress.converged.all())
    factors = partial(wiring.indicators, assignment)
    return Result(score, "exact" if exact else "lower", marginals, *progress, factors, assignment=assignment)


def _decode(graph: Prepared) -> Integers:
    """Return states (B, V), decided breadth first; messages of decided variables are fixed to their states."""
    wiring, layout = graph.wiring, graph.layout
    B, V = wiring.n_graphs, wiring.n_variables
    assignment = np.full((B, V), -1)
    graph = replace(graph, messages=graph.messages._replace(log_q=np.zeros_like(graph.messages.log_q)))
    graph.gather(np.arange(V))
    messages, nodes = graph.messages, layout.order
    # Structured factors decide all their variables at once, as soon as they are reached.
    stops = np.flatnonzero(nodes >= V + layout.n_tables)
    start = 0
    for stop in [*stops.tolist(), len(nodes)]:
        part = nodes[start:stop]
        belief_kernels.decode(part[part < V], layout, graph.data, messages, assignment)
        if stop < len(nodes):
            f = int(nodes[stop]) - V
            factor = wiring.structured[f - layout.n_tables]
            best = factor.best(messages.log_q[:, graph.states_of(f)]).assignment
            belief_kernels.decide(factor.variables, best, layout, messages.log_q, assignment)
        start = stop
    return assignment
