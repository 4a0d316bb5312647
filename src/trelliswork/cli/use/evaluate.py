"""``trelliswork evaluate``: compare a saved model with gold answers."""

import json as json_module
from dataclasses import replace
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import (
    FileFormat,
    Layout,
    evaluation_layout,
    layers_layout,
    naming_lines,
    read_labeled,
    read_layers,
)
from trelliswork.cli.inputs import Inputs
from trelliswork.cli.options import OtherBeamOption, TrainedFormatOption, set_beam
from trelliswork.cli.reporting import ReportOption, report_evaluation
from trelliswork.cli.running import alone, current
from trelliswork.cli.use.constituents import evaluate_constituents
from trelliswork.cli.use.generate import evaluate_text
from trelliswork.cli.use.loading import Model, class_of
from trelliswork.cli.use.parse import evaluate_parser
from trelliswork.cli.use.sharing import collected
from trelliswork.cli.use.tag import check_words


def evaluate(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Labeled files in the format of training, or test or dev of the bundled corpus. Default: test.",
            show_default=False,
        ),
    ] = None,
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

    task, source = class_of(model), Inputs.of(files, "test")
    if issubclass(task, TreeParser) and task.constituents:
        if label is not None or beam is not None or format != FileFormat.auto:
            raise typer.BadParameter("a grammar is compared with bracketed trees: leave --label, --beam, --format out.")
        if current().rank == 0:  # brackets are counted in one process
            with alone():
                evaluate_constituents(model, source, json, page)
        return
    if not issubclass(task, Tagger | TreeParser):
        if label is not None:
            raise typer.BadParameter("a language model is evaluated by its perplexity: leave --label out.")
        evaluate_text(model, source, format, beam, json, page)
        return
    fitted: Any = task.load(model)
    set_beam(fitted, beam)
    judge = evaluate_parser if issubclass(task, TreeParser) else _layers if issubclass(task, LayeredTagger) else _tagger
    judged = judge(fitted, source, format, label)
    if judged is None:
        return
    report, sample = judged
    with alone():
        more = report_evaluation(page, fitted, report, source.name, model, *sample)
    print(json_module.dumps(report.to_dict() | more) if json else report.summary())


Judged = tuple[Any, tuple[Any, ...]] | None  # the report, and sentences and labels; in a group only on rank 0


def _tagger(tagger: Any, source: Inputs, format: FileFormat, label: str | None) -> Judged:
    """Compare a tagger with the gold labels of files; return the report, the sentences and the labels."""
    from trelliswork.data import Corpus
    from trelliswork.metrics.induction import evaluate_induction
    from trelliswork.metrics.tagging import evaluate_tagging, gold_in_scheme_of

    layout = evaluation_layout(Layout.of(tagger), source, format, label)
    corpus, gold = read_labeled(source, layout)
    check_words(tagger, corpus, source.name)
    with naming_lines(source, layout), alone():
        predicted = tagger.predict(corpus) if len(corpus) else []
    known = tagger.known_words()
    words = corpus.sentences(0) if known and isinstance(corpus, Corpus) else [None] * len(corpus)
    rows = collected([list(row) for row in zip(gold, predicted, words, strict=True)])
    if current().rank > 0:
        return None
    gold, predicted, words = ([row[k] for row in rows] for k in range(3))
    if getattr(tagger, "induced_", False):
        return evaluate_induction(gold, predicted), (corpus, gold[: len(corpus)])
    same = gold_in_scheme_of(tagger.labels_, predicted, gold)
    seen: Any = None if None in words else words
    return evaluate_tagging(same, predicted, words=seen, known_words=known), (corpus, same[: len(corpus)])


def _layers(tagger: Any, source: Inputs, format: FileFormat, label: str | None) -> Judged:
    """Compare all layers with the gold labels of files; return the report, the sentences and the labels."""
    layout = Layout.of(tagger)
    if format not in (FileFormat.auto, FileFormat(layout.format)):
        layout = layers_layout(source, format, None, tagger.layers, label, None)
    elif label is not None:
        other = layers_layout(source, FileFormat(layout.format), None, tagger.layers, label, None)
        layout = replace(layout, label=other.label)
    corpus, gold = read_layers(source, layout, tagger.layers)
    with naming_lines(source, layout), alone():
        predicted = tagger.predict_layers(corpus) if len(corpus) else {name: [] for name in tagger.layers}
    columns = (*gold.values(), *predicted.values(), corpus.sentences(0))
    rows = collected([list(row) for row in zip(*columns, strict=True)])
    if current().rank > 0:
        return None
    D, every = len(tagger.layers), list(map(list, zip(*rows, strict=True)))
    return tagger.compared(every[:D], every[D : 2 * D], every[-1]), (corpus, gold)
