"""Epochs of stochastic gradients on torch tensors under a watch, by an optimizer of torch; resumes from checkpoints."""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from trelliswork.learning.checkpoint import Arrays, with_prefix
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch

Tensors = Mapping[str, torch.Tensor]


def descend(
    epoch: Callable[[int], Step],
    tensors: Tensors,
    optimizer: torch.optim.Optimizer,
    watch: Watch,
    *,
    max_iter: int,
    settled: Callable[[list[Step]], str | None] = lambda steps: None,
    snapshot: Callable[[], Arrays] | None = None,
    seconds: float = 0.0,
) -> tuple[Arrays, FitReport]:
    """Run epochs until there is a reason to stop; return the best parameters, or the last ones, and the report.

    ``epoch(number)``, counted from 1, updates the tensors in place by the optimizer, and must depend on them and the
    number alone, so that a resumed run ends as an uninterrupted one. ``settled`` returns from all steps why training
    has converged. ``snapshot`` returns the parameters that the watch measures and keeps, by default the tensors.
    ``seconds`` is the time that was spent before the first epoch.
    """
    report, take = FitReport(False, f"{max_iter} epochs", math.nan), snapshot or partial(_arrays, tensors)
    saved = watch.resume()
    if saved is not None:
        report.resume(saved[0]["history"])
        restore(tensors, optimizer, saved[1])
    started = time.perf_counter() - (seconds if saved is None else report.seconds)
    while (end := settled(report.history)) is None and report.n_iter < max_iter:
        step = epoch(report.n_iter + 1)
        step.seconds = time.perf_counter() - started
        report.add(step)
        reason = watch.after(step, take(), partial(_state, tensors, optimizer, report))
        if reason is not None:
            report.reason, report.converged = reason, not watch.interrupted
            break
    if end is not None:
        report.reason, report.converged = end, True
    return watch.finish(take(), report)


def _arrays(tensors: Tensors) -> Arrays:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _state(tensors: Tensors, optimizer: torch.optim.Optimizer, report: FitReport) -> Saved:
    return {"history": report.steps()}, state(tensors, optimizer)


def state(tensors: Tensors, optimizer: torch.optim.Optimizer) -> Arrays:
    """Return tensors and the state of their optimizer as arrays, for a checkpoint."""
    arrays = _arrays(tensors)
    for name, tensor in tensors.items():
        arrays |= {f"{name}/{key}": value.numpy() for key, value in optimizer.state[tensor].items()}
    return arrays


@torch.no_grad()
def restore(tensors: Tensors, optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Continue from ``state``'s result."""
    for name, tensor in tensors.items():
        tensor.copy_(torch.from_numpy(arrays[name]))
        own = with_prefix(arrays, f"{name}/")
        optimizer.state[tensor] = {key: torch.from_numpy(array.copy()) for key, array in own.items()}
