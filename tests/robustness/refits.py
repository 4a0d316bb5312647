"""Fits of estimators while other threads use them: ``python -m tests.robustness.refits N SEED``.

Every answer must be one of the old model or of the new one. Runs in a process of its own, since what it looks for is a
crash; ``NAME`` after the seed chooses one estimator.
"""

import sys
import threading
import warnings

import numpy as np

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

SMALL, LARGE = bundled.load("dev")[:8], bundled.load("train")[:40]
READERS = 2


def _words(part):
    return [list(s.words) for s in part]


def _tags(part):
    return [list(s.tags) for s in part]


def _trees(part):
    return [list(zip(s.words, s.tags, strict=True)) for s in part], [
        list(zip(s.heads, s.relations, strict=True)) for s in part
    ]


TAGGED = {False: (_words(SMALL), _tags(SMALL)), True: (_words(LARGE), _tags(LARGE))}
LAYERS = {big: (X, {"tag": y, "first": [[tag[0] for tag in row] for row in y]}) for big, (X, y) in TAGGED.items()}
TREES = {False: _trees(SMALL), True: _trees(LARGE)}
TEXT = {big: (X,) for big, (X, _) in TAGGED.items()}
SENTENCES = TAGGED[True][0][:6]
PAIRS = TREES[True][0][:4]

# A constructor, data by size, and a question.
ESTIMATORS = {
    "crf": (lambda: CRF("pos", max_iter=2), TAGGED, lambda m: m.predict(SENTENCES)),
    "crf-frozen": (lambda: CRF("pos", max_iter=2), TAGGED, lambda m: m.freeze().predict_marginals(SENTENCES)),
    "hmm": (lambda: HMM(), TAGGED, lambda m: m.predict(SENTENCES)),
    "factorial": (
        lambda: FactorialCRF(["tag", "first"], features="pos", max_iter=1),
        LAYERS,
        lambda m: m.predict(SENTENCES[:2]),
    ),
    "mrf-tagger": (lambda: MRFTagger(max_iter=1), TAGGED, lambda m: m.predict(SENTENCES)),
    "parser": (
        lambda: DependencyParser(1, max_iter=1, hash_bits=10, calibrated=False),
        TREES,
        lambda m: m.predict(PAIRS),
    ),
    "pcfg": (lambda: PCFG(3, n_preterminals=5, max_iter=1), TEXT, lambda m: m.perplexity(SENTENCES[:2])),
    "kneser-ney": (lambda: KneserNey(3), TEXT, lambda m: m.perplexity(SENTENCES)),
    "mrf": (lambda: MRFLanguageModel(1, rank=4, max_iter=1), TEXT, lambda m: m.perplexity(SENTENCES)),
    "log-bilinear": (lambda: LogBilinear(2, rank=4, max_iter=1), TEXT, lambda m: m.perplexity(SENTENCES)),
    "hmm-lm": (lambda: HMMLanguageModel(4, hidden=4, max_iter=1), TEXT, lambda m: m.perplexity(SENTENCES)),
}


def attack(name: str, n: int, rng: np.random.Generator) -> None:
    """Fit an estimator n times, on few and on many sentences in random order, while threads ask it."""
    make, data, ask = ESTIMATORS[name]
    model = make().fit(*data[False])
    answers = {repr(ask(make().fit(*data[big]))) for big in (False, True)}
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                answer = repr(ask(model))
                if answer not in answers:
                    wrong.append(answer)
            except BaseException as error:
                wrong.append(repr(error))
                return

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for _ in range(n):
        model.fit(*data[bool(rng.integers(2))])
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong, f"{name}: {wrong[0][:300]}"


def main(n: int, seed: int, names: list[str]) -> None:
    """Attack each estimator with n fits in all."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    names = names or list(ESTIMATORS)
    for name in names:
        attack(name, max(1, n // len(names)), rng)
    print("no crash, no mixture:", ", ".join(names))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
