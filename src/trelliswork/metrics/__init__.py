"""Comparison of predictions with gold annotations."""

from trelliswork.metrics.brackets import evaluate_brackets
from trelliswork.metrics.calibration import evaluate_confidence
from trelliswork.metrics.dependencies import evaluate_parsing
from trelliswork.metrics.induction import evaluate_induction
from trelliswork.metrics.tagging import evaluate_tagging

__all__ = ["evaluate_brackets", "evaluate_confidence", "evaluate_induction", "evaluate_parsing", "evaluate_tagging"]
