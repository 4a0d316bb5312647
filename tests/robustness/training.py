"""Small trainings of all families, in this process or as a program that can be killed.

``python -m tests.robustness.training FAMILY OUT CHECKPOINT`` trains and saves a model, and writes a checkpoint
after every iteration. It prints a line before it starts to train.
"""

import sys
import warnings
from pathlib import Path

import trelliswork as t
from trelliswork.errors import ConvergenceWarning
from trelliswork.learning.checkpoint import Checkpoint
from trelliswork.models import LogBilinear

N = 40


def sentences(split="train", n=N):
    return t.bundled.load(split)[:n]


def words(split="train", n=N):
    return [list(s.words) for s in sentences(split, n)]


def tags(split="train", n=N):
    return [list(s.tags) for s in sentences(split, n)]


def layers(split="train", n=N):
    return {"pos": tags(split, n), "chunk": [list(s.chunks) for s in sentences(split, n)]}


def trees(split="train", n=N):
    some = sentences(split, n)
    pairs = [list(zip(s.words, s.tags, strict=True)) for s in some]
    return pairs, [list(zip(s.heads, s.relations, strict=True)) for s in some]


def short(split="train", n=2 * N):
    return [s for s in words(split, n) if len(s) < 10]


FAMILIES = {
    "crf": lambda **o: t.CRF("pos", max_iter=30, patience=3).fit(
        words(), tags(), dev=(words("dev", 20), tags("dev", 20)), **o
    ),
    "crf-converged": lambda **o: t.CRF("pos", tol=1e-2).fit(words(), tags(), **o),
    "sgd": lambda **o: t.CRF("pos", algorithm="sgd", max_iter=9, tol=0.05).fit(words(), tags(), **o),
    "hmm": lambda **o: t.HMM(5, max_iter=12, tol=1e-3, n_restarts=2, options={"probe": 2}).fit(words(), **o),
    "mrf": lambda **o: t.MRFLanguageModel(2, rank=3, min_count=2, max_iter=12).fit(words(), **o),
    "mrf-text": lambda **o: t.MRFLanguageModel(2, rank=3, min_count=2, algorithm="pseudo-likelihood", max_iter=3).fit(
        words(), **o
    ),
    "mrf-tagger": lambda **o: t.MRFTagger(max_iter=12, patience=3).fit(
        words(), tags(), dev=(words("dev", 20), tags("dev", 20)), **o
    ),
    "hmm-lm": lambda **o: t.HMMLanguageModel(4, hidden=4, max_iter=3).fit(words(), dev=words("dev", 10), **o),
    "parser": lambda **o: t.DependencyParser(1, hash_bits=12, max_iter=4, tagger="hmm").fit(
        *trees(), dev=trees("dev", 10), **o
    ),
    "pcfg": lambda **o: t.PCFG(2, n_preterminals=3, max_iter=6, tol=1e-4).fit(short(), **o),
    "pcfg-neural": lambda **o: t.PCFG(
        2, n_preterminals=3, neural=True, options={"embedding_size": 4}, max_iter=6, tol=1e-2
    ).fit(short(), **o),
    "log-bilinear": lambda **o: LogBilinear(context_size=1, rank=2, max_iter=5).fit(words(), **o),
    "factorial": lambda **o: t.FactorialCRF(("pos", "chunk"), max_iter=8).fit(words(), layers(), **o),
}


def train(family: str, **options):
    """Return the fitted model of a family; a checkpoint, if there is one, is written after every iteration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return FAMILIES[family](**options)


if __name__ == "__main__":
    Checkpoint.due = lambda self: True  # type: ignore[method-assign]
    print("ready", flush=True)
    train(sys.argv[1], checkpoint=Path(sys.argv[3])).save(sys.argv[2])
