"""Whole pages: of a training run, and of an evaluation."""

import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trelliswork import __version__
from trelliswork.metrics.dependencies import ParseReport
from trelliswork.metrics.induction import InductionReport
from trelliswork.metrics.tagging import TaggingReport
from trelliswork.models.factorial.data import FactorialReport
from trelliswork.report import grammars, language_models, parsers, taggers
from trelliswork.report.curves import learning_curves
from trelliswork.report.markup import number, percent
from trelliswork.report.page import Page, side_by_side
from trelliswork.report.samples import Sample
from trelliswork.report.tables import code, facts
from trelliswork.report.taggers import Section

NAMES = {
    "crf": "CRF tagger",
    "factorial-crf": "Factorial CRF",
    "hmm": "Hidden Markov model",
    "hmm-lm": "HMM language model",
    "kneser-ney": "Kneser-Ney language model",
    "lbl": "Log-bilinear language model",
    "mrf-lm": "Markov random field language model",
    "mrf-tagger": "MRF tagger",
    "parser": "Dependency parser",
    "pcfg": "Grammar",
}
TAGGERS = ("crf", "factorial-crf", "hmm", "mrf-tagger")
LANGUAGE_MODELS = ("hmm-lm", "kneser-ney", "lbl", "mrf-lm")
# What stands large at the head, if a run tells it, and how it is called.
CARDS = {
    "tokens": "tokens",
    "labels": "labels",
    "tags": "tags",
    "states": "states",
    "nonterminals": "nonterminals",
    "words": "words",
    "dev": "development",
    "dev_perplexity": "development perplexity",
    "perplexity": "training perplexity",
    "iterations": "iterations",
    "epochs": "epochs",
    "seconds": "seconds",
}


def model_sections(model: Any, sample: Sample | None = None) -> list[Section]:
    """What there is to see in a fitted model of any kind.

    Parameters
    ----------
    model : Estimator
    sample : Sample, optional
        Sentences to take an example from; with gold answers the model is judged by them.

    Returns
    -------
    list of (title, note, blocks)
        For ``Page.extend``.
    """
    some = sample if sample is not None and len(sample) else None
    if model.kind in TAGGERS:
        shown = [] if some is None else taggers.sentence_section(model, some)
        if some is not None and not getattr(model, "induced_", False):
            shown += taggers.figures_sections(model, some) + taggers.judged_sections(model, some)
        return shown + taggers.learned_sections(model)
    if model.kind == "parser":
        return [] if some is None else parsers.tree_section(model, some) + parsers.judged_sections(model, some)
    if model.kind == "pcfg":
        return ([] if some is None else grammars.tree_section(model, some)) + grammars.learned_sections(model)
    shown = [] if some is None else language_models.sentence_sections(model, some)
    return shown + language_models.learned_sections(model)


def training_page(model: Any, outcome: Mapping[str, Any], *, sample: Sample | None = None, command: str = "") -> Page:
    """The page of a training run.

    Parameters
    ----------
    model : Estimator
        Fitted; its history makes the learning curves.
    outcome : dict
        What the run tells of itself: sizes, seconds, how it ended; ``model`` is the directory that it was saved in.
    sample : Sample, optional
        As in ``model_sections``.
    command : str
        What was typed.
    """
    name = Path(str(outcome.get("model", ""))).name
    sizes = [f"{number(outcome[key])} {key}" for key in ("sentences", "tokens") if isinstance(outcome.get(key), int)]
    lead = f"Learned from {' with '.join(sizes)}" if sizes else "Learned"
    lead += f" in {number(outcome['seconds'], 1)} s" if "seconds" in outcome else ""
    lead += f". Training ended: {outcome['reason']}." if outcome.get("reason") else "."
    page = Page(_title(model, name), lead=lead, facts=_cards(outcome), footer=_footer())
    page.section("How it learned", side_by_side(*learning_curves(model)))
    page.extend(model_sections(model, sample))
    page.extend([_run(model, outcome, command)])
    return page


def evaluation_page(
    model: Any, report: Any, *, file: str, name: str = "", sample: Sample | None = None, command: str = ""
) -> Page:
    """The page of an evaluation.

    Parameters
    ----------
    model : Estimator
    report : TaggingReport, InductionReport, FactorialReport, ParseReport or dict
        What was found. Of a grammar ``{"brackets": {name: BracketReport}, "perplexity": float}``, of a language model
        the figures of its score, with ``log_evidence_of_sentences``.
    file : str
        What it was compared with.
    name : str
        The model's directory.
    sample : Sample, optional
        The same sentences, for an example, calibration and mistakes.
    command : str
    """
    page = Page(_title(model, Path(name).name), lead=f"Evaluated on {file}.", footer=_footer())
    page.facts, sections = _judged(model, report, sample)
    page.extend(sections)
    if sample is not None and len(sample):
        page.extend(_examples(model, sample, isinstance(report, InductionReport)))
    page.section("Run", code(command) if command else "", facts([("file", file), ("model", name)]))
    return page


def _judged(model: Any, report: Any, sample: Sample | None) -> tuple[list[tuple[str, str]], list[Section]]:
    """What stands at the head of an evaluation's page, and the figures below it."""
    if isinstance(report, TaggingReport):
        return _tagging_cards(report), taggers.tagging_sections(report)
    if isinstance(report, FactorialReport):
        cards = [("tokens", number(report.n_tokens)), ("all layers right", percent(report.joint_accuracy, 2))]
        cards += [(name, percent(r.accuracy, 2)) for name, r in report.layers.items()]
        return cards, [s for name, one in report.layers.items() for s in taggers.tagging_sections(one, name)]
    if isinstance(report, InductionReport):
        rates = {"many-to-one": report.many_to_one, "one-to-one": report.one_to_one, "V-measure": report.v_measure}
        return _shares("tokens", report.n_tokens, rates), taggers.induction_sections(report)
    if isinstance(report, ParseReport):
        scores = {"UAS": report.uas, "LAS": report.las, "whole trees": report.exact}
        return _shares("words", report.n_words, scores), parsers.parsing_sections(report)
    if "brackets" in report:
        last = list(report["brackets"].values())[-1]
        rates = {"F1 a sentence": last.sentence_f1, "right-branching": last.right_f1}
        cards = [*_shares("sentences", last.n_sentences, rates), ("perplexity", number(report["perplexity"], 2))]
        return cards, grammars.bracket_sections(report["brackets"], report["perplexity"])
    cards = [(key, number(report[key], 2)) for key in ("sentences", "tokens", "perplexity")]
    cards.append(("log evidence is", {"lower": "a bound", "estimate": "an estimate"}.get(report["kind"], "exact")))
    if sample is None:
        return cards, []
    values = report["log_evidence_of_sentences"]
    return cards, language_models.score_sections(values, sample.words(), getattr(model, "end", True))


def _shares(what: str, count: int, rates: Mapping[str, float | None]) -> list[tuple[str, str]]:
    return [(what, number(count)), *((name, percent(rate, 2)) for name, rate in rates.items())]


def _examples(model: Any, sample: Sample, induced: bool) -> list[Section]:
    """A sentence with its answer, and what went wrong."""
    if model.kind in TAGGERS:
        shown = Sample(sample.part, sample.X) if induced else sample
        return taggers.judged_sections(model, shown) + taggers.sentence_section(model, shown)
    if model.kind == "parser":
        return parsers.tree_section(model, sample)
    if model.kind == "pcfg":
        return grammars.tree_section(model, sample)
    return language_models.sentence_sections(model, sample)


def _title(model: Any, name: str) -> str:
    kind = NAMES.get(model.kind, model.kind)
    return f"{kind}: {name}" if name else kind


def _footer() -> str:
    when = time.strftime("%Y-%m-%d %H:%M")
    return f"trelliswork {__version__}, Python {platform.python_version()}, {when}"


def _cards(outcome: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for key, name in CARDS.items():
        value = outcome.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and (value or key != "iterations"):
            value = int(value) if float(value).is_integer() else value
            share = key == "dev" and 0 <= value <= 1
            name = "development log-likelihood" if key == "dev" and not share else name
            found.append((name, percent(value, 2) if share else number(value, 1 if key == "seconds" else 2)))
        elif isinstance(value, Mapping):  # sizes of layers
            found += [(f"{layer} {name}", number(size)) for layer, size in value.items()]
    return found


def _tagging_cards(report: TaggingReport) -> list[tuple[str, str]]:
    found = [("tokens", number(report.n_tokens)), ("accuracy", percent(report.accuracy, 2))]
    if report.chunks is not None:
        found.append(("F1 of spans", percent(report.chunks.f1, 2)))
    if report.unknown_accuracy is not None:
        found.append(("unknown words", percent(report.unknown_accuracy, 2)))
    return [*found, ("whole sentences", percent(report.sentence_accuracy, 2))]


def _run(model: Any, outcome: Mapping[str, Any], command: str) -> Section:
    told = facts(outcome.items(), title="Outcome")
    settings = facts(model.get_params().items(), title="Settings")
    blocks = [code(command)] if command else []
    return "Run", "", [*blocks, side_by_side(told, settings)]
