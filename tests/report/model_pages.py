"""Pages of a tiny model of every family, with hostile and very long words, shared by tests."""

import warnings
from functools import cache

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
from trelliswork.data import Corpus
from trelliswork.data.trees import prune
from trelliswork.evaluation import evaluate
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import LogBilinear
from trelliswork.report import Page, Sample, evaluation_page, training_page

EVIL = '<img src="https://example.org/x.png" onerror="alert(1)"><script>throw 1</script>'
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 2
TRAIN, DEV = bundled.load("train")[:60], bundled.load("dev")[:20]
KINDS = (
    "crf",
    "factorial-crf",
    "hmm",
    "hmm-lm",
    "kneser-ney",
    "log-bilinear",
    "mrf-lm",
    "mrf-tagger",
    "parser",
    "pcfg",
)


@cache
def pages_of(kind: str) -> list[Page]:
    """Return the pages of a tiny model: about training, and about an evaluation where it differs by family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tiny models do not converge
        return _pages(kind)


def words(some) -> list[list[str]]:
    """Return sentences with one word that is markup and one that is very long."""
    sentences = [list(s.words) for s in some]
    sentences[0][0], sentences[1][0] = EVIL, LONG
    return sentences


def tags(some) -> list[list[str]]:
    return [list(s.tags) for s in some]


def tagged(some) -> Corpus:
    return Corpus.from_sentences([list(zip(w, s.tags, strict=True)) for w, s in zip(words(some), some, strict=True)])


def trees(some) -> list[list[tuple[int, str]]]:
    return [list(zip(s.heads, s.relations, strict=True)) for s in some]


def _pages(kind: str) -> list[Page]:
    text, labeled = words(TRAIN), Sample("development", words(DEV), tags(DEV))
    outcome = {"model": f"{kind}{EVIL}", "tokens": 700, "seconds": 1.5, "reason": LONG}
    if kind == "crf":
        model = CRF("pos", max_iter=3).fit(text, tags(TRAIN), dev=(labeled.X, labeled.gold))
        report = evaluate_tagging(labeled.gold, model.predict(labeled.X))
        outcome |= {"dev": model.report_.dev, "dev_metric": model.report_.metric}
        return [training_page(model, outcome, sample=labeled, command=f"trelliswork train crf {EVIL}"),
                evaluation_page(model, report, file=EVIL, name=LONG, sample=labeled)]  # fmt: skip
    if kind == "factorial-crf":
        y, gold = ({"pos": tags(part), "chunk": [list(s.chunks) for s in part]} for part in (TRAIN, DEV))
        model = FactorialCRF(max_iter=2).fit(text, y)
        return [training_page(model, outcome, sample=Sample("development", labeled.X, gold))]
    if kind == "parser":
        sample = Sample("development", tagged(DEV), trees(DEV))
        model = DependencyParser(1, hash_bits=14, max_iter=2)
        model.fit(tagged(TRAIN), trees(TRAIN), dev=(sample.X, sample.gold))
        report = evaluate(model, sample.X, sample.gold)
        return [training_page(model, outcome, sample=sample),
                evaluation_page(model, report, file="test", sample=sample)]  # fmt: skip
    if kind == "pcfg":
        model = PCFG(3, n_preterminals=4, max_iter=2, max_length=10).fit(text)
        gold = [prune(s.tree, functions=False, unary=False) for s in DEV if len(s.words) < 11]
        tokens = [list(tree.leaves()) for tree in gold]
        report = {
            "brackets": {"all": evaluate(model, tokens, gold)},
            "perplexity": model.perplexity(tokens),
        }
        return [training_page(model, outcome, sample=Sample("training", text)),
                evaluation_page(model, report, file="test", sample=Sample("test", tokens, gold))]  # fmt: skip
    if kind in ("hmm", "mrf-tagger"):
        model = {"hmm": HMM(), "mrf-tagger": MRFTagger(max_iter=2)}[kind].fit(text, tags(TRAIN))
        return [training_page(model, outcome, sample=labeled)]
    model = {
        "kneser-ney": KneserNey(3),
        "log-bilinear": LogBilinear(2, rank=4, max_iter=2),
        "mrf-lm": MRFLanguageModel(1, rank=4, max_iter=3),
        "hmm-lm": HMMLanguageModel(4, hidden=4, max_iter=1),
    }[kind].fit(text, **({"dev": text[:20]} if kind != "kneser-ney" else {}))
    pages = [training_page(model, outcome, sample=Sample("training", text))]
    if kind == "kneser-ney":  # the same for all language models
        figures = {"sentences": 60, "tokens": 700, "perplexity": 99.5, "kind": "exact"}
        figures["log_prob_of_sentences"] = model.log_prob(text).tolist()
        pages.append(evaluation_page(model, figures, file="test", sample=Sample("test", text)))
    return pages
