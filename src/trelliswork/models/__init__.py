"""Estimators: sentences in, predictions out. Each family of models is a folder, imported when it is first used.

The room is above its budget. Training under rules, states of language models as values, language models in blocks and
tagging string by string have come since it was set; and the papers' own variants stay, of which CRFs within beams alone
take a tenth.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trelliswork.data.files import shorten
from trelliswork.data.storage import load_model, read_description
from trelliswork.errors import DataError, extras_for

if TYPE_CHECKING:
    from trelliswork.models.base import Estimator
    from trelliswork.models.baselines.kneser_ney import KneserNey
    from trelliswork.models.baselines.log_bilinear import LogBilinear
    from trelliswork.models.crf import CRF
    from trelliswork.models.factorial import FactorialCRF
    from trelliswork.models.hmm import HMM
    from trelliswork.models.hmm_lm import HMMLanguageModel
    from trelliswork.models.mrf import MRFLanguageModel
    from trelliswork.models.mrf_tagger import MRFTagger
    from trelliswork.models.parser import DependencyParser
    from trelliswork.models.pcfg import PCFG
    from trelliswork.models.tasks import LanguageModel, Tagger, TreeParser

# Name of the class, its kind in model.json, and its module.
FAMILIES = (
    ("CRF", "crf", "crf"),
    ("DependencyParser", "parser", "parser"),
    ("FactorialCRF", "factorial-crf", "factorial"),
    ("HMM", "hmm", "hmm"),
    ("HMMLanguageModel", "hmm-lm", "hmm_lm"),
    ("KneserNey", "kneser-ney", "baselines.kneser_ney"),
    ("LogBilinear", "log-bilinear", "baselines.log_bilinear"),
    ("MRFLanguageModel", "mrf-lm", "mrf"),
    ("MRFTagger", "mrf-tagger", "mrf_tagger"),
    ("PCFG", "pcfg", "pcfg"),
)
_HOMES = {name: f"{__name__}.{module}" for name, _, module in FAMILIES} | {
    "Estimator": f"{__name__}.base",
    "LanguageModel": f"{__name__}.tasks",
    "Tagger": f"{__name__}.tasks",
    "TreeParser": f"{__name__}.tasks",
}
_KINDS = {kind: name for name, kind, _ in FAMILIES}

__all__ = [
    "CRF",
    "HMM",
    "PCFG",
    "DependencyParser",
    "Estimator",
    "FactorialCRF",
    "HMMLanguageModel",
    "KneserNey",
    "LanguageModel",
    "LogBilinear",
    "MRFLanguageModel",
    "MRFTagger",
    "Tagger",
    "TreeParser",
    "estimator_class",
    "load",
]


def estimator_class(path: str | Path) -> "type[Estimator]":
    """Return the class of a saved model; only ``model.json`` is read."""
    return _class_of(path, read_description(path)["kind"])


def _class_of(path: str | Path, kind: str) -> "type[Estimator]":
    if kind not in _KINDS:
        raise DataError(f"{path}: a model of kind {shorten(kind)}, which this version does not know.")
    cls: type[Estimator] = __getattr__(_KINDS[kind])
    return cls


def load(path: str | Path, *, verify: bool = True, mapped: bool | str = False) -> "Estimator":
    """Read a model directory and return the estimator of the right class.

    The checksums of its files are compared unless ``verify`` is false. With ``mapped`` the file of weights is mapped
    into memory, so that processes on one machine share it; if ``mapped`` names a copy of that file, the copy is.
    """
    plain, arrays = load_model(path, verify=verify, mapped=mapped)
    return _class_of(path, plain["kind"])._restored(path, plain, arrays)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        with extras_for(name):
            return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
