"""Answers of one small model of every family, to be compared before and after a change of the code.

    python -m tools.golden write FILE.npz [NAME ...]     fits the models (or those named) and writes their answers
    python -m tools.golden compare OLD.npz NEW.npz       shows how much each array differs

A deletion keeps every bit. Another way to compute the same keeps 1e-12 (float64) or 1e-5 (float32), relative to the
largest number of the array, and the same labels.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

import trelliswork as t

TRAIN, TEST = t.bundled.load("train")[:150], t.bundled.load("test")[:20]
WORDS, TAGS, CHUNKS = ([list(getattr(s, name)) for s in TRAIN] for name in ("words", "tags", "chunks"))
PAIRS = [list(zip(s.words, s.tags, strict=True)) for s in TRAIN]
TREES = [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN]
SHORT = [words for words in WORDS if len(words) < 12]
NEW = [list(s.words) for s in TEST]
NEW_PAIRS = [list(zip(s.words, s.tags, strict=True)) for s in TEST]
MANY = [[f"{tag}-{word[-1]}" for word, tag in pairs] for pairs in PAIRS]  # many labels
PARTIAL = [[tag if n % 3 else None for n, tag in enumerate(tags)] for tags in TAGS]

Answers = dict[str, Any]


def numbers(value: Any) -> list[float]:
    """Return all numbers of nested lists, tuples and dicts, keys in order."""
    if isinstance(value, dict):
        return [x for key in sorted(value, key=str) for x in numbers(value[key])]
    if isinstance(value, list | tuple):
        return [x for part in value for x in numbers(part)]
    if isinstance(value, str) or value is None:
        return []
    return np.asarray(value, float).ravel().tolist()  # type: ignore[no-any-return]


def strings(value: Any) -> list[str]:
    """Return all strings of nested lists and tuples."""
    if isinstance(value, list | tuple):
        return [x for part in value for x in strings(part)]
    return [value] if isinstance(value, str) else []


def weights(model: Any) -> Answers:
    """Return the floating-point arrays of a saved model."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        (file,) = (Path(folder) / "model").glob("weights*.safetensors")
        arrays = load_file(file)
    return {f"weights/{name}": a for name, a in arrays.items() if a.dtype.kind == "f"}


def tagger(model: Any) -> Answers:
    """Return the answers of a tagger of words."""
    posteriors = [model.posterior(sentence) for sentence in NEW]
    predicted = model.predict(NEW)
    known = [[label if n % 4 == 1 else None for n, label in enumerate(labels[::-1])][::-1] for labels in predicted]
    return weights(model) | {
        "predict": strings(predicted),
        "posterior-decoding": strings(model.predict(NEW, decoding="mbr")),
        "known": strings(model.predict(NEW, known=known)),
        "marginals": numbers(model.predict_marginals(NEW)),
        "marginals-known": numbers(model.predict_marginals(NEW, known=known)),
        "topk": numbers(model.predict_topk(NEW, 4)),
        "topk-labels": strings(model.predict_topk(NEW, 2)),
        "log-prob": model.log_prob(NEW, predicted),
        "entropy": numbers([p.entropy().tolist() for p in posteriors]),
        "log-partition": numbers([p.log_partition().tolist() for p in posteriors]),
        "sample": numbers([p.sample(3, generator=torch.Generator().manual_seed(1)).tolist() for p in posteriors[:5]]),
    }


def both(model: Any) -> Answers:
    """Return the answers of a tagger that is also a language model."""
    return tagger(model) | language_model(model)


def language_model(model: Any, sentences: list[list[str]] = NEW) -> Answers:
    """Return the answers of a language model."""
    answers = {"evidence": model.log_prob(sentences), "fill": numbers(model.fill([*sentences[0][:-1], None]))}
    if hasattr(model, "predict_next"):
        answers["next"] = numbers(model.predict_next(NEW[1][:3], 5))
    return weights(model) | answers


def parser(model: Any) -> Answers:
    """Return the answers of a dependency parser."""
    posteriors = [model.posterior(sentence) for sentence in NEW_PAIRS[:10]]
    return weights(model) | {
        "predict": numbers(model.predict(NEW_PAIRS)),
        "relations": strings(model.predict(NEW_PAIRS)),
        "log-partition": numbers([p.log_partition().tolist() for p in posteriors]),
        "marginals": numbers([p.marginals().tolist() for p in posteriors]),
    }


def layered(model: Any) -> Answers:
    """Return the answers of a tagger with several layers."""
    marginals = model.predict_marginals(NEW)
    return weights(model) | {"predict": strings(model.predict(NEW)), "marginals": numbers(marginals)}


FITS: dict[str, tuple[Callable[[], Any], Callable[[Any], Answers]]] = {
    "crf": (lambda: t.CRF("pos", tol=1e-4).fit(WORDS, TAGS), tagger),
    "crf-order2": (lambda: t.CRF("pos", order=2, max_iter=20).fit(WORDS, TAGS), tagger),
    "crf-many-labels": (lambda: t.CRF("pos", max_iter=20).fit(WORDS, MANY), tagger),
    "crf-beam": (lambda: t.CRF("pos", max_iter=20, beam="kl=0.01,min=4").fit(WORDS, MANY), tagger),
    "crf-order2-beam": (lambda: t.CRF("pos", order=2, max_iter=20, beam="size=12").fit(WORDS, TAGS), tagger),
    "crf-sgd": (lambda: t.CRF("pos", algorithm="sgd", max_iter=4).fit(WORDS, TAGS), tagger),
    "crf-perceptron": (lambda: t.CRF("pos", algorithm="perceptron", max_iter=4).fit(WORDS, TAGS), tagger),
    "crf-partial": (lambda: t.CRF("pos", max_iter=20).fit(WORDS, PARTIAL), tagger),
    "crf-chunks": (lambda: t.CRF("chunking", max_iter=20).fit(PAIRS, CHUNKS), weights),
    "hmm": (lambda: t.HMM().fit(WORDS, TAGS), both),
    "hmm-order2": (lambda: t.HMM(order=2).fit(WORDS, TAGS), both),
    "hmm-order3": (lambda: t.HMM(order=3).fit(WORDS, CHUNKS), tagger),
    "hmm-em": (lambda: t.HMM(6, max_iter=8, seed=3).fit(WORDS), both),
    "hmm-em-many": (lambda: t.HMM(40, max_iter=5, seed=3, options={"dtype": "float32"}).fit(WORDS), both),
    "hmm-em-beam": (lambda: t.HMM(30, max_iter=5, beam="kl=0.01,min=4").fit(WORDS), both),
    "hmm-partial": (lambda: t.HMM(max_iter=8).fit(WORDS, PARTIAL), both),
    "factorial": (
        lambda: t.FactorialCRF(("pos", "chunk"), max_iter=15).fit(WORDS, {"pos": TAGS, "chunk": CHUNKS}),
        layered,
    ),
    "mrf-tagger": (lambda: t.MRFTagger(max_iter=15).fit(WORDS, TAGS), tagger),
    "parser": (lambda: t.DependencyParser(1, hash_bits=14, max_iter=2).fit(PAIRS, TREES), parser),
    "parser-order2": (lambda: t.DependencyParser(2, hash_bits=14, max_iter=1).fit(PAIRS, TREES), parser),
    "pcfg": (
        lambda: t.PCFG(3, n_preterminals=5, max_iter=4).fit(SHORT),
        lambda model: language_model(model, [w for w in NEW if len(w) < 12]),
    ),
    "hmm-lm": (lambda: t.HMMLanguageModel(16, hidden=8, max_iter=2).fit(WORDS), language_model),
    "hmm-lm-kernel": (
        lambda: t.HMMLanguageModel(32, rank=8, hidden=8, max_iter=2).fit(WORDS),
        language_model,
    ),
    "mrf": (lambda: t.MRFLanguageModel(window=2, rank=4, max_iter=15).fit(WORDS), language_model),
    "kneser-ney": (lambda: t.KneserNey(3).fit(WORDS), language_model),
}


def write(file: str, names: list[str]) -> None:
    """Fit models and write their answers."""
    arrays = {}
    for name in names or FITS:
        fit, ask = FITS[name]
        print(name, flush=True)
        arrays |= {f"{name}/{key}": np.asarray(value) for key, value in ask(fit()).items()}
        np.savez(file, **arrays)


def compare(old: str, new: str) -> int:
    """Print what differs between two files of answers; return 1 if something is missing or has another shape."""
    before, after = (dict(np.load(file)) for file in (old, new))
    models = {name.split("/")[0] for name in after}
    wrong = 0
    for name in before | after:
        if name not in before or name not in after:
            if name.split("/")[0] in models:
                wrong += 1
                print(f"{name}: only in {old if name in before else new}")
            continue
        a, b = before[name], after[name]
        if a.shape != b.shape:
            wrong += 1
            print(f"{name}: shapes {a.shape} and {b.shape}")
        elif a.dtype.kind == "U":
            if (a != b).any():
                print(f"{name}: {(a != b).sum()} of {a.size} strings differ")
        elif not np.array_equal(a, b, equal_nan=True):
            both = np.isfinite(a) & np.isfinite(b)
            size = max(1e-300, float(np.abs(a[both]).max(initial=0)))
            same = bool((both | (a == b) | (np.isnan(a) & np.isnan(b))).all())
            print(
                f"{name}: {np.abs(a - b)[both].max(initial=0) / size:.1e} of {size:.3g}"
                + " and infinities" * (not same)
            )
    print("nothing else differs")
    return min(wrong, 1)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["help"]
    if command == "write" and arguments:
        warnings.simplefilter("ignore")
        write(arguments[0], arguments[1:])
    elif command == "compare" and len(arguments) == 2:
        sys.exit(compare(*arguments))
    else:
        sys.exit(__doc__)
