"""Left-to-right language models to compare with."""

from trelliswork.models.baselines.kneser_ney import KneserNey
from trelliswork.models.baselines.log_bilinear import LogBilinear

__all__ = ["KneserNey", "LogBilinear"]
