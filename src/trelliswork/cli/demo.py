"""``trelliswork demo``: a tagger, a parser and a language model on the bundled corpus, and a page about them."""

import json as json_module
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import bar, describe

if TYPE_CHECKING:
    from trelliswork.answers import Answer

EVERYTHING = {"marginals": True, "outcomes": True, "log_prob": True}
SHORT, LONG = 6, 11  # length of sentences that are easy to read


def demo(
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the page and the models.")] = "demo",
    sentences: Annotated[int, typer.Option(min=20, max=3000, help="Number of training sentences.")] = 3000,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a tagger, a parser and a language model, query them, and write a page with plots.

    Needs no data: a small corpus is part of the package. The models are saved in the same directory as the page.

    Example: trelliswork demo --out demo
    """
    from rich.console import Console

    from trelliswork import CRF, DependencyParser, KneserNey, bundled
    from trelliswork.answers import Want, ask
    from trelliswork.evaluation import evaluate
    from trelliswork.report import Page, Sample, bars, model_sections, side_by_side, table, trellis
    from trelliswork.report.curves import learning_curves

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)  # fails now rather than after training
    console = Console(quiet=json, highlight=False)
    train, dev, test = (bundled.load(part) for part in ("train", "dev", "test"))
    train = train[:sentences]
    n_tokens = sum(map(len, train))
    console.print(f"The bundled corpus: {len(train):,} training sentences, {n_tokens:,} words.")
    seconds: dict[str, float] = {}

    def learn(name: str, model: Any, total: int, *data: Any, **options: Any) -> Any:
        began = time.perf_counter()
        with bar(name, total, quiet) as show, warnings.catch_warnings(action="ignore"):  # few iterations are enough
            model.fit(*data, **options, callback=lambda s: show(s.iteration, f"{name}: {describe(s, n_tokens, total)}"))
        seconds[name] = time.perf_counter() - began
        return model

    words, tags = _tagged(test)
    tagger = learn("tagger", CRF("pos", tol=1e-4, max_iter=60), 60, *_tagged(train), dev=_tagged(dev))
    tagging = tagger.score(words, tags)
    console.print(
        f"[bold]Tagger[/] (CRF), {seconds['tagger']:.0f} s: {tagging:.1%} of the words of {len(test)} new sentences "
        "have the correct tag."
    )
    parser = DependencyParser(2)
    learn("parser", parser, 10, *_trees(train), dev=_trees(dev))
    parsing = evaluate(parser, *_trees(test))
    console.print(
        f"[bold]Parser[/] (second order), {seconds['parser']:.0f} s: {parsing.uas:.1%} of the words have the correct "
        f"head, {parsing.las or 0:.1%} also the correct label."
    )
    model = learn("language model", KneserNey(3), 1, [list(s.words) for s in train])
    perplexity = model.perplexity(words)
    console.print(
        f"[bold]Language model[/] (trigrams of {len(model.vocabulary_) - 1:,} words), "
        f"{seconds['language model']:.0f} s: perplexity {perplexity:.0f} per token.\n"
    )
    rows = [
        ("tagger", "words with the correct tag, %", 100 * tagging, seconds["tagger"]),
        ("parser", "words with the correct head (UAS), %", 100 * parsing.uas, seconds["parser"]),
        ("parser", "correct head and label (LAS), %", 100 * (parsing.las or 0), seconds["parser"]),
        ("language model", "perplexity", perplexity, seconds["language model"]),
    ]
    readable = [n for n, sentence in enumerate(words) if SHORT <= len(sentence) <= LONG]
    n, known, before = _doubt(tagger, words, readable)
    (after,) = ask(tagger, [words[n]], Want(**EVERYTHING), known=[known])
    t = next(t for t, tag in enumerate(known) if tag)
    evidence, given = before.outcomes[t][known[t]], f"{words[n][t]} is {known[t]}"
    _show_evidence(console, before, after, tags[n], given)
    story = (
        f"{given} had probability {evidence:.3f}; the best tags of the sentence have probability "
        f"{before.probability:.3f} before and {after.probability:.3f} after."
    )
    console.print(f"Evidence changes the whole posterior: {story}\n", markup=False)
    blanked = next(s for s in test if SHORT <= len(s) <= LONG and "NN" in s.tags[1:])
    blank: list[str | None] = list(blanked.words)
    blank[blanked.tags.index("NN", 1)] = None
    (filled,) = ask(model, [blank], Want(n=6), "fill")
    line = " ".join(word or "___" for word in blank)
    console.print(f"Fill the blank: {line}", markup=False)
    console.print("  " + ", ".join(f"{word} {p:.3f}" for word, p in filled.value[0]) + "\n", markup=False)
    lead = (
        f"A tagger, a parser and a language model, trained on {len(train):,} sentences of the bundled corpus and "
        f"evaluated on {len(test):,} new ones. This file is self-contained."
    )
    facts = [("correct tags", f"{tagging:.1%}"), ("correct heads", f"{parsing.uas:.1%}")]
    page = Page("trelliswork demo", lead=lead, facts=[*facts, ("perplexity", f"{perplexity:.0f}")])
    page.section("Results", table(["model", "measure", "value", "seconds"], rows, digits=1))
    labels = list(tagger.labels_)
    pictures = [trellis(words[n], labels, a.outcomes, a.value, tags[n]) for a in (before, after)]
    note = "Tags by words: darker is more probable given the whole sentence. The line is the best path."
    page.section("The posterior of a sentence", pictures[0], note=note)
    page.section("The same posterior, given evidence", pictures[1], note=story)
    page.section("Fill the blank", bars(filled.value[0], title=line, headers=("word", "p(word | all others)")))
    for name, fitted, sample in (
        ("tagger", tagger, Sample("test", words, tags)),
        ("parser", parser, Sample("test", *_trees(test))),
    ):
        page.section(f"Learning curves of the {name}", side_by_side(*learning_curves(fitted)))
        page.extend([(f"{title} ({name})", note, blocks) for title, note, blocks in model_sections(fitted, sample)])
    for name, fitted in (("tagger", tagger), ("parser", parser), ("words", model)):
        fitted.save(folder / name)
    file = folder / "report.html"
    page.write(file)
    if json:
        figures = {"sentences": len(train), "accuracy": tagging, "uas": parsing.uas, "las": parsing.las}
        figures |= {"perplexity": perplexity, "evidence_probability": evidence, "seconds": seconds, "report": str(file)}
        print(json_module.dumps(figures))
        return
    console.print(f"Page with all plots: {file}")
    command = f"echo 'They saw her duck.' | trelliswork tag {folder / 'tagger'} --tokenize --with marginals"
    console.print(f"Tag a sentence: {command}", soft_wrap=True)


def _tagged(part: Any) -> tuple[list[list[str]], list[list[str]]]:
    return [list(s.words) for s in part], [list(s.tags) for s in part]


def _trees(part: Any) -> tuple[list[Any], list[Any]]:
    """Return words with gold tags, and heads with labels."""
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in part]
    return [list(zip(s.words, s.tags, strict=True)) for s in part], trees


def _doubt(tagger: Any, words: list[list[str]], readable: list[int]) -> tuple[int, list[str | None], "Answer"]:
    """Return the sentence with the least certain word, its second-best tag as evidence, and the answer before."""
    from trelliswork.answers import Want, ask

    answers = ask(tagger, [words[n] for n in readable], Want(**EVERYTHING))
    _, i, t = min((max(p.values()), i, t) for i, answer in enumerate(answers) for t, p in enumerate(answer.outcomes))
    answer, p = answers[i], answers[i].outcomes[t]
    second = max((tag for tag in p if tag != answer.value[t]), key=p.__getitem__)
    return readable[i], [second if place == t else None for place in range(len(words[readable[i]]))], answer


def _show_evidence(console: Any, before: "Answer", after: "Answer", gold: list[str], given: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    title = "Tags with confidence: p(tag | whole sentence)"
    header = ("word", "tag", "confidence", "next best", "gold", f"given that {given}")
    table = Table(*map(escape, header), title=title, title_justify="left")
    for t, (word, tag, new) in enumerate(zip(before.words or (), before.value, after.value, strict=True)):
        p = before.outcomes[t]
        other = max((name for name in p if name != tag), key=p.__getitem__)
        cells = (word, tag, f"{p[tag]:.3f}", f"{other} {p[other]:.3f}", gold[t], f"{new} {after.outcomes[t][new]:.3f}")
        table.add_row(*map(escape, cells))
    console.print(table)
