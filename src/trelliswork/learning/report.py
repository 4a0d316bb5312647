"""Reports of training: one `Step` per iteration and one `FitReport` per fit, for every optimizer."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from trelliswork.compute.display import Displayed

if TYPE_CHECKING:
    from trelliswork.learning.checkpoint import Checkpoint

STOPPED = "stopped by the caller"


@dataclass
class Step:
    """One iteration of training, as progress bars and callbacks see it.

    Attributes
    ----------
    iteration : int
        Number of the iteration or epoch, from 1.
    value : float
        Objective, in the direction of the optimizer; nan for a step that only announces a stage.
    gradient_norm : float
        Norm of the gradient; nan if the optimizer has none.
    n_active : int
        Number of nonzero weights.
    n_evaluations : int
        Evaluations of the objective so far.
    seconds : float
        Time since the start of training, including the time before a resumed checkpoint.
    dev : float, optional
        Metric on the development data; larger is better.
    stage : str
        Part of the training, for models that are trained in several.
    log_evidence : float, optional
        Log evidence of the training data, for likelihood training.
    learning_rate : float, optional
        Step size of stochastic optimizers.
    n_tokens : int
        Tokens processed so far, for stochastic optimizers.
    """

    iteration: int
    value: float
    gradient_norm: float = math.nan
    n_active: int = 0
    n_evaluations: int = 0
    seconds: float = 0.0
    dev: float | None = None
    stage: str = ""
    log_evidence: float | None = None
    learning_rate: float | None = None
    n_tokens: int = 0


Callback = Callable[[Step], bool | None]


def counting_callback(callback: Callback | None) -> Callable[[Any], None] | None:
    """Return a callback for reading and counting text that passes announcements to the callback of ``fit``.

    The argument of the result has ``done``, ``total`` and ``n_tokens`` (`trelliswork.data.ids.CountStep`).
    """
    if callback is None:
        return None

    def announce(step: Any) -> None:
        text = f"counting: {step.n_tokens:,} tokens" if step.n_tokens else "reading text"
        callback(Step(0, math.nan, stage=f"{text}, {step.done / max(step.total, 1):.0%}"))

    return announce


@dataclass
class FitReport(Displayed):
    """Outcome of training.

    Attributes
    ----------
    converged : bool
        Whether training ended by its own criterion rather than by a limit or the caller.
    reason : str
        Why training ended.
    value : float
        Final objective, penalties included; nan if the model was estimated by counting.
    history : list of Step
        All iterations; empty after loading a model.
    dev : float, optional
        Metric of the returned parameters on the development data.
    metric : str
        Name of that metric.
    n_iter : int
        Number of iterations.
    details : dict
        Results of single algorithms, such as beam statistics (``beam``) or the objectives of restarts (``restarts``).
    checkpoint : Checkpoint, optional
        Checkpoint of a finished training, which ``save`` deletes.
    """

    converged: bool
    reason: str
    value: float
    history: list[Step] = field(default_factory=list)
    dev: float | None = None
    metric: str = ""
    n_iter: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    checkpoint: "Checkpoint | None" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.n_iter = self.n_iter or len(self.history)

    def add(self, step: Step) -> None:
        """Append an iteration and take over its value."""
        self.history.append(step)
        self.value, self.n_iter = step.value, len(self.history)

    def steps(self) -> list[dict[str, Any]]:
        """Return the history as plain data, for a checkpoint."""
        return [asdict(step) for step in self.history]

    def resume(self, steps: list[dict[str, Any]]) -> None:
        """Append the iterations of ``steps``'s result."""
        for step in steps:
            self.add(Step(**step))

    @property
    def seconds(self) -> float:
        """Training time in seconds; 0 after loading a model."""
        return self.history[-1].seconds if self.history else 0.0

    @property
    def beam(self) -> Any:
        """Statistics of the beams of the last evaluation; ``None`` without beams."""
        return self.details.get("beam")

    @beam.setter
    def beam(self, statistics: Any) -> None:
        if statistics is not None:
            self.details["beam"] = statistics

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``model.json``, without the history; JSON has no nan."""
        plain = {k: v for k, v in vars(self).items() if k not in ("history", "details", "checkpoint")}
        plain["value"] = None if math.isnan(self.value) else self.value
        details = {k: asdict(v) if hasattr(v, "__dataclass_fields__") else v for k, v in self.details.items()}
        return plain | {"details": {k: v for k, v in details.items() if _is_plain(v)}}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "FitReport":
        """Build a report from ``to_dict``'s result."""
        return cls(**plain | {"value": math.nan if plain["value"] is None else plain["value"]})


def _is_plain(value: object) -> bool:
    """Return whether a value can be stored as JSON."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
