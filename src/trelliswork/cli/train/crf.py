"""``trelliswork train crf``: train a CRF tagger on a file."""

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, labeled_parts, read_labeled, read_numbers, training_layout
from trelliswork.cli.options import FormatOption, LabeledFile, LabelOption, SeparatorOption
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.models import CRF
    from trelliswork.models.evidence import Known
    from trelliswork.report import Sample


def run(
    job: Job,
    model: "CRF",
    train: LabeledFile = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None, typer.Option(help="Columns for the features: 0,1 or form,xpos.", show_default="all")
    ] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of tokens whose label is unknown; training uses the others.")
    ] = None,
    alternatives: Annotated[
        str | None, typer.Option(help="Separator within sets of labels: with '|', NN|VB may be either.")
    ] = None,
    sentence_weights: Annotated[
        str | None, typer.Option(help="File with the weight of each sentence, one number per line.")
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sentences per part: read a column file in parts, for files that do not fit into memory. Needs "
            "--hash-bits and --algorithm sgd or perceptron.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Train a CRF tagger. Ctrl-C stops after the current iteration and saves the model.

    The file has one token per line with columns between white space and an empty line after each sentence: the last
    column is the label (--label), the others are for the features (--columns). CoNLL-U and CRFsuite's format are read
    as well. Without a file the bundled corpus is used. The default features are chunking for two columns, else pos. The
    model is a directory for tag, evaluate, inspect and explore.
    """
    layout = training_layout(train, format, columns, label, separator)
    if layout.format == "crfsuite":
        if "features" in job.given:
            raise typer.BadParameter("--features does not apply to a file of ready attributes: leave it out.")
        model.features = None
    elif "features" not in job.given:
        model.features = ""  # chosen when the columns are known
    if stream is not None:
        refused = {"dev": job.dev, "start": job.start, "checkpoint": job.checkpoint}
        for name, value in (refused | {"sentence-weights": sentence_weights}).items():
            if value is not None:
                raise typer.BadParameter(f"--{name} cannot be combined with --stream.")
        n_sentences, n_tokens = _from_stream(job, model, train, layout, stream, unknown_label, alternatives)
        job.sample = partial(_first_part, train, layout, stream)
    else:
        corpus, labels = read_labeled(train, layout)
        if model.features == "":
            model.features = _default_features(layout)
        n_sentences, n_tokens = len(labels), sum(map(len, labels))
        development = read_labeled(job.dev, layout) if job.dev is not None else None
        y = _known(labels, unknown_label, alternatives)
        options: dict[str, Any] = {}
        if development is not None:
            if _known(development[1], unknown_label, alternatives) != development[1]:
                raise typer.BadParameter("every token of the --dev file needs exactly one label.")
            options["dev"] = development
        if sentence_weights is not None:
            options["sample_weight"] = read_numbers(sentence_weights, len(labels))
        job.fit(model, corpus, y, n_tokens=n_tokens, total=model._settings().iterations, **options)
        job.sample = partial(part, development, corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "labels": len(model.labels_),
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
    }


def _first_part(path: str | None, layout: Layout, size: int) -> "Sample":
    """Return the first sentences of a file that is too large for memory."""
    corpus, _ = next(labeled_parts(path, layout, size))
    return part(None, corpus)


def _default_features(layout: Layout) -> str:
    return "chunking" if len(layout.columns) == 2 else "pos"


def _known(
    labels: list[list[str]], unknown: str | None, alternatives: str | None
) -> "list[list[str]] | list[list[Known]]":
    """Return labels with sets and gaps as the options define them."""
    if unknown is None and alternatives is None:
        return labels

    def one(label: str) -> "Known":
        if label == unknown:
            return None
        return label.split(alternatives) if alternatives and alternatives in label else label

    return [[one(label) for label in sentence] for sentence in labels]


def _from_stream(
    job: Job, model: "CRF", path: str | None, layout: Layout, size: int, unknown: str | None, alternatives: str | None
) -> tuple[int, int]:
    """Train part by part: one pass over the file for the labels, then one per epoch; return sentences and tokens."""
    from trelliswork.learning.report import STOPPED, FitReport, Step
    from trelliswork.models.crf.data import label_vocabulary

    names: dict[str, None] = {}
    n_sentences = n_tokens = 0
    for _, labels in labeled_parts(path, layout, size):
        names |= dict.fromkeys(label_vocabulary(_known(labels, unknown, alternatives)))
        n_sentences += len(labels)
        n_tokens += sum(map(len, labels))
    if model.features == "":
        model.features = _default_features(layout)
    started, epochs = time.perf_counter(), model._settings().iterations
    report = FitReport(False, f"{epochs} epochs", float("nan"))
    with training_progress(n_tokens, epochs, job.quiet) as callback:
        for epoch in range(1, epochs + 1):
            loss = 0.0
            for corpus, labels in labeled_parts(path, layout, size):
                model.partial_fit(corpus, _known(labels, unknown, alternatives), labels=list(names))
                loss += model.report_.value
            active = int((model.weights_ != 0).sum())
            report.add(Step(epoch, loss, float("nan"), active, epoch, time.perf_counter() - started))
            if callback(report.history[-1]):
                report.reason = STOPPED
                break
    model.report_ = report
    return n_sentences, n_tokens
