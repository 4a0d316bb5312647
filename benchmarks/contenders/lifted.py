"""Lifted inference: ours, the paper's sub-gradient, and torch alone, on the same random tables.

``tighten`` makes the star bound of a field (Zipf unary, low-rank tables) tight to ``gap`` nats of log Z of the star and
counts passes of belief propagation; ``pass`` computes normalizers and gradients of K low-rank tables (three matrix
products and an exponential each); ``step`` is one training step of K = 2 on the Penn Treebank, or on a random text, and
for the contender ``twenty_times`` on the same text repeated 20 times: both should take the same time.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.declarations import Params, Task

Array = npt.NDArray[np.float64]
MOST_PASSES = 500


def tables(params: Params) -> tuple[Array, list[tuple[Array, Array]]]:
    """Return the seeded unary (C,) of Zipf's law and K pairs of factors (C, D)."""
    C, K, D = (params[name] for name in ("C", "K", "D"))
    rng = np.random.default_rng(params["seed"])
    unary = -np.log(np.arange(1.0, C + 1))
    size = D**-0.25  # scores of deviation 1
    return unary, [(size * rng.standard_normal((C, D)), size * rng.standard_normal((C, D))) for _ in range(K)]


def trelliswork(params: Params) -> Task:
    """Return the task with our code: the fast update of delta; tiles; an evaluation of the training objective."""
    if params["task"] == "tighten":
        return _tighten(params, sub_gradient=False)
    if params["task"] == "step":
        return _step(params, 1)
    from trelliswork.inference.lifted.conditionals import conditionals

    unary, factors = tables(params)
    weights = np.exp(unary) / np.exp(unary).sum()

    def call() -> list[Any]:
        return [conditionals(left, right, unary, weights) for left, right in factors]

    return Task(call, lambda passes: _digest([(p.log_norm, p.left, p.right) for p in passes]))


def sub_gradient(params: Params) -> Task:
    """Return the task with the paper's algorithm 1 on our passes, with its best initial rate, up to the same gap."""
    if params["task"] != "tighten":
        raise NotImplementedError("only for tightening")
    return _tighten(params, sub_gradient=True)


def twenty_times(params: Params) -> Task:
    """Return the task with our code on the text repeated 20 times and 20 times the penalty: the same problem."""
    if params["task"] != "step":
        raise NotImplementedError("only for a training step")
    return _step(params, 20)


def plain_torch(params: Params) -> Task:
    """Return the task with plain torch: products and exponentials of whole tables, without sums and shifts."""
    if params["task"] != "pass":
        raise NotImplementedError("only for one pass")
    import torch

    unary, factors = tables(params)
    weights = torch.from_numpy(np.exp(unary) / np.exp(unary).sum()).float()
    bias = torch.from_numpy(unary).float()
    pairs = [(torch.from_numpy(a).float(), torch.from_numpy(b).float()) for a, b in factors]
    C = params["C"]
    space = torch.empty(C, C)

    def call() -> list[Any]:
        results = []
        for left, right in pairs:
            torch.addmm(bias, left, right.T, out=space)
            space.exp_()
            norm = space.sum(1, keepdim=True)
            share = weights[:, None] / norm
            results.append((norm.log()[:, 0], (space @ right) * share, space.T @ (left * share)))
        return results

    return Task(call, _digest)


def _digest(passes: list[Any]) -> dict[str, Any]:
    log_norm, left, right = (np.asarray(part, np.float64) for part in passes[0])
    return {"log_norm": log_norm[:5].tolist(), "left": left[0, :3].tolist(), "right": right[0, :3].tolist()}


def _tighten(params: Params, sub_gradient: bool) -> Task:
    from trelliswork.inference.lifted import LowRankTable, Star

    unary, factors = tables(params)
    star = Star(unary, [LowRankTable(left, right) for left, right in factors])
    best = star.tighten(tol=1e-9, max_passes=500).value
    gap = params["gap"] / (params["K"] + 1)

    def descend(n_passes: int, rate: float) -> list[float]:
        return _sub_gradient(star, n_passes, rate) if sub_gradient else star.tighten(tol=0, max_passes=n_passes).history

    passes = {}
    for rate in (20.0, 100.0, 1000.0) if sub_gradient else (1.0,):
        reached = np.flatnonzero(np.array(descend(MOST_PASSES, rate)) <= best + gap)
        passes[rate] = int(reached[0]) + 1 if len(reached) else MOST_PASSES
    rate = min(passes, key=lambda r: passes[r])

    def call() -> Any:
        return descend(passes[rate], rate)

    return Task(call, lambda bounds: {"only_value": min(bounds), "only_passes": passes[rate], "only_rate": rate})


def _sub_gradient(star: Any, n_passes: int, rate: float) -> list[float]:
    """Return the bounds by algorithm 1 of the paper; the step size is halved whenever the bound increases."""
    delta, bounds = np.zeros((star.K, star.n_words)), []
    for _ in range(n_passes):
        log_z, log_margins = star.belief_propagation(delta)
        bounds.append(log_z / (star.K + 1))
        if len(bounds) > 1 and bounds[-1] > bounds[-2]:
            rate /= 2
        margins = np.exp(log_margins)
        delta = delta - rate * (margins[1:] - margins[0])
    return bounds


def _step(params: Params, times: int) -> Task:
    from trelliswork.data.moments import count_moments
    from trelliswork.models.mrf.objective import MomentObjective
    from trelliswork.models.mrf.shapes import Frequencies, LowRankShape
    from trelliswork.models.mrf.start import first_parameters

    moments = count_moments(_text(params), 2)
    shape = LowRankShape(len(moments.vocabulary), 2, params["D"])
    start = first_parameters(shape, Frequencies.of(moments), seed=params["seed"])
    # Sentences are independent, so the counts of a repeated text are multiples of its counts.
    moments = replace(
        moments,
        unary=times * moments.unary,
        pairs=tuple(times * pairs for pairs in moments.pairs),
        lengths=times * moments.lengths,
    )
    frequencies = Frequencies.of(moments)
    objective = MomentObjective(shape, frequencies, np.array([0.5, 0.5]), l2=0.5 * times)
    at = start * objective.scale
    return Task(lambda: objective(at), lambda result: {"value": result.value, "only_positions": moments.n_positions})


def _text(params: Params) -> Any:
    if params["text"] == "ptb":
        from benchmarks.contenders.crf import data_folder

        return data_folder() / "ptb-lm" / "ptb.train.txt"
    rng = np.random.default_rng(params["seed"])
    p = 1 / np.arange(1, params["C"])
    words = rng.choice(params["C"] - 1, (1000, 20), p=p / p.sum())
    return [[f"w{i}" for i in sentence] for sentence in words.tolist()]
