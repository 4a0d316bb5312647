"""Sections about taggers: the posterior of a sentence, accuracies, confidence and errors."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from trelliswork.answers import Answer, Want, ask, by_layer, layer_labels
from trelliswork.data import AttributeCorpus
from trelliswork.data.schemes import Span, spans
from trelliswork.evaluation import tagging_report
from trelliswork.metrics.calibration import ConfidenceReport
from trelliswork.metrics.induction import InductionReport
from trelliswork.metrics.tagging import Score, TaggingReport, evaluate_tagging
from trelliswork.report.charts import calibration
from trelliswork.report.page import Html, Section, figure, join, percent, side_by_side
from trelliswork.report.samples import JUDGED, SEARCHED, Sample, example
from trelliswork.report.structures import entities, trellis
from trelliswork.report.tables import confusion, facts, folded, table

ERRORS = ("wrong type", "wrong boundary", "wrong type and boundary", "spurious", "missed")
LISTED = 8  # wrong spans of each kind
AROUND = 10  # words on each side of a wrong span


def confidence_tables(report: ConfidenceReport) -> Html:
    """Return proper scores with intervals, and what thresholds accept."""
    scores = [[name, f.value, f"{f.low:.4f} to {f.high:.4f}"] for name, f in report.figures().items()]
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
    rows = zip(*([answer.probabilities for answer in answers] for answers in layers.values()), strict=True)
    n = example([[min(ps) for ps in zip(*row, strict=True)] for row in rows])
    words, gold = some.words()[n], _gold(some)
    pictures = []
    for name, answers in layers.items():
        title = f"Layer {name}" if name else ""
        answer, right = answers[n], gold[name][n] if name in gold else None
        picture = trellis(words, sorted(answer.outcomes[0]), answer.outcomes, answer.value, right, title=title)
        if answer.spans is not None:
            marks = [(*span, p) for span, p in answer.spans]
            pictures.append(figure(entities(words, marks, _types(model, name)), title))
            picture = folded("Labels of all tokens", picture)
        pictures.append(picture)
    (whole,) = ask(model, some.take([n]).X, Want(log_prob=True))
    note = f"{example_note(sample, some)} The whole labeling has probability {percent(whole.probability)}."
    return [("The posterior of a sentence", note, pictures)]


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
        for name, answers in by_layer(ask(model, full.X)).items():
            labels = [answer.value for answer in answers]
            sections += tagging_sections(evaluate_tagging(right[name], labels, **options), name, sample.part)
    note = f"On {'the first ' if len(some) < len(full) else ''}{len(some):,} sentences of the {sample.part} data."
    for name, answers in layers.items():
        report, layer = tagging_report(answers, gold[name]), f" of layer {name}" if name else ""
        if report.scheme is not None and answers[0].spans is not None:
            right_spans = [spans(row, report.scheme) for row in gold[name]]
            wrong, counts = _wrong_spans(words, right_spans, answers, _types(model, name))
            sections.append((f"Wrong spans{layer}", f"{note} {counts}", [wrong]))
        judged = [one for one in (report.span_confidence, report.confidence) if one is not None]
        blocks = [
            *(side_by_side(calibration(one.bins, title=f"Calibration of {one.what}", what=one.what),
                           confidence_tables(one)) for one in judged),
            _confident_errors(words, gold[name], answers),
            confusion(chain(*gold[name]), chain(*(a.value for a in answers)), title="Confusion matrix"),
        ]  # fmt: skip
        sections.append((f"Confidence and errors{layer}", note, blocks))
    return sections


def tagging_sections(report: TaggingReport, layer: str = "", part: str = "test") -> list[Section]:
    """Return the results of a report as tables."""
    shown = [[name, n, percent(rate, 2)] for name, n, rate in report.accuracies()]
    left = [table(["", "count", "correct"], shown, title="Accuracy")]
    if report.chunks is not None and report.chunks_by_type is not None:
        left.append(_scores("Spans", "type", {"all": report.chunks, **report.chunks_by_type}))
    frequent = sorted(report.labels.items(), key=lambda item: -item[1].support)[:30]
    title = f"Results of layer {layer}" if layer else "Results"
    blocks = [side_by_side(join(left), _scores("Labels", "label", dict(frequent)))]
    return [(title, f"Predictions compared with the gold labels of the {part} data.", blocks)]


def induction_sections(report: InductionReport) -> list[Section]:
    """Return the results of induced states, and the gold label of each state."""
    names = [[str(k), str(g), str(report.matching.get(k, "–"))] for k, g in report.mapping.items()]
    listed = table(["state", "many-to-one", "one-to-one"], names, title="Gold labels of the states")
    return [("Results", "Induced states compared with gold labels.", [side_by_side(facts(report.rows()), listed)])]


def _ask(model: Any, X: Any) -> dict[str, list[Answer]]:
    """Return the answers of a tagger by layer; the name of a single layer is empty."""
    return by_layer(ask(model, X, Want(marginals=True, outcomes=True, spans=True)))


def _types(model: Any, layer: str) -> list[str]:
    """Return the types of spans that the labels of a layer encode."""
    return sorted({label[2:] for label in layer_labels(model)[layer] if label != "O"})


def _gold(sample: Sample) -> dict[str, Any]:
    """Return gold labels by layer; an empty dict if there are none."""
    if sample.gold is None:
        return {}
    return sample.gold if isinstance(sample.gold, dict) else {"": sample.gold}


def _scores(title: str, what: str, scores: dict[str, Score]) -> Html:
    rows = [[name, s.support, s.precision, s.recall, s.f1] for name, s in scores.items()]
    return table([what, "count", "precision", "recall", "F1"], rows, title=title)


def _confident_errors(
    sentences: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], answers: Sequence[Answer], n: int = 10
) -> Html:
    """Return the errors with the highest probabilities, with the words around them."""
    errors: list[tuple[float, int, str, str, str]] = []
    for words, right, answer in zip(sentences, gold, answers, strict=True):
        for t, (g, label, p) in enumerate(zip(right, answer.value, answer.probabilities, strict=True)):
            if g != label:
                around = [*words[max(0, t - 2) : t], f"[{words[t]}]", *words[t + 1 : t + 2]]
                errors.append((-p, len(errors), " ".join(around), g, label))
    rows = [[place, g, label, percent(-p)] for p, _, place, g, label in sorted(errors)[:n]]
    return table(["[word]", "gold", "predicted", "probability"], rows, title="Most confident errors")


def _wrong_spans(
    sentences: Sequence[Sequence[str]],
    gold: Sequence[Sequence[Span]],
    answers: Sequence[Answer],
    types: Sequence[str],
) -> tuple[Html, str]:
    """Return the spans that differ from gold in their sentences, the most probable first, and how many there are."""
    rows: dict[str, list[tuple[float, Html, str]]] = {kind: [] for kind in ERRORS}
    for words, right, answer in zip(sentences, gold, answers, strict=True):
        wrong: list[tuple[Span, float | None]] = [(span, p) for span, p in answer.spans if span not in right]
        missed = [g for g in right if g not in {span for span, _ in answer.spans}]
        wrong += [(g, None) for g in missed if not any(_overlap(g, span) for span, _ in wrong)]
        for span, p in wrong:
            near = max((g for g in missed if _overlap(g, span)), key=partial(_overlap, span), default=None)
            first = max(0, span.start - AROUND)
            mark = (span.type, span.start - first, span.stop - first, p)
            text = entities(words[first : span.stop + AROUND], [mark], types)
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
