"""``trelliswork train crf``: fit a CRF tagger to a file."""

import json as json_module
import time
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trelliswork.cli.corpora import FileFormat, Layout, labelled_parts, read_labelled, read_numbers, training_layout
from trelliswork.cli.options import (
    BeamOption,
    DevOption,
    FallOption,
    FormatOption,
    HashBitsOption,
    JsonOption,
    LabelledFile,
    LabelOption,
    MinCountOption,
    OutOption,
    PatienceOption,
    PenaltyOption,
    QuietOption,
    SeparatorOption,
)
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import ReportOption, part, report_training

if TYPE_CHECKING:
    from trelliswork.models import CRF
    from trelliswork.models.evidence import Known
    from trelliswork.report import Sample


class FeatureSet(StrEnum):
    """Which pairs of attribute and label have a weight."""

    observed = "observed"
    all = "all"


class SchemeChoice(StrEnum):
    """Label schemes."""

    auto = "auto"
    bio = "bio"
    bioes = "bioes"
    none = "none"


class AlgorithmChoice(StrEnum):
    """How to learn."""

    lbfgs = "lbfgs"
    sgd = "sgd"
    perceptron = "perceptron"


SCHEMES: dict[SchemeChoice, Literal["auto", "bio", "bioes"] | None] = {
    SchemeChoice.auto: "auto",
    SchemeChoice.bio: "bio",
    SchemeChoice.bioes: "bioes",
    SchemeChoice.none: None,
}


def train_crf(
    train: LabelledFile = None,
    out: OutOption = "crf-model",
    dev: DevOption = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[
        str | None, typer.Option(help="Columns that features see: 0,1 or form,xpos.", show_default="all")
    ] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    unknown_label: Annotated[
        str | None, typer.Option(help="Tokens with this label have none: learn from the others.")
    ] = None,
    alternatives: Annotated[
        str | None, typer.Option(help="Labels with this in them are sets: with '|', NN|VB may be either.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Preset (chunking, pos, ner, letters) or a CRF++ template file.",
            show_default="chunking if there are two columns, else pos",
        ),
    ] = None,
    min_count: MinCountOption = 1,
    hash_bits: HashBitsOption = None,
    feature_set: Annotated[
        FeatureSet, typer.Option(help="Weights for observed or for all pairs.")
    ] = FeatureSet.observed,
    scheme: Annotated[SchemeChoice, typer.Option(help="Allow only label pairs of this scheme.")] = SchemeChoice.auto,
    label_weight: Annotated[
        list[str] | None, typer.Option(help="LABEL=5: learn as if it were five times as frequent; may be repeated.")
    ] = None,
    sentence_weights: Annotated[
        str | None, typer.Option(help="File with how much each sentence counts: a number a line.")
    ] = None,
    algorithm: Annotated[
        AlgorithmChoice, typer.Option(help="L-BFGS, averaged SGD or averaged perceptron.")
    ] = AlgorithmChoice.lbfgs,
    order: Annotated[
        int, typer.Option(min=1, help="2 (3): weights for three (four) labels in a row too; mind --beam.")
    ] = 1,
    beam: BeamOption = None,
    l1: Annotated[float, typer.Option(min=0.0, help="L1 penalty.")] = 0.0,
    l2: PenaltyOption = 1.0,
    max_iter: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many iterations or epochs.", show_default="500; sgd 30, perceptron 10"),
    ] = None,
    tol: FallOption = 1e-5,
    patience: PatienceOption = 20,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Sentences a step, of sgd and perceptron.", show_default="8; 1")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="First step size of sgd.", show_default="found by trial")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the order in which sgd and perceptron see sentences.")] = 0,
    stream: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Read a column file in parts of so many sentences, for files that do not fit; "
            "with --hash-bits and sgd or perceptron.",
        ),
    ] = None,
    start: Annotated[str | None, typer.Option(help="Begin with the weights of this model.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Write the state of training to this file; if it is there, go on from it."),
    ] = None,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a CRF tagger. Ctrl-C stops after the current iteration and keeps what was learned.

    The file has a token a line, columns between white space, and an empty line after each sentence: the last column is
    the label (--label), the others are for the features (--columns). CoNLL-U and CRFsuite's format are read, too.
    Without a file the bundled corpus is. The model is a directory, which tag, evaluate, inspect and explore take.
    """
    from trelliswork.models import CRF
    from trelliswork.models.crf.training import ITERATIONS

    layout = training_layout(train, format, columns, label, separator)
    if layout.format == "crfsuite" and features is not None:
        raise typer.BadParameter("--features has no use for a file of ready attributes: leave it out.")
    model = CRF(
        features,
        l1=l1,
        l2=l2,
        feature_set=feature_set.value,
        scheme=SCHEMES[scheme],
        label_weight=_label_weights(label_weight or []),
        min_count=min_count,
        hash_bits=hash_bits,
        algorithm=algorithm.value,
        max_iter=max_iter,
        tol=tol,
        batch_size=batch_size,
        rate=rate,
        seed=seed,
        patience=patience,
        order=order,
        beam=None if beam == "none" else beam,
    )
    most = max_iter or ITERATIONS[algorithm.value]
    began = time.perf_counter()
    if stream is not None:
        refused = {
            "--dev": dev, "--start": start, "--checkpoint": checkpoint, "--sentence-weights": sentence_weights,
        }  # fmt: skip
        for name, value in refused.items():
            if value is not None:
                raise typer.BadParameter(f"{name} cannot be used with --stream.")
        n_sentences, n_tokens = _from_stream(model, train, layout, stream, most, quiet, unknown_label, alternatives)
        sample = partial(_first_part, train, layout, stream)
    else:
        corpus, labels = read_labelled(train, layout)
        if model.features is None and layout.format != "crfsuite":
            model.features = _default_features(layout)
        n_sentences, n_tokens = len(labels), sum(map(len, labels))
        development = read_labelled(dev, layout) if dev is not None else None
        y = _known(labels, unknown_label, alternatives)
        if development is not None and _known(development[1], unknown_label, alternatives) != development[1]:
            raise typer.BadParameter("every token of the --dev file needs its one label.")
        with training_progress(n_tokens, most, quiet) as callback:
            model.fit(
                corpus,
                y,
                sample_weight=None if sentence_weights is None else read_numbers(sentence_weights, len(labels)),
                dev=development,
                start=CRF.load(start) if start is not None else None,
                checkpoint=checkpoint,
                callback=callback,
            )
        sample = partial(part, development, corpus)
    model.input_ = layout.to_dict()
    model.save(out)
    report = model.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": n_sentences,
        "tokens": n_tokens,
        "labels": len(model.labels_),
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
        "objective": report.value,
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "beam": None if report.beam is None else vars(report.beam) | {"kept": report.beam.kept},
        "dev": max((step.dev for step in report.history if step.dev is not None), default=None),
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, sample)
    if json:
        print(json_module.dumps(outcome))
    else:
        print(
            f"{n_tokens:,} tokens, {outcome['labels']} labels, {outcome['active']:,} of {outcome['features']:,} "
            f"features active; objective {report.value:.4f} after {report.n_iter} iterations and "
            f"{outcome['seconds']:.1f} s ({report.reason}). Saved in {out}"
        )
        if report.beam is not None:
            print(f"beam {model.beam}: {report.beam}")


def _first_part(path: str | None, layout: Layout, size: int) -> "Sample":
    """The first sentences of a file that is too large to be held."""
    corpus, _ = next(labelled_parts(path, layout, size))
    return part(None, corpus)


def _default_features(layout: Layout) -> str:
    return "chunking" if len(layout.columns) == 2 else "pos"


def _label_weights(options: list[str]) -> dict[str, float] | None:
    weights = {}
    for option in options:
        name, _, number = option.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise typer.BadParameter(f"--label-weight must be LABEL=NUMBER, such as B-NP=2, got {option!r}.")
    return weights or None


def _known(
    labels: list[list[str]], unknown: str | None, alternatives: str | None
) -> "list[list[str]] | list[list[Known]]":
    """Labels with their sets and gaps, as the options tell them."""
    if unknown is None and alternatives is None:
        return labels

    def one(label: str) -> "Known":
        if label == unknown:
            return None
        return label.split(alternatives) if alternatives and alternatives in label else label

    return [[one(label) for label in sentence] for sentence in labels]


def _from_stream(
    model: "CRF",
    path: str | None,
    layout: Layout,
    size: int,
    epochs: int,
    quiet: bool,
    unknown: str | None,
    alternatives: str | None,
) -> tuple[int, int]:
    """Train part by part: once through the file for its labels, then once an epoch. Sentences and tokens."""
    from trelliswork.learning.lbfgs import FitReport, Step
    from trelliswork.models.crf.labels import label_vocabulary

    names: dict[str, None] = {}
    n_sentences = n_tokens = 0
    for _, labels in labelled_parts(path, layout, size):
        names |= dict.fromkeys(label_vocabulary(_known(labels, unknown, alternatives)))
        n_sentences += len(labels)
        n_tokens += sum(map(len, labels))
    if model.features is None:
        model.features = _default_features(layout)
    began = time.perf_counter()
    history: list[Step] = []
    with training_progress(n_tokens, epochs, quiet) as callback:
        for epoch in range(1, epochs + 1):
            loss = 0.0
            for corpus, labels in labelled_parts(path, layout, size):
                model.partial_fit(corpus, _known(labels, unknown, alternatives), labels=list(names))
                loss += model.report_.value
            active = int((model.weights_ != 0).sum())
            history.append(Step(epoch, loss, float("nan"), active, epoch, time.perf_counter() - began))
            if callback(history[-1], model.weights_):
                break
    reason = f"{epochs} epochs" if len(history) == epochs else "stopped by the caller"
    model.report_ = FitReport(False, reason, history[-1].value, history)
    return n_sentences, n_tokens
