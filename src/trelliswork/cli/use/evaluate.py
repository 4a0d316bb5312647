"""``trelliswork evaluate``: compare a saved model with gold answers."""

import json as json_module
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import (
    Decide,
    OtherBeamOption,
    SchemeName,
    SchemeOption,
    StrictOption,
    TrainedFormatOption,
    bundled_option,
    set_beam,
)
from trelliswork.cli.reporting import ReportOption, report_evaluation
from trelliswork.cli.running import alone, current
from trelliswork.cli.use.calibrate import read_answers
from trelliswork.cli.use.constituents import evaluate_constituents
from trelliswork.cli.use.generate import evaluate_text
from trelliswork.cli.use.loading import Model, class_of
from trelliswork.cli.use.parse import evaluate_parser
from trelliswork.cli.use.sharing import collected
from trelliswork.cli.use.tag import check_words
from trelliswork.data.reading import (
    FileFormat,
    LabelReading,
    naming_lines,
)
from trelliswork.data.reading.inputs import Inputs

if TYPE_CHECKING:
    from trelliswork.metrics.calibration import AtPrecision


def evaluate(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Labeled files in the format of training; '-' is standard input.", show_default=False),
    ] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels, if not that of training: a number or a CoNLL-U name; for several layers 1,2."
        ),
    ] = None,
    decode: Annotated[
        Decide | None,
        typer.Option(
            "--decoding",
            help="viterbi: most probable structure. posterior: most expected correct labels or heads. mbr-span: best "
            "expected F1 of spans (taggers). mbr-las: most expected correct heads and labels (parsers).",
            show_default="viterbi; posterior for parsers",
        ),
    ] = None,
    scheme: SchemeOption = SchemeName.auto,
    strict: StrictOption = False,
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
    Language models: log evidence and perplexity of a text.

    Example: trelliswork evaluate chunker test.txt --json
    """
    from trelliswork.models.tasks import LayeredTagger, Tagger, TreeParser

    task, source = class_of(model), inputs_of(files, bundled)
    if issubclass(task, TreeParser) and task.constituents:
        if (label, beam, decode, target_precision, format) != (None, None, None, None, FileFormat.auto):
            raise typer.BadParameter(
                "a grammar is compared with bracketed trees: leave --label, --beam, --decoding, --target-precision, "
                "--format out."
            )
        if current().rank == 0:  # brackets are counted in one process
            with alone():
                evaluate_constituents(model, source, json, page)
        return
    if not issubclass(task, Tagger | TreeParser):
        if label is not None or decode is not None or target_precision is not None:
            raise typer.BadParameter(
                "a language model is evaluated by its perplexity: leave --label, --decoding, --target-precision out."
            )
        evaluate_text(model, source, format, beam, json, page)
        return
    is_parser = issubclass(task, TreeParser)
    if decode == (Decide.mbr_span if is_parser else Decide.mbr_las):
        raise typer.BadParameter(f"--decoding {decode.value} is for {'taggers' if is_parser else 'parsers'}.")
    fitted: Any = task.load(model)
    set_beam(fitted, beam)
    options = (fitted, source, format, label, None if decode is None else decode.value)
    if is_parser:
        judged = evaluate_parser(*options)
    else:
        layered = issubclass(task, LayeredTagger)
        judged = _tagger(*options, LabelReading.of(scheme, strict, convert=layered))
    if judged is None:
        return
    report, sample = judged
    with alone():
        more = report_evaluation(page, fitted, report, source.name, model, *sample)
    reached = {} if target_precision is None else _at_precision(report, target_precision)
    if json:
        plain = {name: asdict(one) for name, one in reached.items()}
        found = {"at_precision": plain.get("", plain)} if reached else {}
        print(json_module.dumps(report.to_dict() | more | found))
        return
    lines = [f"{name} {one.summary()}".lstrip() for name, one in reached.items()]
    print("\n\n".join([report.summary(), *filter(None, ["\n".join(lines)])]))


def _at_precision(report: Any, target: float) -> "dict[str, AtPrecision]":
    """Return by layer which threshold gives spans, tags or arcs a precision; the name of a single layer is empty."""
    found = {}
    for name, one in getattr(report, "layers", {"": report}).items():
        confidence = getattr(one, "span_confidence", None) or getattr(one, "confidence", None)
        if confidence is None:
            raise typer.BadParameter("--target-precision needs answers with probabilities, which this model lacks.")
        found[name] = confidence.at_precision(target)
    return found


Judged = tuple[Any, tuple[Any, ...]] | None  # the report, and sentences and labels; in a group only on rank 0


def _tagger(
    tagger: Any, source: Inputs, format: FileFormat, label: str | None, decode: str | None, how: LabelReading
) -> Judged:
    """Compare a tagger with the gold labels of files; return the report, the sentences and the labels."""
    from trelliswork.data import Corpus
    from trelliswork.metrics.induction import evaluate_induction
    from trelliswork.metrics.tagging import evaluate_tagging, gold_in_scheme_of, with_confidence
    from trelliswork.models.tasks import LayeredTagger

    layered = isinstance(tagger, LayeredTagger)
    corpus, gold = read_answers(tagger, source, format, label, how)
    check_words(tagger, corpus, source.name)
    golds = gold if layered else {"": gold}
    with naming_lines(source, corpus), alone():
        judged = _judged(tagger, corpus, golds, decode)
    known = tagger.known_words()
    words: Any = [None] * len(corpus)
    if isinstance(corpus, Corpus) and (known or layered):
        words = corpus.sentences(0)
    rows = collected([list(row) for row in zip(words, *golds.values(), *judged, strict=True)])
    if current().rank > 0:
        return None
    words, *columns = map(list, zip(*rows, strict=True))
    D = len(golds)
    right, (predicted, p, of_spans) = columns[:D], (columns[D + k :: 3] for k in range(3))
    found: list[Any] = [None if None in column else column for column in of_spans]
    if layered:
        return tagger.compared(right, predicted, words, p, found), (corpus, gold)
    if getattr(tagger, "induced_", False):
        return evaluate_induction(right[0], predicted[0]), (corpus, right[0][: len(corpus)])
    same = gold_in_scheme_of(tagger.labels_, predicted[0], right[0])
    seen: Any = None if None in words else words
    report = evaluate_tagging(same, predicted[0], words=seen, known_words=known)
    report = with_confidence(report, same, predicted[0], p[0], found[0])
    return report, (corpus, same[: len(corpus)])


def _judged(tagger: Any, corpus: Any, gold: dict[str, Any], decode: str | None) -> list[list[Any]]:
    """Return three columns for each layer of labels, with an entry for each sentence.

    Predicted labels; the probabilities of predicted and gold labels, ``None`` for induced states; and the probabilities
    of predicted spans, ``None`` without spans.
    """
    import warnings

    from trelliswork.answers import PLAIN, Want, ask, by_layer, layer_labels
    from trelliswork.metrics.tagging import gold_in_scheme_of

    induced = getattr(tagger, "induced_", False)
    want = PLAIN if induced else Want(outcomes=True, spans=True)
    layers = by_layer(ask(tagger, corpus, want, decoding=decode))
    columns: list[list[Any]] = []
    for name, labels in layer_labels(tagger).items():
        answers = layers.get(name, [])
        predicted = [answer.value for answer in answers]
        with warnings.catch_warnings():  # about the scheme: the report gives the same one
            warnings.simplefilter("ignore")
            same = gold[name] if induced else gold_in_scheme_of(labels, predicted, gold[name])
        pairs = zip(answers, same, strict=True)
        columns.append(predicted)
        columns.append([None if induced else answer.compared(right) for answer, right in pairs])
        columns.append([None if answer.spans is None else [p for _, p in answer.spans] for answer in answers])
    return columns
