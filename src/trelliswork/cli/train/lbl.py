"""``trelliswork train kneser-ney`` and ``train lbl``: left-to-right language models."""

import json as json_module
import math
import time
from typing import Annotated, Any

import typer

from trelliswork.cli.count import reading_progress
from trelliswork.cli.options import JsonOption, OutOption, QuietOption
from trelliswork.cli.progress import bar, interruptible
from trelliswork.cli.reporting import ReportOption, report_training, text_part

TextFiles = Annotated[
    list[str] | None,
    typer.Argument(
        help="Text files, plain or gzip, one sentence a line, or directories of them; else the bundled corpus."
    ),
]
DevText = Annotated[
    str | None, typer.Option(help="Development text (or dev of the bundled corpus): its perplexity is told.")
]
MinCount = Annotated[int, typer.Option(min=1, help="Words seen less often are <unk>.")]
MaxWords = Annotated[int | None, typer.Option(min=1, help="Only so many words, others are <unk>.", show_default="all")]


def train_kneser_ney(
    train: TextFiles = None,
    out: OutOption = "kneser-ney",
    order: Annotated[int, typer.Option(min=1, help="A word depends on so many less one before it.")] = 5,
    min_count: MinCount = 1,
    max_words: MaxWords = None,
    dev: DevText = None,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train an n-gram language model with interpolated modified Kneser-Ney smoothing.

    Text has one sentence a line, words between white space; gzip is welcome, and so are directories of such files.
    Without a file the bundled corpus is read. The model is a directory, which score, evaluate and explore take.
    """
    from trelliswork.models.baselines import KneserNey

    began = time.perf_counter()
    model = KneserNey(order, min_count=min_count, max_words=max_words)
    with reading_progress(quiet) as callback:
        model.fit(_text(train), callback=callback)
    outcome = {"model": out, "words": len(model.vocabulary_), "ngrams": model.n_ngrams()}
    _finish(model, out, outcome, train, dev, began, page, json)


def train_lbl(
    train: TextFiles = None,
    out: OutOption = "lbl",
    dev: Annotated[
        str | None,
        typer.Option(help="Development text (or dev of the bundled corpus): stop early, keep the best epoch."),
    ] = None,
    distances: Annotated[int, typer.Option(min=1, help="A word depends on so many before it.")] = 2,
    rank: Annotated[int, typer.Option(min=1, help="Length of the vectors.")] = 100,
    rate: Annotated[float, typer.Option(help="AdaGrad's step size.")] = 0.1,
    l2: Annotated[float, typer.Option("--l2", min=0.0, help="L2 penalty.")] = 3.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Tokens a batch.")] = 1000,
    max_iter: Annotated[int, typer.Option(min=1, help="Epochs at most.")] = 30,
    minutes: Annotated[float | None, typer.Option(help="Minutes at most.", show_default="no limit")] = None,
    patience: Annotated[int, typer.Option(min=1, help="Stop after so many epochs without a better figure.")] = 3,
    min_count: MinCount = 1,
    max_words: MaxWords = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random numbers.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a log-bilinear language model. Ctrl-C stops after the epoch and keeps what was learned.

    Text has one sentence a line, words between white space; gzip is welcome, and so are directories of such files.
    Without a file the bundled corpus is read. The model is a directory, which score, evaluate and explore take.
    """
    from trelliswork.models.baselines import LogBilinear

    began = time.perf_counter()
    model = LogBilinear(
        distances,
        rank,
        rate=rate,
        l2=l2,
        batch_size=batch_size,
        max_iter=max_iter,
        max_seconds=None if minutes is None else 60 * minutes,
        patience=patience,
        min_count=min_count,
        max_words=max_words,
        seed=seed,
    )
    with bar("first epoch", max_iter, quiet) as show, interruptible() as stopped:

        def callback(epoch: Any) -> bool:
            about = f"training perplexity {math.exp(-epoch.train):.1f}"
            if epoch.dev is not None:
                about += f"  dev {math.exp(-epoch.dev):.1f}"
            show(epoch.iteration, about)
            return stopped()

        model.fit(_text(train), dev=_development(dev), callback=callback)
    outcome = {"model": out, "words": len(model.vocabulary_), "epochs": len(model.history_), "reason": model.reason_}
    _finish(model, out, outcome, train, dev, began, page, json)


def _text(files: list[str] | None) -> Any:
    """Text files, or the bundled training part."""
    return files if files else _development("train")


def _development(name: str | None) -> Any:
    """A text file, or a part of the bundled corpus."""
    from trelliswork.data import bundled

    return [list(s.words) for s in bundled.load(name)] if name in bundled.SPLITS else name


def _finish(
    model: Any,
    out: str,
    outcome: dict[str, Any],
    train: list[str] | None,
    dev: str | None,
    began: float,
    page: str | None,
    json: bool,
) -> None:
    """Save, and tell what was learned."""
    model.input_ = {}
    model.save(out)
    outcome["dev_perplexity"] = None if dev is None else model.perplexity(_development(dev))
    outcome["seconds"] = round(time.perf_counter() - began, 3)
    report_training(page, model, outcome, lambda: text_part(_development(dev), _text(train)))
    if json:
        print(json_module.dumps(outcome))
        return
    about = "" if dev is None else f", perplexity {outcome['dev_perplexity']:.2f} per token on {dev}"
    print(f"{outcome['words']:,} words{about}. Saved in {out}")
