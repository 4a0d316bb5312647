"""``trelliswork train crf``, ``factorial-crf``, ``hmm`` and ``mrf-tagger``: train a tagger on files."""

import warnings
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import (
    Files,
    FormatOption,
    LabeledFiles,
    LabelOption,
    SchemeOption,
    SeparatorOption,
    StrictOption,
    leave_out,
    named,
)
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job
from trelliswork.data.reading import (
    FileFormat,
    LabelReading,
    Layout,
    file_layout,
    guess_format,
    naming_lines,
    read_labeled,
    read_numbers,
    read_words,
)
from trelliswork.data.reading.inputs import Inputs, totals
from trelliswork.errors import DataWarning

if TYPE_CHECKING:
    from trelliswork.models import CRF, HMM, FactorialCRF, MRFTagger
    from trelliswork.models.evidence import Known

WordsColumn = Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")]


def crf(
    job: Job,
    model: "CRF",
    train: LabeledFiles = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None, typer.Option(help="Columns for the features: 0,1 or form,xpos.", show_default="all")
    ] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    strict: StrictOption = False,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of tokens whose label is unknown; training uses the others.")
    ] = None,
    alternatives: Annotated[
        str | None, typer.Option(help="Separator within sets of labels: with '|', NN|VB may be either.")
    ] = None,
    sentence_weights: Annotated[
        str | None, typer.Option(help="File with the weight of each sentence, one number per line.")
    ] = None,
) -> dict[str, Any]:
    """Train a CRF tagger. Ctrl-C stops after the current iteration and saves the model.

    Files have one token per line with columns between white space and an empty line after each sentence: the last
    column is the label (--label), the others are for the features (--columns). CoNLL-U and CRFsuite's format are read
    as well. The default features are chunking for two columns, else pos. The model is a directory for tag, evaluate,
    inspect and explore.
    """
    from trelliswork.data.schemes import model_scheme

    source = job.inputs(train)
    layout = file_layout(source, format, columns, label, separator)
    known = partial(_known, unknown=unknown_label, alternatives=alternatives)
    how = LabelReading.of(model.scheme, strict, gaps=(unknown_label, alternatives) != (None, None))
    if how.scheme in ("iob1", "bilou"):
        model.scheme = model_scheme(how.scheme)  # to which labels are converted
    if layout.format == "crfsuite" and "features" in job.given:
        raise typer.BadParameter("--features does not apply to a file of ready attributes: leave it out.")
    corpus, labels = read_labeled(source, layout, how)
    if layout.format == "crfsuite":
        model.features = None
    elif "features" not in job.given:
        model.features = "chunking" if len(layout.columns) == 2 else "pos"
    _check_columns(model.features, layout)
    dev = job.read_dev(read_labeled, layout, how)
    if dev is not None and known(dev[1]) != dev[1]:
        raise typer.BadParameter("every token of the --dev file needs exactly one label.")
    weights = None if sentence_weights is None else read_numbers(sentence_weights, len(corpus))
    total = model._settings().iterations
    facts = _learn(job, model, source, layout, corpus, known(labels), dev, total, sample_weight=weights)
    facts |= {"labels": len(model.labels_), "features": len(model.weights_)}
    return facts | {"active": int((model.weights_ != 0).sum())}


def _learn(
    job: Job, model: Any, source: Inputs, layout: Layout, corpus: Any, labels: Any, dev: Any, total: int, **options: Any
) -> dict[str, Any]:
    """Fit a tagger; return the numbers of sentences and tokens of all processes."""
    n_sentences, n_tokens = totals(len(corpus), corpus.n_tokens)
    with naming_lines(source, corpus):
        job.fit(model, corpus, labels, n_tokens=n_tokens, total=total, dev=dev, **options)
    job.sample = partial(part, dev, corpus)
    model.input_ = layout.to_dict()
    return {"sentences": n_sentences, "tokens": n_tokens}


def _check_columns(features: Any, layout: Layout) -> None:
    """Warn about columns for the features that a preset ignores."""
    from trelliswork.features.presets import PRESETS

    names = [str(column) for column in layout.columns]
    n = PRESETS[features].n_columns if isinstance(features, str) and features in PRESETS else len(names)
    if n < len(names):
        warnings.warn(
            f"the features '{features}' use column {' and '.join(names[:n])} and ignore {', '.join(names[n:])}. Use "
            f"templates (--features FILE) for all columns, or --columns {','.join(names[:n])} to hide this message.",
            DataWarning,
            stacklevel=2,
        )


def _known(
    labels: list[list[str]], unknown: str | None, alternatives: str | None = None
) -> "list[list[str]] | list[list[Known]]":
    """Return labels with sets and gaps as the options define them."""
    if unknown is None and alternatives is None:
        return labels

    def one(label: str) -> "Known":
        if label == unknown:
            return None
        return label.split(alternatives) if alternatives and alternatives in label else label

    return [[one(label) for label in sentence] for sentence in labels]


def factorial_crf(
    job: Job,
    model: "FactorialCRF",
    train: LabeledFiles = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns for the features: 0 or form.", show_default="all but the labels, or form"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Columns of the layers: 1,2 or xpos,misc.", show_default="the last ones, or CoNLL-U columns by name"
        ),
    ] = None,
    separator: SeparatorOption = None,
    strict: StrictOption = False,
) -> dict[str, Any]:
    """Train a tagger of several label layers. Ctrl-C stops after the current iteration and saves the model.

    Files have one token per line and an empty line after each sentence: the last columns are the layers, in the order
    of --layers, the others are for the features; in CoNLL-U, the columns of these names. The model
    is a directory for tag, evaluate, inspect and explore.
    """
    source = job.inputs(train)
    layout = file_layout(source, format, columns, label, separator, layers=model.layers)
    how = LabelReading.of(model.scheme, strict)
    corpus, labels = read_labeled(source, layout, how, model.layers)
    _check_columns(model.features, layout)
    dev = job.read_dev(read_labeled, layout, how, model.layers)
    return _learn(job, model, source, layout, corpus, labels, dev, model.max_iter) | {
        "labels": {name: len(labels) for name, labels in model.labels_.items()},
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
    }


def hmm(
    job: Job,
    model: "HMM",
    train: Annotated[Files, named("Files, plain or gzip; '-' is standard input.")] = None,
    format: FormatOption = FileFormat.auto,
    columns: WordsColumn = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    scheme: SchemeOption = "auto",
    strict: StrictOption = False,
    unlabeled: Annotated[
        bool, typer.Option("--unlabeled", help="Read only words and induce states by EM; the default for plain text.")
    ] = False,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of tokens whose label is unknown; EM induces their states.")
    ] = None,
) -> dict[str, Any]:
    """Train a hidden Markov model. Ctrl-C stops EM after the current iteration and saves the model.

    Labels give a tagger, words alone induced states. Files have one token per line and an empty line after each
    sentence: words are the first column, labels the last; CoNLL-U and plain text (one sentence per line, --unlabeled)
    are read as well. The model is a directory for tag, evaluate, score, sample, inspect and explore.
    """
    source = job.inputs(train)
    if unlabeled or guess_format(source, format) == FileFormat.text:
        leave_out("words are read without labels", label=label, unknown_label=unknown_label)
        layout = file_layout(source, format, columns, None, separator, words=True, labeled=False)
        words, dev = read_words(source, layout), job.read_dev(read_words, layout)
        facts = _learn(job, model, source, layout, words, None, dev, model.max_iter)
        job.sample = partial(part, None if dev is None else (dev,), words)
    else:
        layout = _words_and_tags(source, format, columns, label, separator)
        how = LabelReading.of(scheme, strict, gaps=unknown_label is not None)

        def read(given: Inputs) -> tuple[Any, Any]:
            corpus, labels = read_labeled(given, layout, how)
            return corpus, _known(labels, unknown_label)

        facts = _learn(job, model, source, layout, *read(source), job.read_dev(read), model.max_iter)
    report = model.report_
    facts |= {
        "labels": len(model.labels_),
        "words": len(model.known_words()),
        "induced": model.induced_,
        "log_evidence": report.history[-1].log_evidence if report.history else None,
    }
    return facts | ({"restarts": len(report.details["restarts"])} if "restarts" in report.details else {})


def _words_and_tags(
    source: Inputs, format: FileFormat, columns: str | None, label: str | None, separator: str | None
) -> Layout:
    """Return the layout of files with words and tags; the tags of the bundled corpus are column 1."""
    label = "1" if source.part and label is None else label
    return file_layout(source, format, columns, label, separator, words=True)


def mrf_tagger(
    job: Job,
    model: "MRFTagger",
    train: LabeledFiles = None,
    format: FormatOption = FileFormat.auto,
    columns: WordsColumn = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    scheme: SchemeOption = "auto",
    strict: StrictOption = False,
) -> dict[str, Any]:
    """Train a tagger by the joint likelihood of tags and words. Ctrl-C stops after the current iteration and saves it.

    Files have one token per line and an empty line after each sentence: words are the first column, tags the last;
    CoNLL-U is read as well. The model is a directory for tag, evaluate, inspect and explore.
    """
    source = job.inputs(train)
    layout = _words_and_tags(source, format, columns, label, separator)
    how = LabelReading.of(scheme, strict)
    data = (*read_labeled(source, layout, how), job.read_dev(read_labeled, layout, how))
    return _learn(job, model, source, layout, *data, model.max_iter) | {
        "labels": len(model.labels_),
        "words": len(model.known_words()),
        "bound": model.bound_,
        "bound_kind": "exact" if model.order == model.n_words == 1 else "lower",
    }
