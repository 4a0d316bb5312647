"""Pages of every kind of model in a browser: nothing overflows, nothing is fetched, nothing is logged."""

import warnings
from pathlib import Path

import pytest

from tests.browser import WIDTHS
from tests.report.checks import check_page
from trelliswork.data import Corpus, bundled
from trelliswork.data.trees import prune
from trelliswork.metrics.tagging import evaluate_tagging
from trelliswork.models import (
    CRF,
    HMM,
    PCFG,
    DependencyParser,
    FactorialCRF,
    HMMLanguageModel,
    MRFLanguageModel,
    MRFTagger,
)
from trelliswork.models.baselines import KneserNey, LogBilinear
from trelliswork.report import Page, Sample, bars, evaluation_page, table, training_page

EVIL = '<img src="https://example.org/x.png" onerror="alert(1)"><script>throw 1</script>'
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft" * 2
TRAIN, DEV = bundled.load("train")[:60], bundled.load("dev")[:20]


def words(some) -> list[list[str]]:
    """With a word that is markup and one that is far too long."""
    found = [list(s.words) for s in some]
    found[0][0], found[1][0] = EVIL, LONG
    return found


def tags(some) -> list[list[str]]:
    return [list(s.tags) for s in some]


def dependencies(some) -> Corpus:
    return Corpus.from_sentences([list(zip(w, s.tags, strict=True)) for w, s in zip(words(some), some, strict=True)])


def page_of(kind: str) -> list[Page]:
    """A tiny model's pages: of training, and of evaluation where it has one of its own."""
    text, dev = words(TRAIN), Sample("development", words(DEV))
    labelled = Sample("development", words(DEV), tags(DEV))
    outcome = {"model": f"{kind}{EVIL}", "tokens": 700, "seconds": 1.5, "reason": LONG}
    if kind == "crf":
        model = CRF("pos", max_iter=3).fit(text, tags(TRAIN), dev=(labelled.X, labelled.gold))
        report = evaluate_tagging(labelled.gold, model.predict(labelled.X))
        return [training_page(model, outcome, sample=labelled, command=f"trelliswork train crf {EVIL}"),
                evaluation_page(model, report, file=EVIL, name=LONG, sample=labelled)]  # fmt: skip
    if kind == "factorial-crf":
        gold = {"pos": tags(DEV), "chunk": [list(s.chunks) for s in DEV]}
        y = {"pos": tags(TRAIN), "chunk": [list(s.chunks) for s in TRAIN]}
        model = FactorialCRF(max_iter=2).fit(text, y)
        return [training_page(model, outcome, sample=Sample("development", dev.X, gold))]
    if kind == "parser":
        sample = Sample(
            "development", dependencies(DEV), [list(s.heads) for s in DEV], [list(s.relations) for s in DEV]
        )
        trees, gold = ([list(zip(s.heads, s.relations, strict=True)) for s in part] for part in (TRAIN, DEV))
        model = DependencyParser(1, hash_bits=14, max_iter=1, max_iter_labels=1).fit(dependencies(TRAIN), trees)
        report = model.evaluate(sample.X, gold)
        return [training_page(model, outcome, sample=sample),
                evaluation_page(model, report, file="test", sample=sample)]  # fmt: skip
    if kind == "pcfg":
        model = PCFG(3, 4, max_iter=2, max_length=10).fit(text)
        trees = [prune(s.tree, functions=False, unary=False) for s in DEV if len(s.words) < 11]
        found = {
            "brackets": {"all": model.evaluate(trees)},
            "perplexity": model.perplexity([t.leaves() for t in trees]),
        }
        sample = Sample("test", [list(t.leaves()) for t in trees], trees)
        return [training_page(model, outcome, sample=Sample("training", text)),
                evaluation_page(model, found, file="test", sample=sample)]  # fmt: skip
    if kind in ("hmm", "mrf-tagger"):
        model = {"hmm": HMM(), "mrf-tagger": MRFTagger(max_iter=2)}[kind].fit(text, tags(TRAIN))
        return [training_page(model, outcome, sample=labelled)]
    model = {
        "kneser-ney": KneserNey(3),
        "lbl": LogBilinear(2, 4, max_iter=2),
        "mrf-lm": MRFLanguageModel(1, 4, max_iter=3),
        "hmm-lm": HMMLanguageModel(4, hidden=4, max_epochs=1),
    }[kind].fit(text)
    pages = [training_page(model, outcome, sample=Sample("training", text))]
    if kind == "kneser-ney":  # the same for all language models
        figures = {"sentences": 60, "tokens": 700, "perplexity": 99.5, "kind": "exact"}
        figures["log_evidence_of_sentences"] = model.log_evidence(text).tolist()
        pages.append(evaluation_page(model, figures, file="test", sample=Sample("test", text)))
    return pages


KINDS = ("crf", "factorial-crf", "hmm", "hmm-lm", "kneser-ney", "lbl", "mrf-lm", "mrf-tagger", "parser", "pcfg")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize("kind", KINDS)
def test_pages_of_models(kind, folder, open_page):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tiny models do not converge
        pages = page_of(kind)
    for n, page in enumerate(pages):
        path = folder / f"{kind}-{n}.html"
        page.write(path)
        check_page(path.read_text())
        for width in WIDTHS:
            look(open_page, path, width)


def look(open_page, path: Path, width: int, scheme: str = "light"):
    """Open a page and see that it is well."""
    opened = open_page(path, width, scheme=scheme)
    assert opened.errors == []
    assert opened.requests == [path.resolve().as_uri()]
    assert opened.overflow() <= 0, f"{path.name} is wider than {width} pixels"
    wide = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg') &&
              e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.tagName + e.className)"""
    assert opened.page.evaluate(wide) == []
    return opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_can_be_read(scheme, tmp_path, open_page):
    page = Page("Colours", lead="A lead.", facts=[("a", "1")])
    page.section("Section", "Words.", bars([("a", 1.0)]), table(["x"], [[1]]))
    page.write(tmp_path / "page.html")
    opened = look(open_page, tmp_path / "page.html", 1280, scheme)
    style = "getComputedStyle(document.{}).{}.match(/\\d+/g).slice(0, 3).map(Number)"
    back = opened.page.evaluate(style.format("body", "backgroundColor"))
    ink = opened.page.evaluate(style.format("querySelector('.note, .lead')", "color"))
    assert (sum(back) > 3 * 128) == (scheme == "light")
    assert contrast(back, ink) > 4.5  # WCAG AA


def contrast(one: list[int], two: list[int]) -> float:
    """The ratio of luminances, as WCAG defines it."""

    def luminance(colour: list[int]) -> float:
        linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)
