"""Sections about taggers: the posterior of a sentence, accuracies, confidence and errors."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from trelliswork.data import AttributeCorpus
from trelliswork.data.schemes import detect_scheme
from trelliswork.metrics.calibration import ConfidenceReport, evaluate_confidence
from trelliswork.metrics.induction import InductionReport
from trelliswork.metrics.tagging import Score, TaggingReport, evaluate_tagging
from trelliswork.models.tasks import LayeredTagger
from trelliswork.report.charts import calibration
from trelliswork.report.page import Html, Section, join, percent, side_by_side
from trelliswork.report.samples import JUDGED, SEARCHED, Sample, example
from trelliswork.report.structures import trellis
from trelliswork.report.tables import confusion, facts, table


class Answers(NamedTuple):
    """Predicted labels of sentences and the probabilities of all labels."""

    labels: list[list[str]]
    marginals: list[list[dict[str, float]]]

    def confidence(self) -> list[list[float]]:
        """Return the probability of each predicted label."""
        return [
            [p[label] for p, label in zip(*rows, strict=True)] for rows in zip(self.marginals, self.labels, strict=True)
        ]

    def judged(self, gold: Sequence[Sequence[str]]) -> ConfidenceReport:
        """Compare the probabilities with gold labels."""
        rows = zip(self.marginals, self.labels, gold, strict=True)
        return evaluate_confidence(
            [[(p[label], label == g, p.get(g, 0.0)) for p, label, g in zip(*row, strict=True)] for row in rows]
        )


def confidence_tables(report: ConfidenceReport) -> Html:
    """Return proper scores with intervals, and what thresholds accept."""
    figures = {
        "calibration error": report.calibration_error,
        "Brier score": report.brier,
        "log score": report.log_score,
    }
    scores = [[name, f.value, f"{f.low:.4f} to {f.high:.4f}"] for name, f in figures.items()]
    rows = [[f"{a.threshold:g}", percent(a.coverage, 2), percent(a.accuracy, 2)] for a in report.accepted]
    return join([
        table(["", "value", "95 % interval"], scores, title="Confidence"),
        table(["probability from", f"{report.what} accepted", "correct"], rows, title="Thresholds"),
    ])  # fmt: skip


def sentence_section(model: Any, sample: Sample) -> list[Section]:
    """Return the posterior of the sentence with the least certain answer."""
    some = sample.full().first(SEARCHED)
    if not len(some):
        return []
    layers = _ask(model, some.X)
    rows = zip(*(answers.confidence() for answers in layers.values()), strict=True)
    n = example([[min(ps) for ps in zip(*row, strict=True)] for row in rows])
    words, gold = some.words()[n], _gold(some)
    pictures = [
        trellis(
            words,
            list(answers.marginals[n][0]),
            answers.marginals[n],
            answers.labels[n],
            gold[name][n] if name in gold else None,
            title=f"Layer {name}" if name else "",
        )
        for name, answers in layers.items()
    ]
    one = some.take([n])
    log_p = model.log_prob(one.X, _labeling(model, {name: [answers.labels[n]] for name, answers in layers.items()}))
    note = f"{example_note(sample, some)} The whole labeling has probability {percent(float(np.exp(log_p[0])))}."
    return [("The posterior of a sentence", note, [*pictures, *_spans(model, one, words)])]


def _labeling(model: Any, by_layer: dict[str, Any]) -> Any:
    """Return labels as ``fit`` takes them."""
    return by_layer if isinstance(model, LayeredTagger) else by_layer[""]


def _spans(model: Any, one: Sample, words: Sequence[str]) -> list[Html]:
    """Return tables of the spans of a sentence with their probabilities."""
    layered = isinstance(model, LayeredTagger)
    sets = [layer.labels for layer in model.layers_] if layered else [model.labels_]
    if all(detect_scheme(labels) is None for labels in sets):
        return []
    found: Any = model.predict_spans(one.X)
    tables = []
    for name, (row,) in (found if isinstance(found, dict) else {"": found}).items():
        rows = [[" ".join(words[s.start : s.stop]), s.type, percent(p)] for s, p in row]
        title = f"Spans of layer {name}" if name else "Spans"
        tables.append(table(["span", "type", "probability of all its labels"], rows, title=title))
    return tables


def example_note(sample: Sample, searched: Sample) -> str:
    """Return a sentence about the choice of the example."""
    return f"The least certain sentence of readable length among the first {len(searched):,} of the {sample.part} data."


def compared_sections(model: Any, sample: Sample, *, results: bool) -> list[Section]:
    """Compare answers with gold labels: results as tables (optional), calibration, confusions, confident errors."""
    full = sample.full()
    some = full.first(JUDGED)
    gold = _gold(some)
    if not gold or not len(some):
        return []
    words = some.words()
    known = None if isinstance(some.X, AttributeCorpus) else model.known_words()
    options: dict[str, Any] = {"words": words, "known_words": known} if known else {}
    layers = _ask(model, some.X)
    sections: list[Section] = []
    if results:
        for name, answers in layers.items():
            sections += tagging_sections(evaluate_tagging(gold[name], answers.labels, **options), name, sample.part)
    note = f"On {'the first ' if len(some) < len(full) else ''}{len(some):,} sentences of the {sample.part} data."
    for name, answers in layers.items():
        report = answers.judged(gold[name])
        blocks = [
            side_by_side(calibration(report.bins, title="Calibration"), confidence_tables(report)),
            _confident_errors(words, gold[name], answers),
            confusion(chain(*gold[name]), chain(*answers.labels), title="Confusion matrix"),
        ]
        sections.append((f"Confidence and errors{f' of layer {name}' if name else ''}", note, blocks))
    return sections


def tagging_sections(report: TaggingReport, layer: str = "", part: str = "test") -> list[Section]:
    """Return the results of a report as tables."""
    rows = [
        ("tokens", report.n_tokens, report.accuracy),
        ("sentences", report.n_sentences, report.sentence_accuracy),
        ("known words", report.n_known, report.known_accuracy),
        ("unknown words", report.n_unknown, report.unknown_accuracy),
    ]
    shown = [[name, n, percent(rate, 2)] for name, n, rate in rows if n is not None]
    left = [table(["", "count", "correct"], shown, title="Accuracy")]
    if report.chunks is not None and report.chunks_by_type is not None:
        left.append(_scores("Spans", "type", {"all": report.chunks, **report.chunks_by_type}))
    frequent = sorted(report.labels.items(), key=lambda item: -item[1].support)[:30]
    title = f"Results of layer {layer}" if layer else "Results"
    blocks = [side_by_side(join(left), _scores("Labels", "label", dict(frequent)))]
    return [(title, f"Predictions compared with the gold labels of the {part} data.", blocks)]


def induction_sections(report: InductionReport) -> list[Section]:
    """Return the results of induced states, and the gold label of each state."""
    rows = [
        ("tokens", report.n_tokens),
        ("gold labels", report.n_gold),
        ("induced states", report.n_induced),
        ("many-to-one", percent(report.many_to_one, 2)),
        ("one-to-one", percent(report.one_to_one, 2)),
        ("homogeneity", report.homogeneity),
        ("completeness", report.completeness),
        ("V-measure", report.v_measure),
        ("variation of information", f"{report.variation_of_information:.4f} nats"),
    ]
    names = [[str(k), str(g), str(report.matching.get(k, "–"))] for k, g in report.mapping.items()]
    listed = table(["state", "many-to-one", "one-to-one"], names, title="Gold labels of the states")
    return [("Results", "Induced states compared with gold labels.", [side_by_side(facts(rows), listed)])]


def _ask(model: Any, X: Any) -> dict[str, Answers]:
    """Return the answers of a tagger by layer; the name of a single layer is empty."""
    if isinstance(model, LayeredTagger):
        marginals: Any = model.predict_marginals(X)
        return {name: Answers(labels, marginals[name]) for name, labels in model.predict_layers(X).items()}
    return {"": Answers(model.predict(X), model.predict_marginals(X))}


def _gold(sample: Sample) -> dict[str, Any]:
    """Return gold labels by layer; an empty dict if there are none."""
    if sample.gold is None:
        return {}
    return sample.gold if isinstance(sample.gold, dict) else {"": sample.gold}


def _scores(title: str, what: str, scores: dict[str, Score]) -> Html:
    rows = [[name, s.support, s.precision, s.recall, s.f1] for name, s in scores.items()]
    return table([what, "count", "precision", "recall", "F1"], rows, title=title)


def _confident_errors(
    sentences: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], answers: Answers, n: int = 10
) -> Html:
    """Return the errors with the highest probabilities, with the words around them."""
    errors: list[tuple[float, int, str, str, str]] = []
    for words, right, labels, ps in zip(sentences, gold, answers.labels, answers.confidence(), strict=True):
        for t, (g, label, p) in enumerate(zip(right, labels, ps, strict=True)):
            if g != label:
                around = [*words[max(0, t - 2) : t], f"[{words[t]}]", *words[t + 1 : t + 2]]
                errors.append((-p, len(errors), " ".join(around), g, label))
    rows = [[place, g, label, percent(-p)] for p, _, place, g, label in sorted(errors)[:n]]
    return table(["[word]", "gold", "predicted", "probability"], rows, title="Most confident errors")
