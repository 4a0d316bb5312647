"""``trelliswork evaluate``: compare a saved model with gold answers."""

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import (
    DecodingOption,
    Files,
    OtherBeamOption,
    SchemeOption,
    StrictOption,
    TrainedFormatOption,
    bundled_option,
    leave_out,
    named,
    set_beam,
    tell,
)
from trelliswork.cli.reporting import ReportOption, typed, write_page
from trelliswork.cli.use.calibrate import read_answers
from trelliswork.cli.use.loading import Model, RulesOption, rules_for
from trelliswork.cli.use.score import scored, summary
from trelliswork.cli.use.tag import check_words
from trelliswork.data.reading import FileFormat, LabelReading, naming_lines
from trelliswork.data.reading.inputs import Inputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.metrics.calibration import AtPrecision

LENGTHS = (10, 40, None)  # maximum sentence lengths that papers on grammar induction report


class Judged(NamedTuple):
    """Answers compared with gold."""

    report: Any  # for a page
    sample: tuple[Any, ...]  # sentences, and gold answers if there are any, for a page
    plain: dict[str, Any]  # for JSON
    text: str


def evaluate(
    model: Model,
    files: Annotated[Files, named("Labeled files in the format of training; '-' is standard input.")] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels, if not that of training: a number or a CoNLL-U name; for several layers 1,2."
        ),
    ] = None,
    decode: DecodingOption = None,
    scheme: SchemeOption = "auto",
    strict: StrictOption = False,
    rules: RulesOption = None,
    beam: OtherBeamOption = None,
    target_precision: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Find the lowest threshold (tag --min-probability) at which spans, tags or arcs have this precision.",
            show_default=False,
        ),
    ] = None,
    page: ReportOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare a model with gold answers.

    Taggers: accuracy, spans, known and unknown words, frequent errors; by layer and jointly for several layers.
    Confidence of taggers and parsers: calibration error, Brier score and log score with 95 % intervals (bootstrap over
    sentences), a reliability diagram, and the fraction and accuracy of the answers that a threshold accepts.
    Induced states: many-to-one and one-to-one accuracy, V-measure and variation of information.
    Parsers: attachment scores. Grammars: brackets, with left- and right-branching trees for comparison.
    Language models: log-probability and perplexity of a text.

    Example: trelliswork evaluate chunker test.txt --json
    """
    from trelliswork.models import load
    from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

    fitted, source = load(model), inputs_of(files, bundled)
    set_beam(fitted, beam)
    if not isinstance(fitted, Tagger):
        leave_out("rules are about the labels of taggers", rules=rules)
    if isinstance(fitted, TreeParser) and fitted.constituents:
        leave_out("a grammar is compared with trees", decoding=decode, target_precision=target_precision)
        judged = _grammar(fitted, *read_answers(fitted, source, format, label), source)
    elif isinstance(fitted, TreeParser):
        judged = _parser(fitted, *read_answers(fitted, source, format, label), source, decode)
    elif isinstance(fitted, Tagger):
        how = LabelReading.of(scheme, strict, convert=isinstance(fitted, LayeredTagger))
        answering = {"decoding": decode, "rules": rules_for(fitted, rules)}
        judged = _tagger(fitted, source, format, label, answering, how)
    else:
        given = {"label": label, "decoding": decode, "target_precision": target_precision}
        leave_out("a language model is evaluated by its perplexity", **given)
        judged = _language_model(fitted, source, format)
    plain, lines = judged.plain, [judged.text]
    if target_precision is not None:
        reached = _at_precision(judged.report, target_precision)
        found = {name: asdict(one) for name, one in reached.items()}
        plain = plain | {"at_precision": found.get("", found)}
        lines.append("\n".join(f"{name} {one.summary()}".lstrip() for name, one in reached.items()))
    if page is not None:
        from trelliswork.report import Sample, evaluation_page

        about: Any = {"file": source.name, "name": model, "sample": Sample("test", *judged.sample), "command": typed()}
        plain = plain | write_page(page, evaluation_page(fitted, judged.report, **about))
    tell(json, plain, "\n\n".join(lines))


def _at_precision(report: Any, target: float) -> "dict[str, AtPrecision]":
    """Return by layer which threshold gives spans, tags or arcs a precision; the name of a single layer is empty."""
    found = {}
    for name, one in getattr(report, "layers", {"": report}).items():
        confidence = getattr(one, "span_confidence", None) or getattr(one, "confidence", None)
        if confidence is None:
            raise typer.BadParameter("--target-precision needs answers with probabilities, which this model lacks.")
        found[name] = confidence.at_precision(target)
    return found


def _tagger(
    tagger: Any, source: Inputs, format: FileFormat, label: str | None, answering: dict[str, Any], how: LabelReading
) -> Judged:
    """Compare a tagger with the gold labels of files."""
    from trelliswork.evaluation import evaluate
    from trelliswork.metrics.tagging import gold_in_scheme_of
    from trelliswork.models.tasks import LayeredTagger

    corpus, gold = read_answers(tagger, source, format, label, how)
    check_words(tagger, corpus, source.name)
    with naming_lines(source, corpus):
        report = evaluate(tagger, corpus, gold, **answering)
    if not isinstance(tagger, LayeredTagger) and not getattr(tagger, "_induced", False):
        with warnings.catch_warnings():  # the report has warned
            warnings.simplefilter("ignore")
            gold = gold_in_scheme_of(tagger.labels_, gold, gold)
    return Judged(report, (corpus, gold), report.to_dict(), report.summary())


def _parser(parser: Any, corpus: Any, trees: list[Any], source: Inputs, decode: str | None) -> Judged:
    """Compare a parser with complete trees."""
    from trelliswork.evaluation import evaluate

    heads = [[head for head, _ in tree] for tree in trees]
    labels = [[label for _, label in tree] for tree in trees]
    known = any(label is not None for row in labels for label in row)
    with naming_lines(source, corpus):
        _check_complete("head", heads, "but evaluation needs complete trees.")
        if known:
            _check_complete("label", labels, "but other words have one: add it, or remove all labels.")
        report = evaluate(parser, corpus, trees if known else heads, decoding=decode)
    return Judged(report, (corpus, trees), report.to_dict(), report.summary())


def _check_complete(what: str, rows: list[list[Any]], advice: str) -> None:
    """Raise an error for a word without a head or label."""
    for n, row in enumerate(rows):
        if None in row:
            raise DataError(f"the word has no {what} (_), {advice}").at(n, row.index(None))


def _grammar(grammar: Any, tokens: list[list[str]], trees: list[Any], source: Inputs) -> Judged:
    """Compare the brackets of a grammar with trees, for sentences of several lengths."""
    from trelliswork.evaluation import evaluate

    reports = {}
    for longest in LENGTHS:
        if any(len(s) > 1 and (longest is None or len(s) <= longest) for s in tokens):
            name = "all" if longest is None else f"up to {longest} words"
            with naming_lines(source):
                reports[name] = evaluate(grammar, tokens, trees, max_length=longest)
    if not reports:
        raise DataError(f"{source}: no tree of at least two words for the evaluation.")
    perplexity = grammar.perplexity(tokens)
    lines = [f"{name}: {report.summary()}" for name, report in reports.items()]
    lines.append(f"perplexity {perplexity:.2f} per word")
    plain = {name: report.to_dict() for name, report in reports.items()} | {"perplexity": perplexity}
    return Judged({"brackets": reports, "perplexity": perplexity}, (tokens, trees), plain, "\n".join(lines))


def _language_model(fitted: Any, source: Inputs, format: FileFormat) -> Judged:
    """Compute the perplexity of a text."""
    corpus, evidence, figures = scored(fitted, source, format)
    report = figures | {"log_prob_of_sentences": evidence.tolist()}
    return Judged(report, (corpus,), figures, summary(figures))
