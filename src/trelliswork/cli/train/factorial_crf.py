"""``trelliswork train factorial-crf``: fit a tagger of several layers of labels to a file."""

import json as json_module
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, layers_layout, read_layers
from trelliswork.cli.options import (
    DevOption,
    FallOption,
    FormatOption,
    HashBitsOption,
    JsonOption,
    LabeledFile,
    MinCountOption,
    OutOption,
    PatienceOption,
    PenaltyOption,
    QuietOption,
    SeparatorOption,
)
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import ReportOption, part, report_training
from trelliswork.cli.train.crf import FeatureSet


class EngineChoice(StrEnum):
    """How sums over labellings are found."""

    bp = "bp"
    structured_mean_field = "structured_mean_field"
    exact = "exact"


class LayerScheme(StrEnum):
    """Label schemes."""

    auto = "auto"
    none = "none"


def train_factorial(
    train: LabeledFile = None,
    layers: Annotated[
        str, typer.Option(help="Names of the layers of labels, in the order of their columns.")
    ] = "pos,chunk",
    out: OutOption = "factorial-model",
    dev: DevOption = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns that features see: 0 or form.", show_default="all but the labels, or form"),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Columns of the layers: 1,2 or xpos,misc.", show_default="the last ones, or CoNLL-U's of these names"
        ),
    ] = None,
    separator: SeparatorOption = None,
    features: Annotated[
        str, typer.Option(help="Preset (pos, ner, chunking, letters) or a CRF++ template file.")
    ] = "pos",
    min_count: MinCountOption = 1,
    hash_bits: HashBitsOption = None,
    feature_set: Annotated[
        FeatureSet, typer.Option(help="Weights for observed or for all pairs.")
    ] = FeatureSet.observed,
    scheme: Annotated[
        LayerScheme, typer.Option(help="auto: layers in BIO or BIOES allow nothing else.")
    ] = LayerScheme.auto,
    engine: Annotated[
        EngineChoice, typer.Option(help="Belief propagation, structured mean field, or exact.")
    ] = EngineChoice.bp,
    l2: PenaltyOption = 1.0,
    max_iter: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 500,
    tol: FallOption = 1e-5,
    tolerance: Annotated[float, typer.Option(help="A sentence's sweeps end when no marginal moves by more.")] = 1e-3,
    max_sweeps: Annotated[int, typer.Option(min=1, help="Sweeps at most.")] = 50,
    damping: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="The part of the old messages that bp keeps.")
    ] = 0.0,
    patience: PatienceOption = 20,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a tagger of several layers at once. Ctrl-C stops after the current iteration and keeps what was learned.

    The file has a token a line and an empty line after each sentence: the last columns are the layers, in the order of
    --layers, the others are for the features; of CoNLL-U, the columns of these names. Without a file the bundled
    corpus is read. The model is a directory, which tag, evaluate, inspect and explore take.
    """
    from trelliswork.models import FactorialCRF

    names = layers.split(",")
    layout = layers_layout(train, format, columns, names, labels, separator)
    model = FactorialCRF(
        tuple(names),
        features,
        engine=engine.value,
        l2=l2,
        feature_set=feature_set.value,
        scheme="auto" if scheme == LayerScheme.auto else None,
        min_count=min_count,
        hash_bits=hash_bits,
        max_iter=max_iter,
        tol=tol,
        tolerance=tolerance,
        max_sweeps=max_sweeps,
        damping=damping,
        patience=patience,
    )
    began = time.perf_counter()
    corpus, given = read_layers(train, layout)
    n_tokens = corpus.n_tokens
    development: Any = None
    if dev is not None:
        words, rows = read_layers(dev, layout)
        development = (words, dict(zip(names, rows, strict=True)))
    with training_progress(n_tokens, max_iter, quiet) as callback:
        model.fit(corpus, dict(zip(names, given, strict=True)), dev=development, callback=callback)
    model.input_ = layout.to_dict()
    model.save(out)
    report = model.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(corpus),
        "tokens": n_tokens,
        "labels": {layer.name: len(layer.labels) for layer in model.layers_},
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
        "objective": report.value,
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "dev": max((step.dev for step in report.history if step.dev is not None), default=None),
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: part(development, corpus))
    if json:
        print(json_module.dumps(outcome))
    else:
        sizes = ", ".join(f"{size} {name} labels" for name, size in outcome["labels"].items())
        print(
            f"{n_tokens:,} tokens, {sizes}, {outcome['active']:,} of {outcome['features']:,} features active; "
            f"objective {report.value:.4f} after {report.n_iter} iterations and {outcome['seconds']:.1f} s "
            f"({report.reason}). Saved in {out}"
        )
