"""Training of a grammar by gradients: Adam on batches of sentences."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from trelliswork.compute.torch_threads import one_thread
from trelliswork.learning.checkpoint import Arrays
from trelliswork.learning.report import FitReport, Step
from trelliswork.learning.watch import Saved, Watch
from trelliswork.models.pcfg.neural import GrammarModule, log_evidence
from trelliswork.models.pcfg.objective import GrammarParameters, Integers, TextBatch
from trelliswork.models.pcfg.training import GrammarPriors, log_prior

GAIN_EPOCHS = 3  # epochs that together must gain enough
BETAS = 0.75, 0.999  # decay of the running means of Adam: those of Chiu, Deng and Rush (2021)
CLIP = 3.0  # maximum norm of a gradient


def train(
    module: GrammarModule,
    sentences: Sequence[Sequence[int]],
    *,
    learning_rate: float = 2e-3,
    batch_size: int = 16,
    priors: GrammarPriors,
    max_iter: int,
    tol: float,
    watch: Watch,
    seed: int = 0,
) -> tuple[GrammarParameters, FitReport]:
    """Maximize log evidence plus log prior for ``max_iter`` epochs.

    The log evidence of an epoch is summed during the epoch, before each step. Training stops early when three epochs
    together gain less than ``tol`` of the value. Batches depend on ``seed`` and the number of the epoch alone, so that
    a resumed run ends with the same parameters.
    """
    adam = torch.optim.Adam(module.parameters(), lr=learning_rate, betas=BETAS)
    report = FitReport(False, f"{max_iter} epochs", -np.inf)
    saved = watch.resume()
    if saved is not None:
        _restore(module, adam, report, *saved)
    started = time.perf_counter() - report.seconds
    lengths = np.array([len(s) for s in sentences], np.int64)
    while True:
        if tol and _settled(report.history, tol):
            report.converged = True
            report.reason = f"{GAIN_EPOCHS} epochs gained less than {tol:g} of the objective"
            break
        epoch = report.n_iter + 1
        if epoch > max_iter:
            break
        batches = _shuffled(lengths, batch_size, seed, epoch)
        with one_thread():
            value, evidence = _epoch(module, adam, sentences, batches, priors)
        report.add(Step(epoch, value, seconds=time.perf_counter() - started, log_evidence=evidence))
        found = module.arrays().named()
        reason = watch.after(report.history[-1], found, lambda: _state(module, adam, report))
        if reason is not None:
            report.reason, report.converged = reason, not watch.interrupted
            break
    found, report = watch.finish(module.arrays().named(), report)
    return GrammarParameters(**found), report


def _epoch(
    module: GrammarModule,
    adam: torch.optim.Adam,
    sentences: Sequence[Sequence[int]],
    batches: list[Integers],
    priors: GrammarPriors,
) -> tuple[float, float]:
    """Take one step per batch, of numbers of sentences; return the sums of objective and log evidence."""
    value = evidence = 0.0
    n_sentences = sum(map(len, batches))
    for numbers in batches:
        adam.zero_grad(set_to_none=True)
        batch = TextBatch.select(sentences, numbers)
        grammar = module()
        log_z = log_evidence(grammar, batch).sum()
        objective = log_z + len(batch.ids) / n_sentences * log_prior(grammar, priors)
        (-objective / len(numbers)).backward()
        value, evidence = value + float(objective.detach()), evidence + float(log_z.detach())
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        adam.step()
    return value, evidence


def _shuffled(lengths: Integers, size: int, seed: int, epoch: int) -> list[Integers]:
    """Return random batches of the numbers of sentences of similar length, in random order."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    return [order[size * k : size * (k + 1)] for k in rng.permutation(-(-len(order) // size))]


def _settled(history: list[Step], tol: float) -> bool:
    """Return whether the last epochs gained too little."""
    values = [step.value for step in history]
    if len(values) <= GAIN_EPOCHS:
        return False
    return max(values[-GAIN_EPOCHS:]) - max(values[:-GAIN_EPOCHS]) < tol * abs(values[-1])


def _state(module: GrammarModule, adam: torch.optim.Adam, report: FitReport) -> Saved:
    arrays: Arrays = {}
    for name, parameter in module.named_parameters():
        own = {"now": parameter.detach(), **adam.state[parameter]}
        arrays |= {f"{key}/{name}": values.numpy() for key, values in own.items()}
    return {"history": report.steps()}, arrays


@torch.no_grad()
def _restore(
    module: GrammarModule, adam: torch.optim.Adam, report: FitReport, plain: dict[str, Any], arrays: Arrays
) -> None:
    report.resume(plain["history"])
    for name, parameter in module.named_parameters():
        own = {key.partition("/")[0]: values for key, values in arrays.items() if key.endswith(f"/{name}")}
        parameter.copy_(torch.from_numpy(own.pop("now")))
        adam.state[parameter] = {key: torch.from_numpy(np.array(values)) for key, values in own.items()}
