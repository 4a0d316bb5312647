"""One small fitted model of every class, shared by tests that hold for all of them."""

import warnings
from functools import cache

import trelliswork as t
from trelliswork.errors import ConvergenceWarning
from trelliswork.models import LogBilinear

TRAIN = t.bundled.load("train")[:30]
WORDS = [list(s.words) for s in TRAIN]
TAGS = [list(s.tags) for s in TRAIN]
PAIRS = [list(zip(s.words, s.tags, strict=True)) for s in TRAIN]
SHORT = [w for w in WORDS if len(w) < 12]
TREES = [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN]

ALL = slice(None)
BUILDERS = {  # of some of the sentences
    "CRF": lambda own=ALL: t.CRF("pos", tol=0.1).fit(WORDS[own], TAGS[own]),
    "DependencyParser": lambda own=ALL: t.DependencyParser(1, hash_bits=12, max_iter=1).fit(PAIRS[own], TREES[own]),
    "FactorialCRF": lambda own=ALL: t.FactorialCRF(("pos", "chunk"), tol=0.1).fit(
        WORDS[own], {"pos": TAGS[own], "chunk": [s.chunks for s in TRAIN[own]]}
    ),
    "HMM": lambda own=ALL: t.HMM().fit(WORDS[own], TAGS[own]),
    "HMMLanguageModel": lambda own=ALL: t.HMMLanguageModel(4, hidden=4, max_iter=1).fit(WORDS[own]),
    "KneserNey": lambda own=ALL: t.KneserNey(2).fit(WORDS[own]),
    "LogBilinear": lambda own=ALL: LogBilinear(context_size=1, rank=2, max_iter=1).fit(WORDS[own]),
    "MRFLanguageModel": lambda own=ALL: t.MRFLanguageModel(window=1, rank=2, min_count=2, tol=0.1).fit(WORDS[own]),
    "MRFTagger": lambda own=ALL: t.MRFTagger(tol=0.1).fit(WORDS[own], TAGS[own]),
    "PCFG": lambda own=ALL: t.PCFG(2, n_preterminals=3, max_iter=1, tol=0).fit([w for w in WORDS[own] if len(w) < 12]),
}


@cache
def fitted(name: str) -> t.Estimator:
    """Return a small fitted model of a class; tests must not change it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BUILDERS[name]()
