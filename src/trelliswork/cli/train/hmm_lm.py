"""``trelliswork train hmm-lm``: fit an HMM language model to text; and how ``inspect`` shows one."""

import json as json_module
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, read_words, words_layout
from trelliswork.cli.options import FormatOption, JsonOption, OutOption, QuietOption
from trelliswork.cli.progress import bar, duration, interruptible
from trelliswork.cli.reporting import ReportOption, part, report_training

if TYPE_CHECKING:
    from trelliswork.models import HMMLanguageModel
    from trelliswork.models.hmm_lm.training import LMStep


class ParameterisationChoice(StrEnum):
    """How transitions are made."""

    softmax = "softmax"
    kernel = "kernel"


class FeatureMapChoice(StrEnum):
    """Features of the kernel."""

    exp = "exp"
    exp_norm = "exp-norm"
    relu = "relu"


class ProjectionChoice(StrEnum):
    """Directions of the features."""

    learned = "learned"
    fixed = "fixed"
    redrawn = "redrawn"


class StartChoice(StrEnum):
    """What states are at first."""

    words = "words"
    clusters = "clusters"


class ScheduleChoice(StrEnum):
    """How the learning rate falls."""

    plateau = "plateau"
    linear = "linear"


def train_hmm_lm(
    train: Annotated[
        str | None,
        typer.Argument(help="Text, one sentence a line ('-': standard input); the bundled corpus by default."),
    ] = None,
    out: OutOption = "hmm-lm-model",
    dev: Annotated[
        str | None, typer.Option(help="Development text: keep the best, lower the rate, stop early.")
    ] = None,
    format: FormatOption = FileFormat.auto,
    states: Annotated[int, typer.Option(min=1, help="Hidden states.")] = 512,
    parameterisation: Annotated[
        ParameterisationChoice, typer.Option(help="Dense transitions, or of low rank by a kernel.")
    ] = ParameterisationChoice.softmax,
    features: Annotated[int, typer.Option(min=1, help="Features of the kernel: the rank.")] = 256,
    feature_map: Annotated[FeatureMapChoice, typer.Option(help="Of the kernel.")] = FeatureMapChoice.exp,
    projection: Annotated[
        ProjectionChoice, typer.Option(help="Directions of the features: learned, random, or redrawn each batch.")
    ] = ProjectionChoice.learned,
    orthogonal: Annotated[
        bool, typer.Option("--orthogonal/--independent", help="Whether random directions are orthogonal.")
    ] = True,
    band: Annotated[int, typer.Option(min=0, help="Kernel: neighbours with transitions of their own.")] = 0,
    clusters: Annotated[
        int | None, typer.Option(min=1, help="Brown clusters of words, each with its own block of states.")
    ] = None,
    hidden: Annotated[int, typer.Option(min=1, help="Size of embeddings.")] = 256,
    min_count: Annotated[int, typer.Option(min=1, help="Rarer words are <unk>.")] = 1,
    epochs: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Words of a batch.")] = 2048,
    learning_rate: Annotated[float, typer.Option(help="Of AdamW.")] = 0.003,
    schedule: Annotated[
        ScheduleChoice, typer.Option(help="A quarter of the rate when nothing is gained, or a straight fall to 0.")
    ] = ScheduleChoice.plateau,
    state_dropout: Annotated[float, typer.Option(min=0.0, max=0.99, help="States a batch leaves out.")] = 0.1,
    feature_dropout: Annotated[float, typer.Option(min=0.0, max=0.99, help="Features a batch leaves out.")] = 0.0,
    start: Annotated[
        StartChoice | None,
        typer.Option(
            help="States begin by frequencies of words, or as clusters of tokens.",
            show_default="clusters with a kernel",
        ),
    ] = None,
    em_iterations: Annotated[int, typer.Option(min=0, help="Dense: so many of EM first.")] = 0,
    evaluations: Annotated[int, typer.Option(min=1, help="Validations an epoch.")] = 4,
    patience: Annotated[int, typer.Option(min=1, help="Validations without gain before the rate falls.")] = 4,
    stop_after: Annotated[int, typer.Option(min=1, help="Validations without gain before training ends.")] = 12,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="File that holds the run; if it is there, training goes on from it.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random numbers.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train an HMM language model. Ctrl-C stops at the next validation and keeps the best that was learned.

    Text has one sentence a line, words between white space; gzip is welcome, '-' is standard input.
    Without a file the bundled corpus is read. The model is a directory, which score, evaluate, sample, inspect and
    explore take.
    """
    from trelliswork.models import HMMLanguageModel

    layout = words_layout(train, FileFormat.text if train and format == FileFormat.auto else format, None, None)
    corpus = read_words(train, layout)
    held = None if dev is None else read_words(dev, layout)
    options: dict[str, Any] = {  # the choices of enumerations as plain words
        "parameterisation": parameterisation.value,
        "feature_map": feature_map.value,
        "projection": projection.value,
        "schedule": schedule.value,
        "start": None if start is None else start.value,
    }
    model = HMMLanguageModel(
        states,
        n_features=features,
        orthogonal=orthogonal,
        band=band,
        clusters=clusters,
        hidden=hidden,
        min_count=min_count,
        max_epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=learning_rate,
        state_dropout=state_dropout,
        feature_dropout=feature_dropout,
        em_iterations=em_iterations,
        evaluations=evaluations,
        patience=patience,
        stop_after=stop_after,
        max_seconds=None if minutes is None else 60 * minutes,
        seed=seed,
        **options,
    )
    began = time.perf_counter()
    with lm_progress(epochs, quiet) as callback:
        model.fit(corpus, dev=held, checkpoint=checkpoint, callback=callback)
    model.input_ = layout.to_dict()
    model.save(out)
    report, last = model.report_, model.report_.history[-1]
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "words": len(model.vocabulary_),
        "states": states,
        "rank": features if parameterisation == ParameterisationChoice.kernel else None,
        "epochs": last.progress,
        "perplexity": last.perplexity,
        "dev_perplexity": report.dev_perplexity,
        "converged": report.converged,
        "reason": report.reason,
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: part(None if held is None else (held,), corpus))
    if json:
        print(json_module.dumps(outcome))
        return
    judged = f"training perplexity {last.perplexity:.2f}"
    if report.dev_perplexity is not None:
        judged += f", development {report.dev_perplexity:.2f}"
    print(
        f"{corpus.n_tokens:,} tokens, {outcome['words']:,} words, {states} states: {judged} after {last.progress:g} "
        f"epochs and {outcome['seconds']:.1f} s ({report.reason}). Saved in {out}"
    )


@contextmanager
def lm_progress(max_epochs: int, quiet: bool) -> Iterator[Any]:
    """A progress bar in hundredths of epochs; gives the callback, which a Ctrl-C makes stop."""
    with bar("first batches", 100 * max_epochs, quiet) as show, interruptible() as stopped:

        def callback(step: "LMStep") -> bool:
            show(round(100 * step.progress), describe(step, max_epochs))
            return stopped()

        yield callback


def describe(step: "LMStep", max_epochs: int) -> str:
    """One line about a validation; the time left is that until the last epoch, training may well end before."""
    parts = [f"epoch {step.progress:.2f}", f"perplexity {step.perplexity:.1f}"]
    if step.dev_perplexity is not None:
        parts.append(f"dev {step.dev_perplexity:.1f}")
    left = step.seconds / step.progress * (max_epochs - step.progress)
    parts += [f"{step.tokens / max(step.seconds, 1e-9):,.0f} tokens/s", f"at most {duration(left)} left"]
    return "  ".join(parts)


def inspect_states(model: "HMMLanguageModel", n: int, label: str | None, plot: str | None, json: bool) -> None:
    """The most used states with their words, and the spectrum of the transition matrix.

    ``label`` is one state, ``#7``; ``plot`` draws the singular values.
    """
    frequencies = model.state_frequencies()
    if label is not None:
        number = label.removeprefix("#")
        if not number.isdecimal() or int(number) >= model.n_states_:
            raise typer.BadParameter(f"the model has no state {label!r}; it has #0 to #{model.n_states_ - 1}.")
        chosen = [int(number)]
    else:
        chosen = (-frequencies).argsort(kind="stable")[:n].tolist()
    spectrum = model.transition_spectrum()
    if plot is not None:
        from trelliswork.report.pictures import curves

        x = [float(k + 1) for k in range(len(spectrum))]
        lines = [("singular values", x, spectrum.tolist())]
        curves(lines, plot, title="Transition matrix", axes=("number", "singular value"))
    shown: dict[str, Any] = {
        "kind": model.kind,
        "states": model.n_states_,
        "words": len(model.vocabulary_),
        "rank": int((spectrum > 1e-5).sum()),
        "spectrum": spectrum[:n].tolist(),
        "dev_perplexity": model.report_.dev_perplexity,
        "reason": model.report_.reason,
        "top_words": {f"#{z}": model.top_words(z, n) for z in chosen},
        "frequency": {f"#{z}": float(frequencies[z]) for z in chosen},
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    print(f"HMM language model, {shown['states']} states, {shown['words']:,} words ({shown['reason']})")
    print(f"transition matrix: {shown['rank']} singular values above 1e-5; " + _numbers(shown["spectrum"]))
    for name, words in shown["top_words"].items():
        listed = "  ".join(f"{word} {p:.3f}" for word, p in words)
        print(f"\n{name}, {100 * shown['frequency'][name]:.2f} % of tokens\n  {listed}")
    if plot is not None:
        print(f"\nsingular values drawn in {plot}")


def _numbers(values: list[float]) -> str:
    return "the first are " + " ".join(f"{value:.3f}" for value in values)
