"""``trelliswork demo``: a tagger, a parser and a language model on the bundled corpus, and a page about them."""

import json as json_module
import time
import warnings
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trelliswork.cli.options import JsonOption, QuietOption
from trelliswork.cli.progress import bar, describe

TAGGER_ITERATIONS, EPOCHS, LABEL_EPOCHS = 60, 3, 4
SHORT, LONG = 6, 11  # length of sentences that are easy to read
TRIED = 40  # number of uncertain sentences to choose from


class Run(NamedTuple):
    """Fitted models, their results, and the questions that were put to them."""

    tagger: Any
    parser: Any
    test: Any
    predicted: list[list[str]]  # tags of the test sentences
    tagging: Any
    parsing: Any
    rows: list[tuple[str, str, float, float]]  # model, measure, value, seconds of training
    evidence: "Evidence"
    parse: tuple[int, list[tuple[int, str | None, float]]]  # test sentence; head, label and probability of each word
    filled: tuple[list[str], list[tuple[str, float]]]  # words with a blank, and the most probable words for it


class Evidence(NamedTuple):
    """One test sentence before and after the tag of one word is known; probabilities are of whole labelings."""

    n: int
    t: int
    tag: str
    probability: float  # of the evidence
    before: tuple[list[str], float, list[dict[str, float]]]  # best labeling, its probability, marginals
    after: tuple[list[str], float, list[dict[str, float]]]


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
    from trelliswork.metrics import evaluate_tagging

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

    words, tags = [list(s.words) for s in test], [list(s.tags) for s in test]
    tagger = CRF("pos", tol=1e-4, max_iter=TAGGER_ITERATIONS)
    learn("tagger", tagger, TAGGER_ITERATIONS, *_tagged(train), dev=_tagged(dev))
    predicted = tagger.predict(words)
    tagging = evaluate_tagging(tags, predicted, words=words, known_words=tagger.known_words())
    console.print(
        f"[bold]Tagger[/] (CRF), {seconds['tagger']:.0f} s: {tagging.accuracy:.1%} of the words of {len(test)} new "
        f"sentences have the correct tag, {tagging.unknown_accuracy or 0:.1%} of the unknown ones."
    )
    parser = DependencyParser(2, max_iter=EPOCHS, max_iter_second_order=EPOCHS, max_iter_labels=LABEL_EPOCHS)
    learn("parser", parser, 2 * EPOCHS + LABEL_EPOCHS, *_trees(train), dev=_trees(dev))
    pairs = [list(zip(*sentence, strict=True)) for sentence in zip(words, predicted, strict=True)]
    parsing = parser.evaluate(pairs, _trees(test)[1])
    console.print(
        f"[bold]Parser[/] (second order), {seconds['parser']:.0f} s: {parsing.uas:.1%} of the words have the correct "
        f"head, {parsing.las or 0:.1%} also the correct label; tags are predicted."
    )
    model = learn("language model", KneserNey(3), 1, [list(s.words) for s in train])
    perplexity = model.perplexity(words)
    console.print(
        f"[bold]Language model[/] (trigrams of {len(model.vocabulary_) - 1:,} words), "
        f"{seconds['language model']:.0f} s: perplexity {perplexity:.0f} per token.\n"
    )
    rows = [
        ("tagger", "words with the correct tag, %", 100 * tagging.accuracy, seconds["tagger"]),
        ("parser", "words with the correct head (UAS), %", 100 * parsing.uas, seconds["parser"]),
        ("parser", "correct head and label (LAS), %", 100 * (parsing.las or 0), seconds["parser"]),
        ("language model", "perplexity", perplexity, seconds["language model"]),
    ]
    evidence, parse, filled = _evidence(tagger, words), _uncertain_parse(parser, pairs), _blank(model, test)
    run = Run(tagger, parser, test, predicted, tagging, parsing, rows, evidence, parse, filled)
    _show_evidence(console, run)
    _show_parse(console, run)
    console.print(f"\nFill the blank: {' '.join(filled[0])}", markup=False)
    console.print("  " + ", ".join(f"{word} {p:.3f}" for word, p in filled[1]) + "\n", markup=False)
    _show_rows(console, f"Results on {len(test)} new sentences", ("model", "measure", "value", "seconds"), rows)
    for name, fitted in (("tagger", tagger), ("parser", parser), ("words", model)):
        fitted.save(folder / name)
    file = folder / "report.html"
    _page(run, len(train)).write(file)
    if json:
        figures: dict[str, Any] = {
            "sentences": len(train),
            "accuracy": tagging.accuracy,
            "unknown_accuracy": tagging.unknown_accuracy,
        }
        figures |= {"uas": parsing.uas, "las": parsing.las, "perplexity": perplexity}
        figures |= {"evidence_probability": evidence.probability, "seconds": seconds, "report": str(file)}
        print(json_module.dumps(figures))
        return
    console.print(f"Page with all plots: {file}")
    command = f"echo 'They saw her duck.' | trelliswork tag {folder / 'tagger'} --tokenize --marginals"
    console.print(f"Tag a sentence: {command}", soft_wrap=True)


def _tagged(part: Any) -> tuple[list[list[str]], list[list[str]]]:
    return [list(s.words) for s in part], [list(s.tags) for s in part]


def _trees(part: Any) -> tuple[list[Any], list[Any]]:
    """Return words with gold tags, and heads with labels."""
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in part]
    return [list(zip(s.words, s.tags, strict=True)) for s in part], trees


def _evidence(tagger: Any, words: list[list[str]]) -> Evidence:
    """Return the short sentence in which forcing the second-best tag of a word changes the most other tags."""
    readable = [n for n, s in enumerate(words) if SHORT <= len(s) <= LONG]
    marginals = tagger.predict_marginals([words[n] for n in readable])
    doubts = [min(range(len(rows)), key=lambda t: max(rows[t].values())) for rows in marginals]
    order = sorted(range(len(readable)), key=lambda i: max(marginals[i][doubts[i]].values()))[:TRIED]
    second = [sorted(row, key=row.__getitem__)[-2] for row in (marginals[i][doubts[i]] for i in order)]
    some = [words[readable[i]] for i in order]
    known = [
        [tag if t == doubts[i] else None for t in range(len(sentence))]
        for i, tag, sentence in zip(order, second, some, strict=True)
    ]
    before, after = tagger.predict_topk(some, 1), tagger.predict_topk(some, 1, known=known)
    moved = [sum(x != y for x, y in zip(a[0][0], b[0][0], strict=True)) for a, b in zip(before, after, strict=True)]
    best = max(range(len(order)), key=lambda k: (moved[k], -len(some[k])))
    rows = marginals[order[best]]
    given = tagger.predict_marginals([some[best]], known=[known[best]])[0]
    t, tag = doubts[order[best]], second[best]
    return Evidence(readable[order[best]], t, tag, rows[t][tag], (*before[best][0], rows), (*after[best][0], given))


def _uncertain_parse(parser: Any, pairs: list[Any]) -> tuple[int, list[tuple[int, str | None, float]]]:
    """Return the short sentence whose least certain arc has a probability nearest to one half, and its tree."""
    readable = [n for n, s in enumerate(pairs) if SHORT <= len(s) <= LONG]
    trees = parser.parse([pairs[n] for n in readable])
    best = min(range(len(readable)), key=lambda i: abs(min(p for _, _, p in trees[i]) - 0.5))
    return readable[best], trees[best]


def _blank(model: Any, test: Any) -> tuple[list[str], list[tuple[str, float]]]:
    """Return a short sentence with a blank for a noun, and the most probable words for it."""
    sentence = next(s for s in test if SHORT <= len(s) <= LONG and "NN" in s.tags[1:])
    t = sentence.tags.index("NN", 1)
    words = [*sentence.words[:t], "___", *sentence.words[t + 1 :]]
    return words, model.fill(" ".join(words), 6)[0]


def _show_rows(console: Any, title: str, header: tuple[str, ...], rows: list[Any]) -> None:
    """Print a table; numbers have three digits below one, else two."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(*map(escape, header), title=title, title_justify="left")
    for row in rows:
        cells = (
            f"{c:.3f}" if isinstance(c, float) and c <= 1 else f"{c:.2f}" if isinstance(c, float) else c for c in row
        )
        table.add_row(*map(escape, cells))
    console.print(table)


def _show_evidence(console: Any, run: Run) -> None:
    evidence, sentence = run.evidence, run.test[run.evidence.n]
    (path, p, rows), (new_path, new_p, new_rows) = evidence.before, evidence.after
    known = f"{sentence.words[evidence.t]} is {evidence.tag}"
    shown = []
    for t, word in enumerate(sentence.words):
        other = max((tag for tag in rows[t] if tag != path[t]), key=rows[t].__getitem__)
        best, given = rows[t][path[t]], new_rows[t][new_path[t]]
        shown.append(
            (word, path[t], best, f"{other} {rows[t][other]:.3f}", sentence.tags[t], f"{new_path[t]} {given:.3f}")
        )
    header = ("word", "tag", "confidence", "next best", "gold", f"given that {known}")
    _show_rows(console, "Tags with confidence: p(tag | whole sentence)", header, shown)
    console.print(
        f"Evidence changes the whole posterior: {known} had probability {evidence.probability:.3f}; the best tags of "
        f"the sentence have probability {p:.3f} before and {new_p:.3f} after.\n", markup=False,
    )  # fmt: skip


def _show_parse(console: Any, run: Run) -> None:
    n, arcs = run.parse
    sentence, tags = run.test[n], run.predicted[n]
    names = ["root", *sentence.words]
    rows = [
        (sentence.words[t], tags[t], names[head], label or "", p, "" if gold == head else names[gold])
        for t, ((head, label, p), gold) in enumerate(zip(arcs, sentence.heads, strict=True))
    ]
    header = ("word", "tag", "head", "label", "p(arc)", "gold head")
    _show_rows(console, "A tree with arc probabilities", header, rows)


def _page(run: Run, n_train: int) -> Any:
    """Return a page with results, learning curves, posteriors, a tree, calibration, weights and a filled blank."""
    from trelliswork.report import Page, bars, calibration, dependency_tree, reliability, side_by_side, table, trellis
    from trelliswork.report.curves import learning_curves

    lead = (
        f"A tagger, a parser and a language model, trained on {n_train:,} sentences of the bundled corpus and "
        f"evaluated on {len(run.test):,} new ones. This file is self-contained."
    )
    facts = [("correct tags", f"{run.tagging.accuracy:.1%}"), ("correct heads", f"{run.parsing.uas:.1%}")]
    facts += [
        ("perplexity", f"{run.rows[-1][2]:.0f}"),
        ("training seconds", f"{sum({r[0]: r[3] for r in run.rows}.values()):.0f}"),
    ]
    page = Page("trelliswork demo", lead=lead, facts=facts)
    page.section("Results", table(["model", "measure", "value", "seconds"], run.rows, digits=1))
    for name, model in (("tagger", run.tagger), ("parser", run.parser)):
        page.section(f"Learning curves of the {name}", side_by_side(*learning_curves(model)))

    evidence, labels = run.evidence, list(run.tagger.labels_)
    sentence = run.test[evidence.n]
    words, gold = list(sentence.words), list(sentence.tags)
    pictures = [trellis(words, labels, rows, path, gold) for path, _, rows in (evidence.before, evidence.after)]
    note = "Tags by words: darker is more probable given the whole sentence. The line is the best path."
    page.section("The posterior of a sentence", pictures[0], note=note)
    note = (
        f"{words[evidence.t]!r} is known to be {evidence.tag}, which had probability {evidence.probability:.3f}. The "
        f"best path has probability {evidence.before[1]:.3f} before and {evidence.after[1]:.3f} after."
    )
    page.section("The same posterior, given evidence", pictures[1], note=note)

    n, arcs = run.parse
    heads, relations, probabilities = (list(column) for column in zip(*arcs, strict=True))
    parsed = run.test[n]
    tree = dependency_tree(list(parsed.words), heads, relations, probabilities, list(parsed.heads), run.predicted[n])
    note = "A short sentence of the test part with an arc of probability near one half."
    page.section("A tree with arc probabilities", tree, note=note)

    marginals = run.tagger.predict_marginals([list(s.words) for s in run.test])
    confidences = [row[tag] for tag, row in zip(chain(*run.predicted), chain(*marginals), strict=True)]
    right = [a == b for a, b in zip(chain(*run.predicted), chain(*(s.tags for s in run.test)), strict=True)]
    calibrated = (
        calibration(reliability(confidences, right), title="Tags", what="words"),
        calibration(run.parsing.calibration or (), title="Arcs", what="arcs"),
    )
    note = "Of the answers with a confidence of 80 percent, 80 percent should be correct."
    page.section("Calibration of confidences", side_by_side(*calibrated), note=note)

    features = [(f"{a} → {tag}", w) for a, tag, w in run.tagger.top_features(15)]
    pairs = [(f"{a} → {b}", w) for a, b, w in run.tagger.top_transitions(15)]
    blanked, fills = run.filled
    lists = (
        bars(features, title="Largest weights of the tagger"),
        bars(pairs, title="Its largest transitions", headers=("tags", "weight")),
        bars(fills, title=f"Fill the blank: {' '.join(blanked)}", headers=("word", "p(word | all others)")),
    )
    page.section("Weights and words", side_by_side(*lists))
    return page
