"""Learning a grammar by gradients: Adam on batches of sentences, a curriculum of lengths, checkpoints."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trelliswork.errors import ValueRangeError
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models.hmm.em import EMReport, EMStep
from trelliswork.models.pcfg.em import GrammarPriors
from trelliswork.models.pcfg.neural import GrammarModule, GrammarTensors
from trelliswork.models.pcfg.objective import GrammarParameters, TextBatch, text_batches

Callback = Callable[[EMStep], bool | None]
PATIENCE = 3  # epochs that together must gain enough


@dataclass(frozen=True)
class AdamSettings:
    """How Adam goes; the defaults are those of Chiu, Deng and Rush (2021).

    Attributes
    ----------
    learning_rate, betas, clip : float, (float, float), float
        Step size, decay of the running means, largest norm of a gradient.
    batch_size : int
        Sentences a step.
    curriculum : int, optional
        Begin with sentences up to so many words; one more each epoch.
    """

    learning_rate: float = 2e-3
    betas: tuple[float, float] = (0.75, 0.999)
    clip: float = 3.0
    batch_size: int = 16
    curriculum: int | None = None


def train(
    module: GrammarModule,
    sentences: Sequence[Sequence[int]],
    settings: AdamSettings,
    *,
    priors: GrammarPriors,
    max_iter: int,
    tol: float,
    seed: int = 0,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[GrammarParameters, EMReport]:
    """Climb log evidence plus log prior for ``max_iter`` epochs.

    The log evidence that is reported for an epoch is summed while it goes on, before each step. It ends early when
    three epochs together gain less than ``tol`` of the value, once the curriculum has come to the longest sentence.
    Batches are drawn anew for each epoch from ``seed`` and the epoch's number, so that a run that goes on from a
    checkpoint ends with the same numbers.
    """
    priors.check()
    adam = torch.optim.Adam(module.parameters(), lr=settings.learning_rate, betas=settings.betas)
    report = EMReport(False, f"{max_iter} epochs", -np.inf)
    saved = checkpoint.read() if checkpoint is not None else None
    if saved is not None:
        _restore(module, adam, report, *saved)
    began = time.perf_counter() - (report.history[-1].seconds if report.history else 0.0)
    longest = max(map(len, sentences))
    for epoch in range(report.n_iter + 1, max_iter + 1):
        reach = longest if settings.curriculum is None else settings.curriculum + epoch - 1
        chosen = [s for s in sentences if len(s) <= reach]
        if not chosen:
            raise ValueRangeError(f"no sentence has at most curriculum={reach} words: begin with longer ones.")
        batches = _shuffled(chosen, settings.batch_size, seed, epoch)
        with _one_thread():
            report.value, evidence = _epoch(module, adam, batches, len(chosen), settings.clip, priors)
        report.history.append(EMStep(epoch, report.value, evidence, time.perf_counter() - began))
        if callback is not None and callback(report.history[-1]):
            report.reason = "stopped by the caller"
            break
        if checkpoint is not None and checkpoint.due():
            _write(checkpoint, module, adam, report)
        if tol and reach >= longest and _settled(report.history, tol, longest, settings.curriculum):
            report.converged = True
            report.reason = f"{PATIENCE} epochs gained less than {tol:g} of the objective"
            break
    if checkpoint is not None:
        if report.reason == "stopped by the caller":
            _write(checkpoint, module, adam, report)
        else:
            checkpoint.remove()
    with torch.no_grad():
        return module().arrays(), report


def _epoch(
    module: GrammarModule,
    adam: torch.optim.Adam,
    batches: list[TextBatch],
    n_sentences: int,
    clip: float,
    priors: GrammarPriors,
) -> tuple[float, float]:
    """One step a batch; the sums of objective and log evidence."""
    value = evidence = 0.0
    for batch in batches:
        grammar = module()
        log_z = grammar.log_evidence(batch).sum()
        objective = log_z + len(batch.ids) / n_sentences * _log_prior(grammar, priors)
        adam.zero_grad(set_to_none=True)
        (-objective / len(batch.ids)).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        adam.step()
        value, evidence = value + float(objective.detach()), evidence + float(log_z.detach())
    return value, evidence


@contextmanager
def _one_thread() -> Iterator[None]:
    """The networks are small: torch's threads would wait for work and stand in the way of ours."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _shuffled(sentences: Sequence[Sequence[int]], size: int, seed: int, epoch: int) -> list[TextBatch]:
    """Batches of similar lengths in a random order; which sentences meet is random too."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(sentences))
    batches = text_batches([sentences[i] for i in order], size)
    return [batches[i] for i in rng.permutation(len(batches))]


def _log_prior(grammar: GrammarTensors, priors: GrammarPriors) -> Any:
    total: Any = 0.0
    for name, tensor in grammar._asdict().items():
        weight = priors.of(name.removeprefix("log_"))
        if tensor is not None and weight > 0 and tensor.requires_grad:
            total = total + weight * tensor.sum()
    return total


def _settled(history: list[EMStep], tol: float, longest: int, curriculum: int | None) -> bool:
    """True if the last epochs, all with every sentence, gained too little."""
    first = 1 if curriculum is None else longest - curriculum + 1
    whole = [step.value for step in history if step.iteration >= first]
    if len(whole) <= PATIENCE:
        return False
    return max(whole[-PATIENCE:]) - max(whole[:-PATIENCE]) < tol * abs(whole[-1])


def _write(checkpoint: Checkpoint, module: GrammarModule, adam: torch.optim.Adam, report: EMReport) -> None:
    arrays = {f"module.{name}": value.numpy() for name, value in module.state_dict().items()}
    for number, state in adam.state_dict()["state"].items():
        arrays |= {f"adam.{number}.{name}": value.numpy() for name, value in state.items()}
    checkpoint.write({"history": [vars(step) for step in report.history], "value": report.value}, arrays)


def _restore(
    module: GrammarModule, adam: torch.optim.Adam, report: EMReport, plain: dict[str, Any], arrays: dict[str, Any]
) -> None:
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    module.load_state_dict({k.removeprefix("module."): v for k, v in tensors.items() if k.startswith("module.")})
    state = adam.state_dict()
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, number, field = name.split(".")
            state["state"].setdefault(int(number), {})[field] = tensor
    adam.load_state_dict(state)
    report.history, report.value = [EMStep(**step) for step in plain["history"]], plain["value"]
