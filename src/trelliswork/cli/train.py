"""``trelliswork train``: fit a model to a file."""

import json as json_module
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trelliswork.cli.corpora import FileFormat, read_labelled, training_layout
from trelliswork.cli.running import report_errors

if TYPE_CHECKING:
    from trelliswork.learning.lbfgs import Step

app = typer.Typer(help="Fit a model to a file.", no_args_is_help=True, rich_markup_mode="rich")


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


SCHEMES: dict[SchemeChoice, Literal["auto", "bio", "bioes"] | None] = {
    SchemeChoice.auto: "auto",
    SchemeChoice.bio: "bio",
    SchemeChoice.bioes: "bioes",
    SchemeChoice.none: None,
}


@app.callback()
def _group() -> None:
    """Fit a model to a file."""


@app.command("crf", epilog="Example: trelliswork train crf train.txt --features chunking --out chunker")
@report_errors
def train_crf(
    train: Annotated[
        str | None,
        typer.Argument(help="Labelled file ('-': standard input, gzip welcome); the bundled corpus by default."),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Directory for the model.")] = "crf-model",
    format: Annotated[FileFormat, typer.Option(help="Layout of the file; by default by its name.")] = FileFormat.auto,
    columns: Annotated[
        str | None, typer.Option(help="Columns that features see: 0,1 or form,xpos.", show_default="all")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column of the labels: a number, or a CoNLL-U name.", show_default="last, or upos"),
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Between columns.", show_default="white space")] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Preset (chunking, pos, ner, letters) or a CRF++ template file.",
            show_default="chunking if there are two columns, else pos",
        ),
    ] = None,
    l1: Annotated[float, typer.Option(min=0.0, help="L1 penalty.")] = 0.0,
    l2: Annotated[float, typer.Option(min=0.0, help="L2 penalty.")] = 1.0,
    feature_set: Annotated[
        FeatureSet, typer.Option(help="Weights for observed or for all pairs.")
    ] = FeatureSet.observed,
    scheme: Annotated[SchemeChoice, typer.Option(help="Allow only label pairs of this scheme.")] = SchemeChoice.auto,
    min_count: Annotated[int, typer.Option(min=1, help="Drop attributes seen less often.")] = 1,
    max_iter: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 500,
    tol: Annotated[
        float, typer.Option(help="Stop when the objective falls by less (a fraction, in 10 iterations).")
    ] = 1e-5,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a CRF tagger. Ctrl-C stops after the current iteration and keeps what was learned."""
    from trelliswork.models import CRF

    layout = training_layout(train, format, columns, label, separator)
    corpus, labels = read_labelled(train, layout)
    n_tokens = sum(map(len, labels))
    if layout.format == "crfsuite":
        if features is not None:
            raise typer.BadParameter("--features has no use for a file of ready attributes: leave it out.")
    elif features is None:
        features = "chunking" if len(layout.columns) == 2 else "pos"
    model = CRF(
        features,
        l1=l1,
        l2=l2,
        feature_set=feature_set.value,
        scheme=SCHEMES[scheme],
        min_count=min_count,
        max_iter=max_iter,
        tol=tol,
    )
    began = time.perf_counter()
    with _progress(n_tokens, max_iter, quiet) as callback:
        model.fit(corpus, labels, callback=callback)
    model.input_ = layout.to_dict()
    model.save(out)
    report = model.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(labels),
        "tokens": n_tokens,
        "labels": len(model.labels_),
        "features": len(model.weights_),
        "active": int((model.weights_ != 0).sum()),
        "objective": report.value,
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "seconds": round(time.perf_counter() - began, 3),
    }
    if json:
        print(json_module.dumps(outcome))
    else:
        print(
            f"{n_tokens:,} tokens, {outcome['labels']} labels, {outcome['active']:,} of {outcome['features']:,} "
            f"features active; objective {report.value:.4f} after {report.n_iter} iterations and "
            f"{outcome['seconds']:.1f} s ({report.reason}). Saved in {out}"
        )


@contextmanager
def _progress(n_tokens: int, max_iter: int, quiet: bool) -> Iterator[Any]:
    """A progress bar on a terminal's stderr; gives the callback for training, which a Ctrl-C makes stop."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    stop: list[bool] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop:
            raise KeyboardInterrupt  # twice: at once
        stop.append(True)
        print("stopping after this iteration; what was learned will be saved (Ctrl-C again: drop it)", file=sys.stderr)

    shown = not quiet and sys.stderr.isatty()
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("reading features", total=max_iter)

        def callback(step: "Step", weights: Any) -> bool:
            rate = n_tokens * step.n_evaluations / max(step.seconds, 1e-9)
            bar.update(
                task,
                completed=step.iteration,
                description=f"objective {step.value:.2f}  |gradient| {step.gradient_norm:.3g}  "
                f"active {step.n_active:,}  {rate:,.0f} tokens/s",
            )
            return bool(stop)

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield callback
        finally:
            signal.signal(signal.SIGINT, before)
