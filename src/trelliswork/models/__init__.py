"""Sentences to fitted estimators."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from trelliswork.data.storage import load_model
from trelliswork.errors import DataError
from trelliswork.models.base import Estimator
from trelliswork.models.crf import CRF
from trelliswork.models.factorial import FactorialCRF
from trelliswork.models.hmm import HMM
from trelliswork.models.parser import DependencyParser

if TYPE_CHECKING:
    from trelliswork.models.baselines import KneserNey, LogBilinear
    from trelliswork.models.hmm_lm import HMMLanguageModel
    from trelliswork.models.mrf import MRFLanguageModel
    from trelliswork.models.mrf_tagger import MRFTagger
    from trelliswork.models.pcfg import PCFG

__all__ = [
    "CRF",
    "HMM",
    "PCFG",
    "DependencyParser",
    "Estimator",
    "FactorialCRF",
    "HMMLanguageModel",
    "KneserNey",
    "LogBilinear",
    "MRFLanguageModel",
    "MRFTagger",
    "load",
]

_KINDS: dict[str, type[Estimator]] = {cls.kind: cls for cls in (CRF, DependencyParser, FactorialCRF, HMM)}
# Kind to class and module: loaded when first used, because they load torch.
_LATER: dict[str, tuple[str, str]] = {
    "kneser-ney": ("KneserNey", "trelliswork.models.baselines"),
    "lbl": ("LogBilinear", "trelliswork.models.baselines"),
    "mrf-tagger": ("MRFTagger", "trelliswork.models.mrf_tagger"),
    "hmm-lm": ("HMMLanguageModel", "trelliswork.models.hmm_lm"),
    "mrf-lm": ("MRFLanguageModel", "trelliswork.models.mrf"),
    "pcfg": ("PCFG", "trelliswork.models.pcfg"),
}


def load(path: str | Path) -> Estimator:
    """Read a model directory and return the estimator of the right class."""
    kind = load_model(path)[0]["kind"]
    if kind in _LATER:
        name, module = _LATER[kind]
        found: type[Estimator] = getattr(import_module(module), name)
        return found.load(path)
    if kind not in _KINDS:
        raise DataError(f"{path}: a model of kind {kind!r}, which this version does not know.")
    return _KINDS[kind].load(path)


def __getattr__(name: str) -> object:
    for later, module in _LATER.values():
        if name == later:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'trelliswork.models' has no attribute {name!r}")
