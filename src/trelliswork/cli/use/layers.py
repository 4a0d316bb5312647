"""``tag`` and ``evaluate`` for models with several layers of labels."""

import json as json_module
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import typer

from trelliswork.cli.corpora import FileFormat, Layout, layers_layout, read_layers, read_unlabeled, write_tagged
from trelliswork.cli.reporting import judged_part, report_evaluation
from trelliswork.cli.use.tag_output import layered_labelings, write_json
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import Corpus
    from trelliswork.models import FactorialCRF


def tag_layers(
    tagger: "FactorialCRF",
    layout: Layout,
    file: str,
    format: FileFormat,
    marginals: bool,
    known: str | None,
    out: str,
    json: bool = False,
) -> None:
    """Write a file with the labels of every layer, followed by their probabilities with ``marginals``; or JSON."""
    from trelliswork.data.files import atomic_write

    name, column = _known(tagger, known)
    corpus, chosen, given = read_unlabeled(file, layout, format, column)
    evidence: Any = None
    if given is not None:
        labels = next(layer.labels for layer in tagger.layers_ if layer.name == name)
        wrong = next((label for row in given for label in row if label is not None and label not in labels), None)
        if wrong is not None:
            raise DataError(f"{wrong!r} is given, but layer {name} has no such label; use _ for an unknown label.")
        evidence = {name: given}
    if json:
        answers = layered_labelings(tagger, cast("Corpus", corpus), evidence)
        with atomic_write(out) as stream:
            write_json(corpus, answers, stream)
        return
    predicted = tagger.predict_layers(corpus, known=evidence)
    extra = [[label for sentence in layer for label in sentence] for layer in predicted.values()]
    if marginals:
        for labels_, rows in zip(list(extra), tagger.predict_marginals(corpus, known=evidence).values(), strict=True):
            tokens = [token for sentence in rows for token in sentence]
            extra.append([f"{token[label]:.6f}" for token, label in zip(tokens, labels_, strict=True)])
    with atomic_write(out) as stream:
        write_tagged(corpus, chosen, layout, extra, stream)


def _known(tagger: "FactorialCRF", known: str | None) -> tuple[str, str | None]:
    """Return layer and column of ``--known``."""
    if known is None:
        return "", None
    name, _, column = known.partition("=")
    if name not in tagger.layers or not column:
        layers = ", ".join(tagger.layers)
        raise typer.BadParameter(
            f"--known must be LAYER=COLUMN, such as {tagger.layers[0]}=1, of {layers}; got {known!r}."
        )
    return name, column


def evaluate_layers(
    tagger: "FactorialCRF",
    layout: Layout,
    file: str,
    format: FileFormat,
    label: str | None,
    json: bool,
    name: str,
    page: str | None,
) -> None:
    """Compare all layers with the gold labels of a file; ``name`` is the model's directory."""
    if format not in (FileFormat.auto, FileFormat(layout.format)):
        layout = layers_layout(file, format, None, list(tagger.layers), label, None)
    elif label is not None:
        other = layers_layout(file, FileFormat(layout.format), None, list(tagger.layers), label, None)
        layout = replace(layout, label=other.label)
    corpus, gold = _with_names(tagger, file, layout)
    report = tagger.evaluate(corpus, gold)
    more = report_evaluation(page, tagger, report, file=file, name=name, sample=lambda: judged_part(corpus, gold))
    print(json_module.dumps(report.to_dict() | more) if json else report.summary())


def _with_names(tagger: "FactorialCRF", file: str, layout: Layout) -> Any:
    corpus, labels = read_layers(file, layout)
    return corpus, dict(zip(tagger.layers, labels, strict=True))
