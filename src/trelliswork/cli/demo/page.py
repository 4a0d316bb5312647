"""The page that ``trelliswork demo`` writes: one file with all pictures in it."""

from itertools import chain
from typing import TYPE_CHECKING

from trelliswork.cli.demo.models import Trained
from trelliswork.cli.demo.questions import Evidence, Parse
from trelliswork.cli.demo.tables import result_rows

if TYPE_CHECKING:
    from trelliswork.report import Html, Page


def demo_page(
    found: Trained, evidence: Evidence, parse: Parse, near: dict[str, list[tuple[str, float]]],
    sentence: list[str], fills: list[tuple[str, float]],
) -> "Page":  # fmt: skip
    """Learning curves, a trellis with its path, a tree with arc probabilities, features, calibration, neighbours."""
    from trelliswork.report import Page, bars, side_by_side, table, word_lists
    from trelliswork.report.curves import learning_curves

    page = Page(
        "trelliswork demo",
        lead=f"A tagger, a parser and a language model, learned from {len(found.train.sentences):,} sentences of the "
        f"bundled corpus and judged on {len(found.test.sentences):,} new ones. All on this page is in this file.",
        facts=[
            ("right tags", f"{found.tagging.accuracy:.1%}"),
            ("right heads", f"{found.parsing.uas:.1%}"),
            ("perplexity, at most", f"{found.perplexity:.0f}"),
            ("seconds of training", f"{sum(found.seconds.values()):.0f}"),
        ],
    )
    page.section("Results", table(["model", "measure", "value", "seconds"], result_rows(found), digits=1))
    for name, model in (("tagger", found.tagger), ("parser", found.parser), ("language model", found.language_model)):
        page.section(f"How the {name} learned", side_by_side(*learning_curves(model)))
    _posterior(page, found, evidence)
    _tree(page, found, parse)
    page.section("Are the confidences honest?", side_by_side(*_calibrations(found)),
                 note="Of the answers that a model is 80 per cent sure of, 80 per cent should be right.")  # fmt: skip
    page.section(
        "What the tagger has learned",
        side_by_side(
            bars([(f"{a} → {tag}", w) for a, tag, w in found.tagger.top_features(15)], title="Largest weights"),
            bars([(f"{a} → {b}", w) for a, b, w in found.tagger.top_transitions(15)], title="Largest transitions",
                 headers=("tags", "weight")),
        ),
    )  # fmt: skip
    page.section(
        "What the language model has learned",
        side_by_side(
            word_lists(near, title="Nearest neighbours", note="By the cosine of the words' vectors."),
            bars(fills, title=f"Fill the blank: {' '.join(sentence)}", headers=("word", "p(word | all others)")),
        ),
    )
    return page


def _posterior(page: "Page", found: Trained, evidence: Evidence) -> None:
    from trelliswork.report import trellis

    sentence, tags = found.test.sentences[evidence.n], list(found.tagger.labels_)
    (path, rows), (told, moved) = evidence.before, evidence.after
    page.section(
        "The posterior of a sentence",
        trellis(list(sentence.words), tags, rows, path, list(sentence.tags)),
        note="Tags against words: the darker, the more probable given the whole sentence. The line is the best path.",
    )
    word = sentence.words[evidence.t]
    before, after = evidence.entropy
    page.section(
        "The same, given evidence",
        trellis(list(sentence.words), tags, moved, told, list(sentence.tags)),
        note=f"{word!r} is told to be {evidence.tag}, which had probability {evidence.probability:.3f}. The whole "
        f"posterior moves; its entropy goes from {before:.2f} to {after:.2f} nats.",
    )


def _tree(page: "Page", found: Trained, parse: Parse) -> None:
    from trelliswork.report import dependency_tree

    sentence = found.test.sentences[parse.n]
    heads, labels, probabilities = (list(column) for column in zip(*parse.arcs, strict=True))
    tags = [tag for _, tag in found.tagged[parse.n]]
    page.section(
        "A tree and the probabilities of its arcs",
        dependency_tree(list(sentence.words), heads, labels, probabilities, list(sentence.heads), tags),
        note="A short sentence of the test part with an arc that is about as likely as not.",
    )


def _calibrations(found: Trained) -> "list[Html]":
    from trelliswork.report import calibration, reliability

    words = found.test.words
    labels, rows = found.tagger.predict(words), found.tagger.predict_marginals(words)
    sure = [row[label] for label, row in zip(chain(*labels), chain(*rows), strict=True)]
    right = [a == b for a, b in zip(chain(*labels), chain(*found.test.tags), strict=True)]
    return [
        calibration(reliability(sure, right), title="Tags", what="words"),
        calibration(found.parsing.calibration or (), title="Arcs", what="arcs"),
    ]
