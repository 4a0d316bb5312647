"""``tag``, ``evaluate`` and ``inspect`` for models with several layers of labels."""

import json as json_module
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import typer

from trelliswork.cli.corpora import FileFormat, Layout, layers_layout, read_layers, read_unlabeled, write_tagged
from trelliswork.cli.reporting import judged_part, report_evaluation
from trelliswork.cli.use.tag_output import layered_labellings, write_json
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
    """Add the labels of every layer to a file, and with ``marginals`` their probabilities behind them; or JSON."""
    from trelliswork.data.files import atomic_write

    name, column = _known(tagger, known)
    corpus, found, given = read_unlabeled(file, layout, format, column)
    evidence: Any = None
    if given is not None:
        labels = next(layer.labels for layer in tagger.layers_ if layer.name == name)
        wrong = next((label for row in given for label in row if label is not None and label not in labels), None)
        if wrong is not None:
            raise DataError(f"{wrong!r} is given, but layer {name} has no such label; _ says that none is known.")
        evidence = {name: given}
    if json:
        answers = layered_labellings(tagger, cast("Corpus", corpus), evidence)
        with atomic_write(out) as stream:
            write_json(corpus, answers, stream)
        return
    predicted = tagger.predict_layers(corpus, known=evidence)
    extra = [[label for sentence in found_labels for label in sentence] for found_labels in predicted.values()]
    if marginals:
        for chosen, rows in zip(list(extra), tagger.predict_marginals(corpus, known=evidence).values(), strict=True):
            tokens = [token for sentence in rows for token in sentence]
            extra.append([f"{token[label]:.6f}" for token, label in zip(tokens, chosen, strict=True)])
    with atomic_write(out) as stream:
        write_tagged(corpus, found, layout, extra, stream)


def _known(tagger: "FactorialCRF", known: str | None) -> tuple[str, str | None]:
    """Layer and column of ``--known``."""
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
        chosen = layers_layout(file, FileFormat(layout.format), None, list(tagger.layers), label, None)
        layout = replace(layout, label=chosen.label)
    corpus, gold = _with_names(tagger, file, layout)
    report = tagger.evaluate(corpus, gold)
    told = report_evaluation(page, tagger, report, file=file, name=name, sample=lambda: judged_part(corpus, gold))
    print(json_module.dumps(report.to_dict() | told) if json else report.summary())


def _with_names(tagger: "FactorialCRF", file: str, layout: Layout) -> Any:
    corpus, labels = read_layers(file, layout)
    return corpus, dict(zip(tagger.layers, labels, strict=True))


def inspect_layers(tagger: "FactorialCRF", n: int, label: str | None, json: bool) -> None:
    """Show the largest weights of every layer and of the label pairs of tied layers."""
    layers = [layer for layer in tagger.layers_ if label is None or label in layer.labels]
    shown: dict[str, Any] = {
        "kind": tagger.kind,
        "engine": tagger.engine,
        "features": len(tagger.weights_),
        "active": int((tagger.weights_ != 0).sum()),
        "objective": tagger.report_.value,
        "converged": tagger.report_.converged,
        "reason": tagger.report_.reason,
        "layers": {
            layer.name: {
                "labels": list(layer.labels),
                "scheme": layer.scheme,
                "top_features": tagger.top_features(layer.name, n, label),
                "top_transitions": tagger.top_transitions(layer.name, n),
            }
            for layer in layers
        },
        "top_ties": tagger.top_ties(n),
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    print(f"factorial CRF, {len(tagger.layers)} layers, {shown['active']:,} of {shown['features']:,} features active")
    print(f"objective {shown['objective']:.4f} ({shown['reason']}); engine {shown['engine']}")
    for name, layer in shown["layers"].items():
        print(f"\nlayer {name}, {len(layer['labels'])} labels, scheme {layer['scheme']}")
        print("labels: " + " ".join(layer["labels"]))
        print("weight   label       attribute")
        for attribute, which, weight in layer["top_features"]:
            print(f"{weight:7.3f}  {which:10}  {attribute}")
        print("weight   transition")
        for before, after, weight in layer["top_transitions"]:
            print(f"{weight:7.3f}  {before} -> {after}")
    print("\nweight   labels of the same token")
    for one, left, two, right, weight in shown["top_ties"]:
        print(f"{weight:7.3f}  {one} {left} with {two} {right}")
