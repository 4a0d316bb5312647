r"""Belief propagation (sum-product): exact on forests, an estimate elsewhere.

.. math::
    q_{v \to f}(x_v) &= e^{u_v(x_v)} \prod_{g \ne f} r_{g \to v}(x_v) \\
    r_{f \to v}(x_v) &\propto \sum_{x_f \setminus x_v} e^{\theta_f(x_f)} \prod_{w \ne v} q_{w \to f}(x_w) \\
    \log Z &\approx \sum_v (1 - d_v) \log \sum_{x_v} e^{u_v} \prod_f r_{f \to v}
    + \sum_f \log \sum_{x_f} e^{\theta_f} \prod_v q_{v \to f}

The last line is Bethe's approximation at a fixed point. Its gradient in the log-potentials is the beliefs, because its
derivatives in the messages are zero there. Yedidia, Freeman and Weiss (2005).
"""

from functools import partial

import numpy as np

from trelliswork.compute import threads
from trelliswork.inference.graph.engines.passing import (
    Messages,
    Progress,
    check_options,
    fresh_messages,
    pass_messages,
    sweep_forest,
)
from trelliswork.inference.graph.kernels import bethe as bethe_kernels
from trelliswork.inference.graph.kernels import flooding as bp_kernels
from trelliswork.inference.graph.layout import unpad_states
from trelliswork.inference.graph.result import Result
from trelliswork.inference.graph.wiring import Doubles, Wiring

COARSEST = 1e-10  # a threshold of underflow beyond this would send too many graphs to the slower road for nothing


def run(
    wiring: Wiring,
    *,
    schedule: str = "auto",
    damping: float = 0.0,
    tolerance: float = 1e-8,
    max_iter: int = 500,
) -> Result:
    """Pass messages to a fixed point and read off beliefs and Bethe's log Z.

    Parameters
    ----------
    wiring : Wiring
    schedule : {"auto", "flooding", "sequential", "residual"}
        ``flooding`` computes all messages from the last ones; ``sequential`` sweeps over the variables, there and
        back, and uses each new message at once; ``residual`` always takes the message that changes most. ``auto`` is
        one iteration of sweeps on a forest of tables without damping, and flooding elsewhere.
    damping : float
        Share of the old message in the new one, 0 to below 1: helps where messages swing.
    tolerance : float
        Converged when no entry of a message would change by more: as a probability where flooding can compute with
        these, else as a logarithm (relative to it beyond 1).
    max_iter : int
        At most so many iterations; one of ``residual`` is as many messages as there are.

    Returns
    -------
    Result
        ``kind`` is "exact" if the graph is a forest and all graphs converged, else "estimate". A graph whose messages
        vanish has no possible assignment: log Z is -inf and its marginals are zero.

    Notes
    -----
    An iteration takes time linear in the total size of the tables, memory linear in variables and factors.
    """
    check_options(schedule, damping, tolerance, max_iter)
    damping, tolerance = float(damping), float(tolerance)
    messages = fresh_messages(wiring)
    if schedule == "auto" and messages.layout.is_forest and not wiring.structured and damping == 0:
        progress = sweep_forest(messages, maximise=False)
    elif schedule in ("auto", "flooding"):
        progress = _flood(messages, damping, tolerance, max_iter)
    else:
        progress = pass_messages(
            messages, schedule=schedule, damping=damping, tolerance=tolerance, max_iter=max_iter, maximise=False
        )
    return _result(messages, progress)


def _flood(messages: Messages, damping: float, tolerance: float, max_iter: int) -> Progress:
    """In probability space where nothing can be lost, in log space where something might be."""
    B = messages.wiring.n_graphs
    n_iter, residual, status = np.zeros(B, np.int64), np.zeros(B), np.full(B, bp_kernels.UNDERFLOW)
    unary = _weights_of_states(messages)
    threshold = _threshold(messages)
    # Padding and impossible states have weight zero, and so has what was lost: the logarithms tell them apart.
    possible = messages.log_unary > -np.inf
    lowest = min(messages.data.lowest, float(unary.min(where=possible, initial=1.0)))
    if not messages.wiring.structured and threshold <= COARSEST and lowest >= threshold:
        status[:] = bp_kernels.RUNNING
        data = messages.data
        r = np.broadcast_to(_uniform(messages), messages.log_r.shape).copy()

        def work(start: int, stop: int) -> None:
            bp_kernels.flood(
                start, stop, messages.net, data.weights, unary, r, messages.log_q, messages.rows, damping, tolerance,
                max_iter, threshold, n_iter, residual, status,
            )  # fmt: skip

        threads.run(work, messages.ranges)
        keep = status != bp_kernels.UNDERFLOW
        with np.errstate(divide="ignore"):
            messages.log_r[keep] = np.log(r[keep])
        messages.log_r[status == bp_kernels.IMPOSSIBLE] = -np.inf
    skip = status != bp_kernels.UNDERFLOW
    converged = (status == bp_kernels.CONVERGED) | (status == bp_kernels.IMPOSSIBLE)
    if not skip.all():
        rest = pass_messages(
            messages,
            schedule="flooding",
            damping=damping,
            tolerance=tolerance,
            max_iter=max_iter,
            maximise=False,
            skip=skip,
        )
        n_iter, residual = np.where(skip, n_iter, rest.n_iter), np.where(skip, residual, rest.residual)
        converged = np.where(skip, converged, rest.converged)
    return Progress(n_iter, residual, converged)


def _weights_of_states(messages: Messages) -> Doubles:
    """exp(log_unary) with largest entry 1 for each variable, zero in the padding and for an impossible variable."""
    layout, log_unary = messages.layout, messages.log_unary
    if not log_unary.shape[1]:
        return np.zeros_like(log_unary)
    top = np.maximum.reduceat(log_unary, layout.state_at[:-1], axis=1)
    top[top == -np.inf] = 0
    return np.exp(log_unary - np.repeat(top, layout.widths, axis=1))


def _threshold(messages: Messages) -> float:
    """The smallest t so that a product of as many numbers >= t as an iteration ever multiplies is a normal number."""
    degree = np.diff(messages.layout.var_start)
    longest = 1
    for group in messages.wiring.groups:
        of_slots = degree[group.variables]
        longest = max(longest, 1 + int((of_slots.sum(axis=1) - of_slots.min(axis=1)).max()))
    return 10.0 ** (-300.0 / longest)


def _uniform(messages: Messages) -> Doubles:
    """Messages (M,) that sum to one, zero in the padding."""
    layout = messages.layout
    at = layout.edge_variable
    share = np.repeat(1.0 / layout.n_states[at], layout.widths[at])
    place = np.arange(layout.edge_at[-1]) - np.repeat(layout.edge_at[:-1], layout.widths[at])
    return np.where(place < np.repeat(layout.n_states[at], layout.widths[at]), share, 0.0)


def _result(messages: Messages, progress: Progress) -> Result:
    """Beliefs and Bethe's value of the messages as they are."""
    wiring, layout, data = messages.wiring, messages.layout, messages.data
    log_z = np.zeros(wiring.n_graphs)
    log_beliefs = np.full_like(messages.log_unary, -np.inf)

    def work(start: int, stop: int) -> None:
        bethe_kernels.finish(
            start, stop, messages.net, data.weights, data.log_weights, data.shifts, messages.log_unary, messages.log_r,
            messages.log_q, messages.rows, log_beliefs, log_z,
        )  # fmt: skip

    threads.run(work, messages.ranges)
    for f, factor in enumerate(wiring.structured, layout.n_tables):
        value = factor.propagate(messages.log_q[:, messages.states_of(f)]).log_value
        log_z = np.where((log_z == -np.inf) | (value == -np.inf), -np.inf, log_z + value)
    marginals = np.exp(unpad_states(layout, log_beliefs))
    marginals[log_z == -np.inf] = 0
    exact = layout.is_forest and bool(progress.converged.all())
    return Result(
        log_z,
        "exact" if exact else "estimate",
        marginals,
        *progress,
        compute_factor_marginals=partial(factor_beliefs, messages, log_z),
    )


def factor_beliefs(messages: Messages, log_z: Doubles) -> tuple[Doubles, ...]:
    """Normalised beliefs of the table factors, one array (B, F, s1, .., sk) a group, zero for impossible graphs."""
    found = []
    first = 0
    for group in messages.wiring.groups:
        slots = messages.layout.fac_start[first : first + len(group)]
        beliefs = np.array(np.broadcast_to(group.dense(), (messages.wiring.n_graphs, len(group), *group.shape)))
        for k, size in enumerate(group.shape):
            at = messages.layout.edge_at[messages.layout.fac_edge[slots + k]][:, None] + np.arange(size)
            axes = (1,) * k + (size,) + (1,) * (len(group.shape) - 1 - k)
            beliefs += messages.log_q[:, at].reshape(*beliefs.shape[:2], *axes)
        every = tuple(range(2, beliefs.ndim))
        top = beliefs.max(axis=every, keepdims=True)
        beliefs -= np.where(top > -np.inf, top, 0)
        np.exp(beliefs, out=beliefs)
        totals = beliefs.sum(axis=every, keepdims=True)
        beliefs /= np.where(totals > 0, totals, 1)
        beliefs[log_z == -np.inf] = 0
        found.append(beliefs)
        first += len(group)
    return tuple(found)
