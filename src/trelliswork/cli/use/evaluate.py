"""``trelliswork evaluate``: compare a saved model with gold answers."""

import json as json_module
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, evaluation_layout, read_labeled
from trelliswork.cli.options import OtherBeamOption, set_beam
from trelliswork.cli.reporting import ReportOption, judged_part, report_evaluation
from trelliswork.cli.use.constituents import evaluate_constituents
from trelliswork.cli.use.generate import evaluate_text
from trelliswork.cli.use.layers import evaluate_layers
from trelliswork.cli.use.loading import Model, class_of
from trelliswork.cli.use.parse import evaluate_parser
from trelliswork.cli.use.tag import check_words


def evaluate(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="Labeled file in the format of training, or test or dev of the bundled corpus.")
    ] = "test",
    format: Annotated[
        FileFormat, typer.Option(help="Format of the file; by default that of training.")
    ] = FileFormat.auto,
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
    from trelliswork.data import Corpus
    from trelliswork.metrics.induction import InductionReport, evaluate_induction
    from trelliswork.metrics.tagging import TaggingReport, evaluate_tagging
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
    tagger: Any = task.load(model)
    set_beam(tagger, beam)
    if issubclass(task, TreeParser):
        evaluate_parser(tagger, file, format, label, json, model, page)
        return
    if issubclass(task, LayeredTagger):
        evaluate_layers(tagger, Layout.of(tagger), file, format, label, json, model, page)
        return
    corpus, gold = read_labeled(file, evaluation_layout(Layout.of(tagger), file, format, label))
    check_words(tagger, corpus, file)
    predicted = tagger.predict(corpus)
    report: TaggingReport | InductionReport
    if getattr(tagger, "induced_", False):
        report = evaluate_induction(gold, predicted)
    else:
        words = corpus.sentences(0) if isinstance(corpus, Corpus) else None
        known = tagger.known_words()
        report = evaluate_tagging(gold, predicted, words=words if known else None, known_words=known)
    more = report_evaluation(page, tagger, report, file=file, name=model, sample=lambda: judged_part(corpus, gold))
    print(json_module.dumps(report.to_dict() | more) if json else report.summary())
