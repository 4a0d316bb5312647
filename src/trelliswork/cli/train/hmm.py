"""``trelliswork train hmm``: train a hidden Markov model on a file, with labels or without."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import (
    FileFormat,
    Layout,
    WordParts,
    guess_format,
    read_labeled,
    read_words,
    training_layout,
    words_layout,
)
from trelliswork.cli.options import FormatOption, LabelOption, SeparatorOption
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import HMM


def run(
    job: Job,
    model: "HMM",
    train: Annotated[
        str | None,
        typer.Argument(help="File ('-': standard input; gzip is supported); the bundled corpus by default."),
    ] = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    unlabeled: Annotated[
        bool, typer.Option("--unlabeled", help="Read only words and induce states by EM; the default for plain text.")
    ] = False,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of tokens whose label is unknown; EM induces their states.")
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sentences per part: read words in parts, one update of stepwise EM each, for files that do not fit "
            "into memory; --max-iter counts passes.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Train a hidden Markov model. Ctrl-C stops EM after the current iteration and saves the model.

    Labels give a tagger, words alone induced states. The file has one token per line and an empty line after each
    sentence: words are the first column, labels the last; CoNLL-U and plain text (one sentence per line, --unlabeled)
    are read as well. Without a file the bundled corpus is used. The model is a directory for tag, evaluate, score,
    sample, inspect and explore.
    """
    if unlabeled or (train is not None and guess_format(train, format) == FileFormat.text):
        if label is not None or unknown_label is not None:
            raise typer.BadParameter("--label and --unknown-label do not apply to words without labels.")
        layout = words_layout(train, format, columns, separator)
        if stream is not None:
            n_sentences, n_tokens = _from_stream(job, model, train, layout, stream)
        else:
            corpus, dev = read_words(train, layout), None if job.dev is None else read_words(job.dev, layout)
            n_sentences, n_tokens = len(corpus), corpus.n_tokens
            job.fit(model, corpus, n_tokens=n_tokens, total=model.max_iter, dev=dev)
            job.sample = partial(part, None if dev is None else (dev,), corpus)
    elif stream is not None:
        raise typer.BadParameter("--stream needs words without labels: add --unlabeled, or leave it out.")
    else:
        if train is None and label is None:
            label = "1"  # the tags of the bundled corpus
        layout = training_layout(train, format, columns or _words_column(train, format), label, separator)
        corpus, y = _labeled(train, layout, unknown_label)
        dev_labeled = None if job.dev is None else _labeled(job.dev, layout, unknown_label)
        n_sentences, n_tokens = len(corpus), corpus.n_tokens
        job.fit(model, corpus, y, n_tokens=n_tokens, total=model.max_iter, dev=dev_labeled)
        job.sample = partial(part, None, corpus)
    model.input_ = layout.to_dict()
    report = model.report_
    facts = {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "labels": len(model.labels_),
        "words": len(model.known_words()),
        "induced": model.induced_,
        "log_evidence": report.history[-1].log_evidence if report.history else None,
    }
    return facts | ({"restarts": len(report.details["restarts"])} if "restarts" in report.details else {})


def _words_column(train: str | None, format: FileFormat) -> str:
    """Return the default column of the words."""
    return "form" if train is not None and guess_format(train, format) == FileFormat.conllu else "0"


def _labeled(path: str | None, layout: Layout, unknown_label: str | None) -> "tuple[Corpus, list[list[str | None]]]":
    """Return words and labels, ``None`` for unknown ones."""
    from trelliswork.data import Corpus

    corpus, labels = read_labeled(path, layout)
    if not isinstance(corpus, Corpus):
        raise typer.BadParameter("an HMM reads words: a file of ready attributes is for train crf.")
    return corpus, [[None if name == unknown_label else name for name in sentence] for sentence in labels]


def _from_stream(job: Job, model: "HMM", path: str | None, layout: Layout, size: int) -> tuple[int, int]:
    """Train part by part: one pass over the file for the words, then ``max_iter`` passes; return the file's size."""
    if model.n_restarts > 1:
        raise typer.BadParameter("--stream has one start: leave --n-restarts out.")
    parts = WordParts(path, layout, size)
    sizes = [(len(some), sum(map(len, some))) for some in parts]
    n_sentences, n_tokens = sum(n for n, _ in sizes), sum(n for _, n in sizes)
    dev = None if job.dev is None else read_words(job.dev, layout)
    per_part, total = n_tokens // max(len(sizes), 1), model.max_iter * len(sizes)
    with training_progress(per_part, total, job.quiet) as callback:
        model.fit_stream(parts, n_passes=model.max_iter, dev=dev, checkpoint=job.checkpoint, callback=callback)
    job.sample = lambda: part(None, next(iter(parts)))
    return n_sentences, n_tokens
