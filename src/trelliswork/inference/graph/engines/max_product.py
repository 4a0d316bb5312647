r"""Max-product: the best assignment on forests, a good one elsewhere.

.. math:: r_{f \to v}(x_v) = \max_{x_f \setminus x_v} \theta_f(x_f) + \sum_{w \ne v} q_{w \to f}(x_w)

The messages are decoded node by node, breadth first: a variable takes its best state given those that are decided
already. On a forest this is an assignment of largest score, ties or not.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from trelliswork.inference.graph.engines.passing import (
    Messages,
    check_options,
    fresh_messages,
    pass_messages,
    sweep_forest,
)
from trelliswork.inference.graph.kernels import max_product as max_kernels
from trelliswork.inference.graph.layout import unpad_states
from trelliswork.inference.graph.result import Result
from trelliswork.inference.graph.wiring import Integers, Wiring


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
    schedule, max_iter
        As in `bp.run`.
    damping : float, optional
        Share of the old message in the new one; by default 0 on forests and 0.5 elsewhere, where maxima tend to swing.
    tolerance : float
        Converged when no entry of a message (a score) would change by more, relative to it beyond 1.

    Returns
    -------
    Result
        ``assignment`` (B, V) and its score ``log_z``: the largest there is if ``kind`` is "exact", which it is for
        forests, else a lower bound of it ("lower"). Where no possible assignment was found, -1 and -inf; on a forest
        there is none then. ``marginals`` are the max-marginals, exp(best score with this state - best score).
    """
    messages = fresh_messages(wiring)
    if damping is None:
        damping = 0.0 if messages.layout.is_forest else 0.5
    check_options(schedule, damping, tolerance, max_iter)
    damping, tolerance = float(damping), float(tolerance)
    if schedule == "auto" and messages.layout.is_forest and not wiring.structured and damping == 0:
        progress = sweep_forest(messages, maximise=True)
    else:
        progress = pass_messages(
            messages,
            schedule="flooding" if schedule == "auto" else schedule,
            damping=damping,
            tolerance=tolerance,
            max_iter=max_iter,
            maximise=True,
        )
    log_beliefs = np.full_like(messages.log_unary, -np.inf)
    max_kernels.max_beliefs(messages.net, messages.log_unary, messages.log_r, log_beliefs)
    assignment = _decode(messages)
    found = np.asarray((assignment >= 0).all(axis=1))
    score = np.full(wiring.n_graphs, -np.inf)
    if found.any():
        score[found] = wiring.score(np.where(found[:, None], assignment, 0))[found]
    assignment[score == -np.inf] = -1
    marginals = np.exp(unpad_states(messages.layout, log_beliefs))
    marginals[score == -np.inf] = 0
    exact = messages.layout.is_forest and bool(progress.converged.all())
    factors = partial(wiring.indicators, assignment)
    return Result(score, "exact" if exact else "lower", marginals, *progress, factors, assignment=assignment)


def _decode(messages: Messages) -> Integers:
    """States (B, V), breadth first; the messages of decided variables are set to what was decided."""
    wiring, layout = messages.wiring, messages.layout
    B, V = wiring.n_graphs, wiring.n_variables
    assignment = np.full((B, V), -1)
    messages = replace(messages, log_q=np.zeros_like(messages.log_q))
    messages.gather(np.arange(V))
    nodes = layout.order
    if wiring.structured:  # they decide for all their variables at once, as soon as they are reached
        stops = np.flatnonzero(nodes >= V + layout.n_tables)
    else:
        stops = np.zeros(0, np.int64)
    start = 0
    for stop in [*stops.tolist(), len(nodes)]:
        part = nodes[start:stop]
        data = messages.data
        max_kernels.decode(
            part[part < V], messages.net, data.weights, data.log_weights, data.shifts, messages.log_unary,
            messages.log_r, messages.log_q, messages.rows, assignment,
        )  # fmt: skip
        if stop < len(nodes):
            f = int(nodes[stop]) - V
            factor = wiring.structured[f - layout.n_tables]
            best = factor.best(messages.log_q[:, messages.states_of(f)]).assignment
            max_kernels.decide(factor.variables, best, messages.net, messages.log_q, assignment)
        start = stop
    return assignment
