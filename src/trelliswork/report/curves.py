"""Learning curves of fitted models."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from trelliswork.learning.report import Step
from trelliswork.models.tasks import NextWord
from trelliswork.report.charts import line_chart
from trelliswork.report.page import Html

Line = tuple[str, list[float], list[float]]


def learning_curves(model: Any) -> list[Html]:
    """Draw the training of a model: objective, log-probability or perplexity, and the metric on the development data.

    Models without a history (estimated by counting, or loaded from a file) have no charts.
    """
    report = model.report_
    steps = [step for step in report.history if not math.isnan(step.value)]
    judged = [step for step in steps if step.dev is not None]
    if not steps:
        return []
    if isinstance(model, NextWord) and steps[0].learning_rate is not None:
        # Trained by stochastic gradients: the objective is minus the mean log-probability per token.
        lines = _lines("training", steps, lambda step: _exp(step.value))
        lines += _lines("development", judged, lambda step: _exp(-step.dev))
        return [line_chart(lines, x="iteration", y="perplexity", title="Perplexity", best="min")]
    if steps[0].log_evidence is not None:
        lines, name = _lines("training", steps, lambda step: step.log_evidence), "Log-probability"
    else:
        lines, name = _lines("training", steps, lambda step: step.value), "Objective"
    charts = [line_chart(lines, x="iteration", y=name.lower(), title=name)]
    if judged and is_log_prob(report.metric):
        lines = _lines("development", judged, lambda step: _exp(-step.dev))
        charts.append(line_chart(lines, x="iteration", y="perplexity", title="Development data", best="min"))
    elif judged:
        lines = _lines("development", judged, lambda step: step.dev)
        y = report.metric if len(lines) == 1 else "metric of the stage"
        charts.append(line_chart(lines, x="iteration", y=y, title="Development data", best="max"))
    return [chart for chart in charts if chart]


def is_log_prob(metric: str) -> bool:
    """Return whether a metric is a mean log-probability per token, so that exp(-metric) is a perplexity."""
    return metric.startswith("log-probability")


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def _lines(name: str, steps: Sequence[Step], value: Callable[[Any], float]) -> list[Line]:
    """Return one line per stage of training; iterations are counted from 1 in each."""
    stages: dict[str, list[Step]] = {}
    for step in steps:
        stages.setdefault(step.stage, []).append(step)
    lines = []
    for stage, own in stages.items():
        before = own[0].iteration - 1 if len(stages) > 1 else 0
        lines.append((stage or name, [float(step.iteration - before) for step in own], [value(step) for step in own]))
    return lines
