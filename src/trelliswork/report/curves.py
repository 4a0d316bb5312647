"""What training told while it went on, as charts."""

import math
from typing import Any

from trelliswork.report.charts import line_chart
from trelliswork.report.markup import Html


def learning_curves(model: Any) -> list[Html]:
    """Charts of a fitted model's history: objective, log evidence or perplexity, and the development part's figure.

    Models that keep none (they count, or were loaded from a file) have no charts.
    """
    report = getattr(model, "report_", None)
    history = getattr(model, "history_", None) or (report.history if report is not None else [])
    if not history:
        return []
    if hasattr(history[0], "perplexity"):
        return _perplexities(history, "epochs", [h.progress for h in history])
    if getattr(history[0], "log_evidence", None) is not None:
        return [_chart("Log evidence", "iteration", [("log evidence", history, "log_evidence")])]
    if hasattr(history[0], "train"):
        return _likelihoods(history)
    stages = list(dict.fromkeys(getattr(step, "stage", "") for step in history if not math.isnan(step.value)))
    x = "epoch" if any(stages) else "iteration"
    steps = {name: [step for step in history if getattr(step, "stage", "") == name] for name in stages}
    found = [_chart("Objective", x, [(name or "objective", some, "value") for name, some in steps.items()])]
    judged = {name: [step for step in some if step.dev is not None] for name, some in steps.items()}
    if any(judged.values()):
        lines = [(name or "development", some, "dev") for name, some in judged.items()]
        found.append(_chart("Development part", x, lines, _measure(model), "max"))
    return [chart for chart in found if chart]


def _measure(model: Any) -> str:
    """What is measured on the development part."""
    if model.kind == "crf":
        return "accuracy" if model.scheme_ is None else "F1 of spans"
    return {"parser": "UAS (labels: LAS)", "factorial-crf": "joint accuracy", "mrf-lm": "log-likelihood"}.get(
        model.kind, "accuracy"
    )


def _chart(
    title: str, x: str, lines: list[tuple[str, list[Any], str]], y: str | None = None, best: str | None = None
) -> Html:
    drawn = [(name, _numbers(steps), [getattr(step, field) for step in steps]) for name, steps, field in lines]
    return line_chart(drawn, x=x, y=y or title.lower(), title=title, best=best)


def _numbers(steps: list[Any]) -> list[float]:
    """Iterations, counted anew where a stage begins."""
    first = min((step.iteration for step in steps), default=1)
    return [step.iteration - first + 1 for step in steps] if first > 1 else [step.iteration for step in steps]


def _perplexities(history: list[Any], x: str, xs: list[float]) -> list[Html]:
    lines = [("training", xs, [h.perplexity for h in history])]
    dev = [(a, h.dev_perplexity) for a, h in zip(xs, history, strict=True) if h.dev_perplexity is not None]
    if dev:
        lines.append(("development", [a for a, _ in dev], [b for _, b in dev]))
    return [line_chart(lines, x=x, y="perplexity", title="Perplexity", best="min")]


def _likelihoods(history: list[Any]) -> list[Html]:
    """Of steps that tell log-likelihoods a token."""
    xs = [h.iteration for h in history]
    lines = [("training", xs, [math.exp(-h.train) for h in history])]
    if any(h.dev is not None for h in history):
        dev = [h for h in history if h.dev is not None]
        lines.append(("development", [h.iteration for h in dev], [math.exp(-h.dev) for h in dev]))
    return [line_chart(lines, x="epoch", y="perplexity", title="Perplexity", best="min")]
