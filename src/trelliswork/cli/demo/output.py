"""Output of ``trelliswork demo``: tables on the terminal, and one page with all plots."""

from itertools import chain
from typing import TYPE_CHECKING

from trelliswork.cli.demo.models import Trained
from trelliswork.cli.demo.questions import Evidence, Parse

if TYPE_CHECKING:
    from rich.console import Console

    from trelliswork.report import Html, Page

Row = tuple[str, str, float, float]


def show_evidence(console: "Console", trained: Trained, evidence: Evidence) -> None:
    """Print tags with confidences, before and after one tag is known."""
    from rich.markup import escape
    from rich.table import Table

    sentence = trained.test.sentences[evidence.n]
    (path, rows), (new_path, new_rows) = evidence.before, evidence.after
    known = escape(f"{sentence.words[evidence.t]} is {evidence.tag}")
    table = Table("word", "tag", "confidence", "next best", "gold", f"given that {known}", title_justify="left")
    table.title = "Tags with confidence: p(tag | whole sentence)"
    for t, word in enumerate(sentence.words):
        other = max((tag for tag in rows[t] if tag != path[t]), key=lambda tag: rows[t][tag])
        gold = sentence.tags[t]
        table.add_row(
            escape(word),
            path[t],
            f"{rows[t][path[t]]:.3f}",
            f"{other} {rows[t][other]:.3f}",
            gold if gold == path[t] else f"[red]{gold}[/]",
            f"{new_path[t]} {new_rows[t][new_path[t]]:.3f}",
            style="bold" if new_path[t] != path[t] else "",
        )
    console.print(table)
    before, after = evidence.entropy
    console.print(
        f"Evidence changes the whole posterior: {known} had probability {evidence.probability:.3f}; "
        f"the entropy of the tags changes from {before:.2f} to {after:.2f} nats.\n"
    )


def show_parse(console: "Console", trained: Trained, parse: Parse) -> None:
    """Print a tree, one arc per line."""
    from rich.markup import escape
    from rich.table import Table

    sentence, tagged = trained.test.sentences[parse.n], trained.tagged[parse.n]
    names = ["root", *sentence.words]
    table = Table("word", "tag", "head", "label", "p(arc)", "gold head", title_justify="left")
    table.title = "A tree with arc probabilities"
    for t, (head, label, p) in enumerate(parse.arcs):
        gold = sentence.heads[t]
        right = "" if gold == head else f"[red]{escape(names[gold])}[/]"
        table.add_row(escape(sentence.words[t]), tagged[t][1], escape(names[head]), label or "", f"{p:.3f}", right)
    console.print(table)


def show_words(
    console: "Console", near: dict[str, list[tuple[str, float]]], sentence: list[str], fills: list[tuple[str, float]]
) -> None:
    """Print neighbors of words and a filled blank."""
    from rich.markup import escape

    console.print("\nNearest words by the word vectors of the language model:")
    for word, others in near.items():
        console.print(f"  [bold]{escape(word)}[/]: {escape(', '.join(other for other, _ in others))}")
    listed = ", ".join(f"{word} {p:.3f}" for word, p in fills)
    console.print(f"Fill the blank: {escape(' '.join(sentence))}\n  {escape(listed)}\n")


def show_results(console: "Console", trained: Trained) -> None:
    """Print all results in one table."""
    from rich.table import Table

    title = f"Results on {len(trained.test.sentences)} new sentences"
    table = Table("model", "measure", "value", "seconds", title=title, title_justify="left")
    for model, measure, value, seconds in result_rows(trained):
        table.add_row(model, measure, f"{value:.2f}", f"{seconds:.1f}")
    console.print(table)


def result_rows(trained: Trained) -> list[Row]:
    """Return model, measure, value and training time."""
    tagging, parsing, seconds = trained.tagging, trained.parsing, trained.seconds
    return [
        ("tagger", "words with the correct tag, %", 100 * tagging.accuracy, seconds["tagger"]),
        ("parser", "words with the correct head (UAS), %", 100 * parsing.uas, seconds["parser"]),
        ("parser", "correct head and label (LAS), %", 100 * (parsing.las or 0), seconds["parser"]),
        ("language model", "perplexity, upper bound", trained.perplexity, seconds["language model"]),
    ]


def demo_page(
    trained: Trained, evidence: Evidence, parse: Parse, near: dict[str, list[tuple[str, float]]],
    sentence: list[str], fills: list[tuple[str, float]],
) -> "Page":  # fmt: skip
    """Return a page with learning curves, a trellis, a tree, features, calibration and neighbors."""
    from trelliswork.report import Page, bars, side_by_side, table, word_lists
    from trelliswork.report.curves import learning_curves

    page = Page(
        "trelliswork demo",
        lead=f"A tagger, a parser and a language model, trained on {len(trained.train.sentences):,} sentences of the "
        f"bundled corpus and evaluated on {len(trained.test.sentences):,} new ones. This file is self-contained.",
        facts=[
            ("correct tags", f"{trained.tagging.accuracy:.1%}"),
            ("correct heads", f"{trained.parsing.uas:.1%}"),
            ("perplexity, upper bound", f"{trained.perplexity:.0f}"),
            ("training seconds", f"{sum(trained.seconds.values()):.0f}"),
        ],
    )
    page.section("Results", table(["model", "measure", "value", "seconds"], result_rows(trained), digits=1))
    for name in ("tagger", "parser", "language model"):
        curves = learning_curves(getattr(trained, name.replace(" ", "_")))
        page.section(f"Learning curves of the {name}", side_by_side(*curves))
    _posterior(page, trained, evidence)
    _tree(page, trained, parse)
    page.section("Calibration of confidences", side_by_side(*_calibrations(trained)),
                 note="Of the answers with a confidence of 80 percent, 80 percent should be correct.")  # fmt: skip
    page.section(
        "Learned weights of the tagger",
        side_by_side(
            bars([(f"{a} → {tag}", w) for a, tag, w in trained.tagger.top_features(15)], title="Largest weights"),
            bars([(f"{a} → {b}", w) for a, b, w in trained.tagger.top_transitions(15)], title="Largest transitions",
                 headers=("tags", "weight")),
        ),
    )  # fmt: skip
    page.section(
        "Words in the language model",
        side_by_side(
            word_lists(near, title="Nearest neighbors", note="By the cosine of word vectors."),
            bars(fills, title=f"Fill the blank: {' '.join(sentence)}", headers=("word", "p(word | all others)")),
        ),
    )
    return page


def _posterior(page: "Page", trained: Trained, evidence: Evidence) -> None:
    from trelliswork.report import trellis

    sentence, names = trained.test.sentences[evidence.n], list(trained.tagger.labels_)
    words, tags = list(sentence.words), list(sentence.tags)
    pictures = [trellis(words, names, rows, path, tags) for path, rows in (evidence.before, evidence.after)]
    note = "Tags by words: darker is more probable given the whole sentence. The line is the best path."
    page.section("The posterior of a sentence", pictures[0], note=note)
    before, after = evidence.entropy
    note = (
        f"{words[evidence.t]!r} is known to be {evidence.tag}, which had probability {evidence.probability:.3f}. The "
        f"whole posterior changes; its entropy changes from {before:.2f} to {after:.2f} nats."
    )
    page.section("The same posterior, given evidence", pictures[1], note=note)


def _tree(page: "Page", trained: Trained, parse: Parse) -> None:
    from trelliswork.report import dependency_tree

    sentence = trained.test.sentences[parse.n]
    heads, labels, probabilities = (list(column) for column in zip(*parse.arcs, strict=True))
    tags = [tag for _, tag in trained.tagged[parse.n]]
    page.section(
        "A tree with arc probabilities",
        dependency_tree(list(sentence.words), heads, labels, probabilities, list(sentence.heads), tags),
        note="A short sentence of the test part with an arc of probability near one half.",
    )


def _calibrations(trained: Trained) -> "list[Html]":
    from trelliswork.report import calibration, reliability

    words = trained.test.words
    labels, rows = trained.tagger.predict(words), trained.tagger.predict_marginals(words)
    confidences = [row[label] for label, row in zip(chain(*labels), chain(*rows), strict=True)]
    right = [a == b for a, b in zip(chain(*labels), chain(*trained.test.tags), strict=True)]
    return [
        calibration(reliability(confidences, right), title="Tags", what="words"),
        calibration(trained.parsing.calibration or (), title="Arcs", what="arcs"),
    ]
