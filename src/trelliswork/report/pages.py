"""Complete pages about a training run and about an evaluation."""

import math
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
from trelliswork.models.tasks import Tagger, TreeParser
from trelliswork.report import language_models, parsing, taggers
from trelliswork.report.curves import is_log_prob, learning_curves
from trelliswork.report.learned import learned_sections
from trelliswork.report.page import Page, Section, number, percent, side_by_side
from trelliswork.report.samples import Sample
from trelliswork.report.tables import code, facts

# Facts of a run that are shown large at the top, after the names there of those that have another.
NAMES = {"dev_perplexity": "development perplexity", "train_perplexity": "training perplexity"}
CARDS = ("tokens", "labels", "states", "nonterminals", "words", "dev", *NAMES, "iterations", "seconds")


def model_sections(model: Any, sample: Sample | None = None) -> list[Section]:
    """Return sections about a fitted model: an example, comparisons with gold answers, learned parameters.

    Parameters
    ----------
    model : Estimator
    sample : Sample, optional
        Sentences for the example; with gold answers the model is compared with them.

    Returns
    -------
    list of (title, note, blocks)
        For ``Page.extend``.
    """
    sections: list[Section] = []
    if sample is not None and len(sample):
        sections += _example(model, sample)
        if isinstance(model, Tagger) and not getattr(model, "_induced", False):
            sections += taggers.compared_sections(model, sample, results=True)
        elif isinstance(model, TreeParser) and not model.constituents:
            sections += parsing.compared_sections(model, sample)
    return sections + learned_sections(model)


def training_page(model: Any, outcome: Mapping[str, Any], *, sample: Sample | None = None, command: str = "") -> Page:
    """Return the page about a training run.

    Parameters
    ----------
    model : Estimator
        Fitted; its history gives the learning curves.
    outcome : dict
        Facts about the run: sizes, seconds, why it ended; ``model`` is the directory of the model.
    sample : Sample, optional
        As in ``model_sections``.
    command : str
        Command as it was typed.
    """
    name = Path(str(outcome.get("model", ""))).name
    sizes = [f"{number(outcome[key])} {key}" for key in ("sentences", "tokens") if isinstance(outcome.get(key), int)]
    lead = f"Trained on {' with '.join(sizes)}" if sizes else "Trained"
    lead += f" in {number(outcome['seconds'], 1)} s" if "seconds" in outcome else ""
    lead += f". Training ended: {outcome['reason']}." if outcome.get("reason") else "."
    page = Page(_title(model, name), lead=lead, facts=_cards(outcome), footer=_footer())
    page.section("Learning curves", side_by_side(*learning_curves(model)))
    page.extend(model_sections(model, sample))
    settings = facts(model.get_params().items(), title="Settings")
    page.section(
        "Run", code(command) if command else "", side_by_side(facts(outcome.items(), title="Outcome"), settings)
    )
    return page


def evaluation_page(
    model: Any, report: Any, *, file: str, name: str = "", sample: Sample | None = None, command: str = ""
) -> Page:
    """Return the page about an evaluation.

    Parameters
    ----------
    model : Estimator
    report : TaggingReport, InductionReport, FactorialReport, ParseReport or dict
        Results. For a grammar ``{"brackets": {name: BracketReport}, "perplexity": float}``, for a language model the
        results of ``trelliswork score``, with ``log_prob_of_sentences``.
    file : str
        File with the gold answers.
    name : str
        Directory of the model.
    sample : Sample, optional
        The same sentences, for an example, calibration and errors.
    command : str
        Command as it was typed.
    """
    page = Page(_title(model, Path(name).name), lead=f"Evaluated on {file}.", footer=_footer())
    page.facts, sections = _results(model, report, sample)
    page.extend(sections)
    if sample is not None and len(sample):
        if isinstance(report, InductionReport):  # states are not gold labels
            sample = Sample(sample.part, sample.X)
        if isinstance(model, Tagger):
            page.extend(taggers.compared_sections(model, sample, results=False))
        page.extend(_example(model, sample))
    page.section("Run", code(command) if command else "", facts([("file", file), ("model", name)]))
    return page


def _example(model: Any, sample: Sample) -> list[Section]:
    """Return a sentence with the answer of the model."""
    if isinstance(model, Tagger):
        return taggers.sentence_section(model, sample)
    if isinstance(model, TreeParser):
        return parsing.tree_section(model, sample)
    return language_models.sentence_sections(model, sample)


def _results(model: Any, report: Any, sample: Sample | None) -> tuple[list[tuple[str, str]], list[Section]]:
    """Return the facts at the top of an evaluation's page, and the sections with its results."""
    if isinstance(report, TaggingReport):
        return _tagging_cards(report), taggers.tagging_sections(report)
    if isinstance(report, FactorialReport):
        rates = {"all layers correct": report.joint_accuracy, **{n: r.accuracy for n, r in report.layers.items()}}
        sections = [s for name, one in report.layers.items() for s in taggers.tagging_sections(one, name)]
        return _rates("tokens", report.n_tokens, rates), sections
    if isinstance(report, InductionReport):
        rates = {"many-to-one": report.many_to_one, "one-to-one": report.one_to_one, "V-measure": report.v_measure}
        return _rates("tokens", report.n_tokens, rates), taggers.induction_sections(report)
    if isinstance(report, ParseReport):
        scores = {"UAS": report.uas, "LAS": report.las, "complete trees": report.exact}
        return _rates("words", report.n_words, scores), parsing.dependency_sections(report)
    if "brackets" in report:
        last = list(report["brackets"].values())[-1]
        rates = {"F1 per sentence": last.sentence_f1, "right-branching": last.right_f1}
        cards = [*_rates("sentences", last.n_sentences, rates), ("perplexity", number(report["perplexity"], 2))]
        return cards, parsing.bracket_sections(report["brackets"], report["perplexity"])
    cards = [(key, number(report[key], 2)) for key in ("sentences", "tokens", "perplexity")]
    cards.append(("log-probability", {"lower": "lower bound", "estimate": "estimate"}.get(report["kind"], "exact")))
    if sample is None:
        return cards, []
    values = report["log_prob_of_sentences"]
    return cards, language_models.score_sections(values, sample.words(), getattr(model, "end", True))


def _rates(what: str, count: int, rates: Mapping[str, float | None]) -> list[tuple[str, str]]:
    return [(what, number(count)), *((name, percent(rate, 2)) for name, rate in rates.items())]


def _tagging_cards(report: TaggingReport) -> list[tuple[str, str]]:
    rates = {"accuracy": report.accuracy}
    if report.chunks is not None:
        rates["F1 of spans"] = report.chunks.f1
    if report.unknown_accuracy is not None:
        rates["unknown words"] = report.unknown_accuracy
    return _rates("tokens", report.n_tokens, rates | {"complete sentences": report.sentence_accuracy})


def _cards(outcome: Mapping[str, Any]) -> list[tuple[str, str]]:
    cards = []
    for key in CARDS:
        name, value = NAMES.get(key, key), outcome.get(key)
        if isinstance(value, Mapping):  # sizes of layers
            cards += [(f"{layer} {name}", number(size)) for layer, size in value.items()]
        elif isinstance(value, int | float) and not isinstance(value, bool) and (value or key != "iterations"):
            if key == "dev":
                cards.append(_development(value, outcome.get("dev_metric") or ""))
                continue
            value = int(value) if float(value).is_integer() else value
            cards.append((name, number(value, 1 if key == "seconds" else 2)))
    return cards


def _development(value: float, metric: str) -> tuple[str, str]:
    """Return name and value of a metric on the development data."""
    if is_log_prob(metric):
        return "development perplexity", number(math.exp(min(-value, 700.0)), 2)
    return f"development {metric}".strip(), percent(value, 2) if 0 <= value <= 1 else number(value)


def _title(model: Any, name: str) -> str:
    return f"{model._title}: {name}" if name else model._title


def _footer() -> str:
    return f"trelliswork {__version__}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d %H:%M')}"
