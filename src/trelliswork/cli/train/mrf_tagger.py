"""``trelliswork train mrf-tagger``: train a Markov random field of tags and words on a file."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, read_labeled, training_layout
from trelliswork.cli.options import FormatOption, LabeledFile, LabelOption, SeparatorOption
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.models.mrf_tagger import MRFTagger


def run(
    job: Job,
    model: "MRFTagger",
    train: LabeledFile = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
) -> dict[str, Any]:
    """Train a tagger by the joint likelihood of tags and words. Ctrl-C stops after the current iteration and saves it.

    The file has one token per line and an empty line after each sentence: words are the first column, tags the last;
    CoNLL-U is read as well. Without a file the tags of the bundled corpus are used. The model is a directory for tag,
    evaluate, inspect and explore.
    """
    from trelliswork.data import Corpus

    if train is None and label is None:
        label = "1"
    layout = training_layout(
        train, format, columns if columns is not None or train is not None else "0", label, separator
    )
    corpus, tags = read_labeled(train, layout)
    if not isinstance(corpus, Corpus):
        raise typer.BadParameter("this tagger reads words: a file of ready attributes is for train crf.")
    dev = None if job.dev is None else read_labeled(job.dev, layout)
    job.fit(model, corpus, tags, n_tokens=corpus.n_tokens, total=model.max_iter, dev=dev)
    job.sample = partial(part, dev, corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "labels": len(model.labels_),
        "words": len(model.known_words()),
        "bound": model.bound_,
        "bound_kind": "exact" if model.order == model.n_words == 1 else "lower",
    }
