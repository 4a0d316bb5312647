"""One small fitted model of every class, shared by tests that hold for all of them."""

import warnings
from functools import cache

import trelliswork as t
from trelliswork.errors import ConvergenceWarning

TRAIN = t.bundled.load("train")[:30]
WORDS = [list(s.words) for s in TRAIN]
TAGS = [list(s.tags) for s in TRAIN]
PAIRS = [list(zip(s.words, s.tags, strict=True)) for s in TRAIN]
SHORT = [w for w in WORDS if len(w) < 12]
TREES = [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN]

BUILDERS = {
    "CRF": lambda: t.CRF("pos", tol=0.1).fit(WORDS, TAGS),
    "DependencyParser": lambda: t.DependencyParser(1, hash_bits=12, max_iter=1).fit(PAIRS, TREES),
    "FactorialCRF": lambda: t.FactorialCRF(("pos", "chunk"), tol=0.1).fit(
        WORDS, {"pos": TAGS, "chunk": [s.chunks for s in TRAIN]}
    ),
    "HMM": lambda: t.HMM().fit(WORDS, TAGS),
    "HMMLanguageModel": lambda: t.HMMLanguageModel(4, hidden=4, max_iter=1).fit(WORDS),
    "KneserNey": lambda: t.KneserNey(2).fit(WORDS),
    "LogBilinear": lambda: t.LogBilinear(context_size=1, rank=2, max_iter=1).fit(WORDS),
    "MRFLanguageModel": lambda: t.MRFLanguageModel(order=1, rank=2, min_count=2, tol=0.1).fit(WORDS),
    "MRFTagger": lambda: t.MRFTagger(tol=0.1).fit(WORDS, TAGS),
    "PCFG": lambda: t.PCFG(2, 3, max_iter=1, tol=0).fit(SHORT),
}


@cache
def fitted(name: str) -> t.Estimator:
    """Return a small fitted model of a class; tests must not change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BUILDERS[name]()
