"""Sections about taggers: the posterior of a sentence, accuracies, confidence and errors."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from trelliswork.data import AttributeCorpus
from trelliswork.data.schemes import Span, detect_scheme, spans
from trelliswork.metrics.calibration import ConfidenceReport
from trelliswork.metrics.induction import InductionReport
from trelliswork.metrics.tagging import Score, TaggingReport, evaluate_tagging, with_confidence
from trelliswork.models.tasks import LayeredTagger
from trelliswork.report.charts import calibration
from trelliswork.report.page import Html, Section, figure, join, percent, side_by_side
from trelliswork.report.samples import JUDGED, SEARCHED, Sample, example
from trelliswork.report.structures import entities, trellis
from trelliswork.report.tables import confusion, facts, folded, table

ERRORS = ("wrong type", "wrong boundary", "wrong type and boundary", "spurious", "missed")
LISTED = 8  # wrong spans of each kind
AROUND = 10  # words on each side of a wrong span


class Answers(NamedTuple):
    """Predicted labels of sentences, the probabilities of all labels, and those of spans if labels encode spans."""

    labels: list[list[str]]
    marginals: list[list[dict[str, float]]]
    spans: list[list[tuple[Span, float]]] | None = None
    types: Sequence[str] = ()  # of spans

    def confidence(self) -> list[list[float]]:
        """Return the probability of each predicted label."""
        return [
            [p[label] for p, label in zip(*rows, strict=True)] for rows in zip(self.marginals, self.labels, strict=True)
        ]

    def judged(self, gold: Sequence[Sequence[str]]) -> TaggingReport:
        """Compare labels and spans, and their probabilities, with gold labels."""
        rows = zip(self.marginals, self.labels, gold, strict=True)
        ps = [[(p[label], p.get(g, 0.0)) for p, label, g in zip(*row, strict=True)] for row in rows]
        report = evaluate_tagging(gold, self.labels, scheme="auto" if self.spans is not None else None)
        found = None if self.spans is None else [[p for _, p in row] for row in self.spans]
        return with_confidence(report, gold, self.labels, ps, found)


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
    pictures = []
    for name, answers in layers.items():
        title = f"Layer {name}" if name else ""
        right, states = gold[name][n] if name in gold else None, list(answers.marginals[n][0])
        picture = trellis(words, states, answers.marginals[n], answers.labels[n], right, title=title)
        if answers.spans is not None:
            marks = [(*span, p) for span, p in answers.spans[n]]
            pictures.append(figure(entities(words, marks, answers.types), title))
            picture = folded("Labels of all tokens", picture)
        pictures.append(picture)
    one = some.take([n])
    log_p = model.log_prob(one.X, _labeling(model, {name: [answers.labels[n]] for name, answers in layers.items()}))
    note = f"{example_note(sample, some)} The whole labeling has probability {percent(float(np.exp(log_p[0])))}."
    return [("The posterior of a sentence", note, pictures)]


def _labeling(model: Any, by_layer: dict[str, Any]) -> Any:
    """Return labels as ``fit`` takes them."""
    return by_layer if isinstance(model, LayeredTagger) else by_layer[""]


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
    layers = _ask(model, some.X)
    sections: list[Section] = []
    if results:  # of all sentences, as the score that training reports
        known = None if isinstance(full.X, AttributeCorpus) else model.known_words()
        options: dict[str, Any] = {"words": full.words(), "known_words": known} if known else {}
        right = _gold(full)
        for name, labels in _labels(model, full.X).items():
            sections += tagging_sections(evaluate_tagging(right[name], labels, **options), name, sample.part)
    note = f"On {'the first ' if len(some) < len(full) else ''}{len(some):,} sentences of the {sample.part} data."
    for name, answers in layers.items():
        report, layer = answers.judged(gold[name]), f" of layer {name}" if name else ""
        if report.scheme is not None and answers.spans is not None:
            wrong, counts = _wrong_spans(words, [spans(row, report.scheme) for row in gold[name]], answers)
            sections.append((f"Wrong spans{layer}", f"{note} {counts}", [wrong]))
        judged = [one for one in (report.span_confidence, report.confidence) if one is not None]
        blocks = [
            *(side_by_side(calibration(one.bins, title=f"Calibration of {one.what}", what=one.what),
                           confidence_tables(one)) for one in judged),
            _confident_errors(words, gold[name], answers),
            confusion(chain(*gold[name]), chain(*answers.labels), title="Confusion matrix"),
        ]  # fmt: skip
        sections.append((f"Confidence and errors{layer}", note, blocks))
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
    layered = isinstance(model, LayeredTagger)
    sets = {layer.name: list(layer.labels) for layer in model.layers_} if layered else {"": list(model.labels_)}
    found: Any = model.predict_spans(X) if any(map(detect_scheme, sets.values())) else None
    labels, marginals = _labels(model, X), model.predict_marginals(X)
    if not layered:
        return {"": Answers(labels[""], marginals, found, _types(sets[""]))}
    return {name: Answers(labels[name], marginals[name], (found or {}).get(name), _types(sets[name])) for name in sets}


def _labels(model: Any, X: Any) -> dict[str, list[list[str]]]:
    """Return predicted labels by layer."""
    return model.predict_layers(X) if isinstance(model, LayeredTagger) else {"": model.predict(X)}


def _types(labels: Sequence[str]) -> list[str]:
    """Return the types of spans that labels encode."""
    return sorted({label[2:] for label in labels if label != "O"})


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


def _wrong_spans(
    sentences: Sequence[Sequence[str]], gold: Sequence[Sequence[Span]], answers: Answers
) -> tuple[Html, str]:
    """Return the spans that differ from gold in their sentences, the most probable first, and how many there are."""
    rows: dict[str, list[tuple[float, Html, str]]] = {kind: [] for kind in ERRORS}
    for words, right, row in zip(sentences, gold, answers.spans or [], strict=True):
        wrong: list[tuple[Span, float | None]] = [(span, p) for span, p in row if span not in right]
        missed = set(right) - {span for span, _ in row}
        wrong += [(g, None) for g in right if g in missed and not any(_overlap(g, span) for span, _ in wrong)]
        for span, p in wrong:
            near = max((g for g in missed if _overlap(g, span)), key=partial(_overlap, span), default=None)
            first = max(0, span.start - AROUND)
            mark = (span.type, span.start - first, span.stop - first, p)
            text = entities(words[first : span.stop + AROUND], [mark], answers.types)
            named = "–" if near is None else f"{near.type}: {' '.join(words[near.start : near.stop])}"
            rows[_error(span, p, near)].append((-(p or 0.0), text, named))
    for some in rows.values():
        some.sort(key=itemgetter(0))
    summary = ", ".join(f"{len(some):,} {kind}" for kind, some in rows.items() if some) or "none"
    listed = [(kind, *cells) for kind, some in rows.items() for _, *cells in some[:LISTED]]
    return table(["error", "sentence", "gold"], listed), f"Errors: {summary}."


def _overlap(one: Span, two: Span) -> int:
    return max(0, min(one.stop, two.stop) - max(one.start, two.start))


def _error(span: Span, p: float | None, gold: Span | None) -> str:
    if p is None or gold is None:
        return "missed" if p is None else "spurious"
    if span.type == gold.type:
        return "wrong boundary"
    return "wrong type" if span[1:] == gold[1:] else "wrong type and boundary"
