"""What a page shows of taggers: a sentence's posterior, how good the answers are, and the largest weights."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from trelliswork.data import AttributeCorpus
from trelliswork.metrics.calibration import reliability
from trelliswork.metrics.induction import InductionReport
from trelliswork.metrics.tagging import Score, TaggingReport, evaluate_tagging
from trelliswork.report.charts import calibration
from trelliswork.report.markup import Html, join, percent
from trelliswork.report.page import side_by_side
from trelliswork.report.samples import JUDGED, SEARCHED, Sample, example
from trelliswork.report.tables import bars, confusion, facts, folded, table, word_lists
from trelliswork.report.trellis import trellis

Section = tuple[str, str, list[Html]]
MANY_STATES = 40  # whose words are listed
TOP = 18  # weights


class Answers(NamedTuple):
    """Labels of sentences and their probabilities."""

    labels: list[list[str]]
    marginals: list[list[dict[str, float]]]

    def sureness(self) -> list[list[float]]:
        """The probability of each answer."""
        return [
            [p[label] for p, label in zip(*rows, strict=True)] for rows in zip(self.marginals, self.labels, strict=True)
        ]


def ask(model: Any, X: Any) -> dict[str, Answers]:
    """The answers of a tagger, for each of its layers; one without layers has one, called ""."""
    if model.kind == "factorial-crf":
        marginals = model.predict_marginals(X)
        return {name: Answers(labels, marginals[name]) for name, labels in model.predict_layers(X).items()}
    return {"": Answers(model.predict(X), model.predict_marginals(X))}


def label_names(model: Any) -> dict[str, list[str]]:
    """The labels of each layer."""
    if model.kind == "factorial-crf":
        return {layer.name: list(layer.labels) for layer in model.layers_}
    return {"": list(model.labels_)}


def gold_of(sample: Sample) -> dict[str, Any]:
    """Gold labels by layer; none if there are none."""
    if sample.gold is None:
        return {}
    return sample.gold if isinstance(sample.gold, dict) else {"": sample.gold}


def sentence_section(model: Any, sample: Sample) -> list[Section]:
    """The posterior of the sentence of which the tagger is least sure."""
    some = sample.full().first(SEARCHED)
    if not len(some):
        return []
    found = ask(model, some.X)
    sure = [[min(ps) for ps in zip(*rows, strict=True)]
            for rows in zip(*(answers.sureness() for answers in found.values()), strict=True)]  # fmt: skip
    n = example(sure)
    words, gold = some.words()[n], gold_of(some)
    pictures = [
        trellis(
            words,
            label_names(model)[name],
            answers.marginals[n],
            answers.labels[n],
            gold[name][n] if name in gold else None,
            title=f"Layer {name}" if name else "",
        )
        for name, answers in found.items()
    ]
    note = f"A sentence of the {sample.part} part, the least certain of its length among the first {len(some):,}."
    return [("The posterior of a sentence", note, pictures)]


def judged_sections(model: Any, sample: Sample) -> list[Section]:
    """How sure and how right the tagger is on sentences with gold labels: calibration, confusions, surest mistakes."""
    some = sample.full().first(JUDGED)
    gold = gold_of(some)
    if not gold or not len(some):
        return []
    found: list[Section] = []
    note = (
        f"On {'the first ' if len(some) < len(sample.full()) else ''}{len(some):,} sentences of the {sample.part} part."
    )
    for name, answers in ask(model, some.X).items():
        right = [g == p for g, p in zip(chain(*gold[name]), chain(*answers.labels), strict=True)]
        where = f" of layer {name}" if name else ""
        blocks = [
            side_by_side(
                calibration(reliability(chain(*answers.sureness()), right), title="Calibration"),
                _surest(some, gold[name], answers),
            ),
            confusion(chain(*gold[name]), chain(*answers.labels), title="Labels taken for others"),
        ]
        found.append((f"Confidence and mistakes{where}", note, [block for block in blocks if block]))
    return found


def figures_sections(model: Any, sample: Sample) -> list[Section]:
    """Accuracies and scores of labels, of answers on sentences with gold labels."""
    some = sample.full().first(JUDGED)
    gold = gold_of(some)
    if not gold or not len(some):
        return []
    found = model.predict_layers(some.X) if model.kind == "factorial-crf" else {"": model.predict(some.X)}
    words = None if isinstance(some.X, AttributeCorpus) else some.words()
    known = model.known_words()
    options: dict[str, Any] = {"words": words, "known_words": known} if words is not None and known else {}
    reports = {name: evaluate_tagging(gold[name], labels, **options) for name, labels in found.items()}
    return [section for name, report in reports.items() for section in tagging_sections(report, name, sample.part)]


def tagging_sections(report: TaggingReport, layer: str = "", part: str = "test") -> list[Section]:
    """The figures of a report as tables."""
    rows = [
        ("tokens", report.n_tokens, report.accuracy),
        ("sentences", report.n_sentences, report.sentence_accuracy),
        ("known words", report.n_known, report.known_accuracy),
        ("unknown words", report.n_unknown, report.unknown_accuracy),
    ]
    shown = [[name, n, percent(rate, 2)] for name, n, rate in rows if n is not None]
    left = [table(["", "count", "right"], shown, title="Accuracy")]
    if report.chunks is not None and report.chunks_by_type is not None:
        scores = {"all": report.chunks, **report.chunks_by_type}
        left.append(_scores("Spans", "type", scores))
    labels = _scores("Labels", "label", dict(sorted(report.labels.items(), key=lambda item: -item[1].support)[:30]))
    title = f"Figures of layer {layer}" if layer else "Figures"
    return [(title, f"Answers compared with the gold labels of the {part} part.", [side_by_side(join(left), labels)])]


def _scores(title: str, what: str, scores: dict[str, Score]) -> Html:
    rows = [[name, s.support, s.precision, s.recall, s.f1] for name, s in scores.items()]
    return table([what, "count", "precision", "recall", "F1"], rows, title=title)


def _surest(sample: Sample, gold: Sequence[Sequence[str]], answers: Answers, n: int = 10) -> Html:
    """Mistakes that the tagger was most sure of, with the words around them."""
    found: list[tuple[float, int, str, str, str]] = []
    for words, wanted, said, sure in zip(sample.words(), gold, answers.labels, answers.sureness(), strict=True):
        for t, (g, p, q) in enumerate(zip(wanted, said, sure, strict=True)):
            if g != p:
                around = [*words[max(0, t - 2) : t], f"[{words[t]}]", *words[t + 1 : t + 2]]
                found.append((-q, len(found), " ".join(around), g, p))
    rows = [[place, g, p, percent(-q)] for q, _, place, g, p in sorted(found)[:n]]
    return table(["[word]", "gold", "answer", "sure"], rows, title="Surest mistakes")


def induction_sections(report: InductionReport) -> list[Section]:
    """Figures of induced states, and what each stands for."""
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
    listed = table(["state", "many-to-one", "one-to-one"], names, title="What states stand for")
    return [("Figures", "Induced states compared with gold labels.", [side_by_side(facts(rows), listed)])]


def learned_sections(model: Any) -> list[Section]:
    """The largest weights of a tagger; of an HMM the words of its states and what follows them."""
    if model.kind == "hmm":
        return [_states(model)]
    if model.kind != "factorial-crf":
        blocks = [_weights("Features", model.top_features(TOP)), _pairs("Transitions", model.top_transitions(TOP))]
        return [("Largest weights", "Red weights speak against.", [side_by_side(*blocks)])]
    found: list[Section] = []
    for layer in model.layers:
        blocks = [
            _weights("Features", model.top_features(layer, TOP)),
            _pairs("Transitions", model.top_transitions(layer, TOP)),
        ]
        found.append((f"Largest weights of layer {layer}", "Red weights speak against.", [side_by_side(*blocks)]))
    ties = [(f"{one} {left} with {two} {right}", w) for one, left, two, right, w in model.top_ties(TOP)]
    found.append(("Ties between layers", "Labels of the same token that like or dislike each other.", [bars(ties)]))
    return found


def _weights(title: str, rows: Sequence[tuple[str, str, float]]) -> Html:
    return bars(
        [(f"{name} → {label}", w) for name, label, w in rows], title=title, headers=("attribute → label", "weight")
    )


def _pairs(title: str, rows: Sequence[tuple[str, str, float]]) -> Html:
    return bars([(f"{a} → {b}", w) for a, b, w in rows], title=title, headers=("label → next label", "weight"))


def _states(model: Any) -> Section:
    names = list(model.labels_)
    follow = model.transitions()
    shown = names[:MANY_STATES]
    words = {name: model.top_words(name, 8) for name in shown}
    after = {}
    for i, name in enumerate(shown):
        best = sorted(range(len(names)), key=lambda j: -follow[i, j])[:6]
        after[name] = [(names[j], float(follow[i, j])) for j in best]
    note = "The most probable words of each state, with p(word | state)."
    if len(names) > len(shown):
        note += f" The first {len(shown)} of {len(names)} states."
    blocks = [
        word_lists(words, headers=("state", "words"), digits=3),
        folded("What follows each state", word_lists(after, headers=("state", "next states"))),
    ]
    return "States", note, blocks
