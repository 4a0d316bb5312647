"""``trelliswork evaluate``: compare a saved model with gold answers."""

import json as json_module
from dataclasses import replace
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, evaluation_layout, layers_layout, read_labeled, read_layers
from trelliswork.cli.options import OtherBeamOption, TrainedFormatOption, set_beam
from trelliswork.cli.reporting import ReportOption, report_evaluation
from trelliswork.cli.use.constituents import evaluate_constituents
from trelliswork.cli.use.generate import evaluate_text
from trelliswork.cli.use.loading import Model, class_of
from trelliswork.cli.use.parse import evaluate_parser
from trelliswork.cli.use.tag import check_words


def evaluate(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="Labeled file in the format of training, or test or dev of the bundled corpus.")
    ] = "test",
    format: TrainedFormatOption = FileFormat.auto,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels, if not that of training: a number or a CoNLL-U name; for several layers 1,2."
        ),
    ] = None,
    beam: OtherBeamOption = None,
    page: ReportOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare a model with gold answers.

    Taggers: accuracy, spans, known and unknown words, frequent errors; by layer and jointly for several layers.
    Induced states: many-to-one and one-to-one accuracy, V-measure and variation of information.
    Parsers: attachment scores. Grammars: brackets, with left- and right-branching trees for comparison.
    Language models: log evidence and perplexity of a text.

    Example: trelliswork evaluate chunker test.txt --json
    """
    from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

    task = class_of(model)
    if issubclass(task, TreeParser) and task.constituents:
        if label is not None or beam is not None or format != FileFormat.auto:
            raise typer.BadParameter("a grammar is compared with bracketed trees: leave --label, --beam, --format out.")
        evaluate_constituents(model, file, json, page)
        return
    if not issubclass(task, Tagger | TreeParser):
        if label is not None:
            raise typer.BadParameter("a language model is evaluated by its perplexity: leave --label out.")
        evaluate_text(model, file, format, beam, json, page)
        return
    fitted: Any = task.load(model)
    set_beam(fitted, beam)
    judge = evaluate_parser if issubclass(task, TreeParser) else _layers if issubclass(task, LayeredTagger) else _tagger
    report, sample = judge(fitted, file, format, label)
    more = report_evaluation(page, fitted, report, file, model, *sample)
    print(json_module.dumps(report.to_dict() | more) if json else report.summary())


def _tagger(tagger: Any, file: str, format: FileFormat, label: str | None) -> tuple[Any, tuple[Any, ...]]:
    """Compare a tagger with the gold labels of a file; return the report, the sentences and the labels."""
    from trelliswork.data import Corpus
    from trelliswork.metrics.induction import evaluate_induction
    from trelliswork.metrics.tagging import evaluate_tagging, gold_in_scheme_of

    corpus, gold = read_labeled(file, evaluation_layout(Layout.of(tagger), file, format, label))
    check_words(tagger, corpus, file)
    predicted = tagger.predict(corpus)
    if getattr(tagger, "induced_", False):
        return evaluate_induction(gold, predicted), (corpus, gold)
    same = gold_in_scheme_of(tagger.labels_, predicted, gold)
    known = tagger.known_words()
    words = corpus.sentences(0) if known and isinstance(corpus, Corpus) else None
    return evaluate_tagging(same, predicted, words=words, known_words=known), (corpus, same)


def _layers(tagger: Any, file: str, format: FileFormat, label: str | None) -> tuple[Any, tuple[Any, ...]]:
    """Compare all layers with the gold labels of a file; return the report, the sentences and the labels."""
    layout = Layout.of(tagger)
    if format not in (FileFormat.auto, FileFormat(layout.format)):
        layout = layers_layout(file, format, None, tagger.layers, label, None)
    elif label is not None:
        other = layers_layout(file, FileFormat(layout.format), None, tagger.layers, label, None)
        layout = replace(layout, label=other.label)
    corpus, gold = read_layers(file, layout, tagger.layers)
    return tagger.evaluate(corpus, gold), (corpus, gold)
