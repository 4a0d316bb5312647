"""Tiny models of every family, each trained when first used, and the service in this process."""

import os
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

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
from trelliswork.models import LogBilinear
from trelliswork.serve.abilities import abilities_of
from trelliswork.serve.app import Served, Service, create_app
from trelliswork.serve.metrics import Metrics
from trelliswork.serve.requests import Form
from trelliswork.serve.settings import Settings

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
    "pcfg": lambda: PCFG(3, n_preterminals=6, max_iter=3).fit(WORDS),
    "mrf-lm": lambda: MRFLanguageModel(2, rank=4, max_iter=5, min_count=2).fit(WORDS),
    "hmm-lm": lambda: HMMLanguageModel(8, hidden=8, max_iter=1, min_count=2).fit(WORDS),
    "kneser-ney": lambda: KneserNey(3, min_count=2).fit(WORDS),
    "log-bilinear": lambda: LogBilinear(2, rank=4, max_iter=1, min_count=2).fit(WORDS),
}


@cache
def fitted(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few iterations on purpose
        return MAKERS[name]()


def service_of(models: dict[str, Any], key: bytes | None = None, **limits: Any) -> Service:
    """Return the service of a worker with models."""
    settings = Settings(**{"timeout": 600.0} | limits)  # kernels may have to be compiled
    named = {name: abilities_of(type(model), settings.page) for name, model in models.items()}
    memory = Metrics.create(named, 2)
    service = Service(settings, named, Metrics(named, memory, 2, 0), key)
    os.close(memory)
    service.models = {n: Served(n, model, named[n], Form.of(model)) for n, model in models.items()}
    return service


class Page(TestClient):
    """A client of the page of one model, which is called m."""

    def __init__(self, model: Any, **limits: Any) -> None:
        app = create_app(service_of({"m": model}, **{"page": True} | limits))
        super().__init__(app, base_url="http://127.0.0.1:8765")

    def facts(self) -> Any:
        return self.get("/v1/models/m").json()

    def ask(self, ability: str, sentence: Any = None, **fields: Any) -> Any:
        """Return the answer for one sentence."""
        (answer,) = self.answers(ability, **({} if sentence is None else {"sentences": [sentence]}), **fields)
        return answer

    def answers(self, ability: str, **fields: Any) -> Any:
        response = self.post(f"/v1/m/{ability}", json=fields)
        assert response.status_code == 200, response.text
        return response.json()["answers"]


@cache
def page_of(name: str) -> Page:
    return Page(fitted(name))
