"""What ``trelliswork demo`` prints."""

from typing import TYPE_CHECKING

from trelliswork.cli.demo.models import Trained
from trelliswork.cli.demo.questions import Evidence, Parse

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[str, str, float, float]


def show_evidence(console: "Console", found: Trained, evidence: Evidence) -> None:
    """Tags with confidences, and how they move when one is told."""
    from rich.markup import escape
    from rich.table import Table

    sentence = found.test.sentences[evidence.n]
    (path, rows), (told, moved) = evidence.before, evidence.after
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
            f"{told[t]} {moved[t][told[t]]:.3f}",
            style="bold" if told[t] != path[t] else "",
        )
    console.print(table)
    before, after = evidence.entropy
    console.print(
        f"Evidence moves the whole posterior: {known} had probability {evidence.probability:.3f}; "
        f"the entropy of the tags goes from {before:.2f} to {after:.2f} nats.\n"
    )


def show_parse(console: "Console", found: Trained, parse: Parse) -> None:
    """A tree, arc by arc."""
    from rich.markup import escape
    from rich.table import Table

    sentence, tagged = found.test.sentences[parse.n], found.tagged[parse.n]
    names = ["root", *sentence.words]
    table = Table("word", "tag", "head", "label", "p(arc)", "gold head", title_justify="left")
    table.title = "A tree with the probabilities of its arcs"
    for t, (head, label, p) in enumerate(parse.arcs):
        gold = sentence.heads[t]
        right = "" if gold == head else f"[red]{escape(names[gold])}[/]"
        table.add_row(escape(sentence.words[t]), tagged[t][1], escape(names[head]), label or "", f"{p:.3f}", right)
    console.print(table)


def show_words(
    console: "Console", near: dict[str, list[tuple[str, float]]], sentence: list[str], fills: list[tuple[str, float]]
) -> None:
    """Neighbours of words and a filled blank."""
    from rich.markup import escape

    console.print("\nNearest words by the language model's vectors:")
    for word, others in near.items():
        console.print(f"  [bold]{escape(word)}[/]: {escape(', '.join(other for other, _ in others))}")
    listed = ", ".join(f"{word} {p:.3f}" for word, p in fills)
    console.print(f"Fill the blank, both sides known: {escape(' '.join(sentence))}\n  {escape(listed)}\n")


def show_results(console: "Console", found: Trained, rows: list[Row]) -> None:
    """All figures in one table."""
    from rich.table import Table

    title = f"Results on {len(found.test.sentences)} new sentences"
    table = Table("model", "measure", "value", "seconds", title=title, title_justify="left")
    for model, measure, value, seconds in rows:
        table.add_row(model, measure, f"{value:.2f}", f"{seconds:.1f}")
    console.print(table)


def result_rows(found: Trained) -> list[Row]:
    """Model, measure, value and seconds of training."""
    tagging, parsing, seconds = found.tagging, found.parsing, found.seconds
    return [
        ("tagger", "words with the right tag, %", 100 * tagging.accuracy, seconds["tagger"]),
        ("parser", "words with the right head (UAS), %", 100 * parsing.uas, seconds["parser"]),
        ("parser", "and the right label (LAS), %", 100 * (parsing.las or 0), seconds["parser"]),
        ("language model", "perplexity at most, rare words as one", found.perplexity, seconds["language model"]),
    ]
