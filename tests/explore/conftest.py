"""Tiny models of every family, each trained when first used, and clients of their pages."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from trelliswork import (
    CRF,
    HMM,
    PCFG,
    DependencyParser,
    FactorialCRF,
    HMMLanguageModel,
    KneserNey,
    MRFLanguageModel,
    MRFTagger,
    bundled,
)
from trelliswork.explore.app import create_app
from trelliswork.models import LogBilinear

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about its choice of httpx
    from starlette.testclient import TestClient

SENTENCES = bundled.load("train")[:120]
WORDS = [list(s.words) for s in SENTENCES]
TAGS = [list(s.tags) for s in SENTENCES]
CHUNKS = [list(s.chunks) for s in SENTENCES]
TAGGED = [list(zip(s.words, s.tags, strict=True)) for s in SENTENCES]
HEADS = [list(s.heads) for s in SENTENCES]
TREES = [list(zip(s.heads, s.chunks, strict=True)) for s in SENTENCES]
READY = [[{f"w={word}": 1.0} for word in sentence] for sentence in WORDS]
MAKERS: dict[str, Callable[[], Any]] = {
    "crf": lambda: CRF("pos", max_iter=8).fit(WORDS, TAGS),
    "chunker": lambda: CRF("chunking", max_iter=8).fit(TAGGED, CHUNKS),
    "ready": lambda: CRF(None, max_iter=5).fit(READY, TAGS),
    "hmm": lambda: HMM().fit(WORDS, TAGS),
    "hmm-2": lambda: HMM(order=2).fit(WORDS, TAGS),
    "numbers": lambda: HMM(3, max_iter=3).fit([[0, 1, 2, 1], [2, 2, 1]] * 5),
    "mrf-tagger": lambda: MRFTagger(max_iter=8).fit(WORDS, TAGS),
    "factorial-crf": lambda: FactorialCRF(max_iter=5).fit(WORDS, {"pos": TAGS, "chunk": CHUNKS}),
    "parser": lambda: DependencyParser(1, max_iter=2, hash_bits=16).fit(TAGGED, HEADS),
    "parser-2": lambda: DependencyParser(2, max_iter=1, hash_bits=16, tagger="hmm").fit(TAGGED, TREES),
    "pcfg": lambda: PCFG(3, 6, max_iter=3).fit(WORDS),
    "mrf-lm": lambda: MRFLanguageModel(2, 4, max_iter=5, min_count=2).fit(WORDS),
    "hmm-lm": lambda: HMMLanguageModel(8, hidden=8, max_iter=1, min_count=2).fit(WORDS),
    "kneser-ney": lambda: KneserNey(3, min_count=2).fit(WORDS),
    "lbl": lambda: LogBilinear(2, 4, max_iter=1, min_count=2).fit(WORDS),
}


@cache
def fitted(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few iterations on purpose
        return MAKERS[name]()


def client_of(model: Any, **options: Any) -> TestClient:
    return TestClient(create_app(model, **options), base_url="http://127.0.0.1:8765")


@pytest.fixture(scope="session")
def model() -> Callable[[str], Any]:
    return fitted


@pytest.fixture(scope="session")
def client() -> Callable[[str], TestClient]:
    return cache(lambda name: client_of(fitted(name)))
