"""``trelliswork train factorial-crf``: train a tagger of several label layers on a file."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, layers_layout, read_layers
from trelliswork.cli.options import FormatOption, LabeledFile, SeparatorOption
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.models import FactorialCRF


def run(
    job: Job,
    model: "FactorialCRF",
    train: LabeledFile = None,
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
) -> dict[str, Any]:
    """Train a tagger of several label layers. Ctrl-C stops after the current iteration and saves the model.

    The file has one token per line and an empty line after each sentence: the last columns are the layers, in the order
    of --layers, the others are for the features; in CoNLL-U, the columns of these names. Without a file the bundled
    corpus is used. The model is a directory for tag, evaluate, inspect and explore.
    """
    names = list(model.layers)
    layout = layers_layout(train, format, columns, names, label, separator)
    corpus, labels = read_layers(train, layout)
    options: dict[str, Any] = {}
    if job.dev is not None:
        words, rows = read_layers(job.dev, layout)
        options["dev"] = (words, dict(zip(names, rows, strict=True)))
    y = dict(zip(names, labels, strict=True))
    job.fit(model, corpus, y, n_tokens=corpus.n_tokens, total=model.max_iter, **options)
    job.sample = partial(part, options.get("dev"), corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "labels": {layer.name: len(layer.labels) for layer in model.layers_},
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
    }
