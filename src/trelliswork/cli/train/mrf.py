"""``trelliswork train mrf``: fit a Markov random field language model to text or to its counts."""

import json as json_module
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.options import FallOption, JsonOption, OutOption, PatienceOption, PenaltyOption, QuietOption
from trelliswork.cli.progress import bar, interruptible
from trelliswork.cli.reporting import ReportOption, report_training, text_part

if TYPE_CHECKING:
    from trelliswork.data.moments.text import CountStep
    from trelliswork.learning.lbfgs import Step


class FormChoice(StrEnum):
    """What the tables are made of."""

    uw = "UW"
    urw = "URW"
    full = "full"


class BoundChoice(StrEnum):
    """Covers of the field."""

    chain = "chain"
    star = "star"


class AlgorithmChoice(StrEnum):
    """How it is learned."""

    lifted = "lifted"
    pseudo = "pseudo-likelihood"


def train_mrf(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, plain or gzip, one sentence a line, or directories of them; else the bundled corpus."
        ),
    ] = None,
    counts: Annotated[
        str | None, typer.Option(help="Directory of counts (trelliswork data count) instead of text.")
    ] = None,
    out: OutOption = "mrf-model",
    dev: Annotated[
        str | None, typer.Option(help="Development text, or a directory of its counts: stop early, keep the best.")
    ] = None,
    distances: Annotated[
        int | None,
        typer.Option(
            "--distances", "-K", min=1, help="Tie words up to so far apart.", show_default="2, or those of the counts"
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Dimensions of embeddings; not of --form full.")] = 30,
    form: Annotated[FormChoice, typer.Option(help="Tables U W_l, U R_l W, or a score for each pair.")] = FormChoice.uw,
    unary: Annotated[
        bool, typer.Option("--unary/--no-unary", help="Scores of single words; without them training takes longer.")
    ] = True,
    bias: Annotated[
        bool, typer.Option("--bias/--no-bias", help="A bias of right words in the tables; adds up to a unary.")
    ] = False,
    bound: Annotated[BoundChoice, typer.Option(help="Cover by chains, or by the paper's stars.")] = BoundChoice.chain,
    weights: Annotated[
        str | None, typer.Option(help="Of the chains, such as 0.8,0.2; at most 1 together.", show_default="equal")
    ] = None,
    algorithm: Annotated[
        AlgorithmChoice, typer.Option(help="From counts, or p(word | neighbours) from text.")
    ] = AlgorithmChoice.lifted,
    start: Annotated[str | None, typer.Option(help="Model of the same words and rank to begin with.")] = None,
    l2: PenaltyOption = 5.0,
    min_count: Annotated[int, typer.Option(min=1, help="Only words seen as often; others are <unk>.")] = 1,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Only the so many most frequent words.", show_default="all")
    ] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 300,
    tol: FallOption = 1e-4,
    memory: Annotated[int, typer.Option(min=1, help="Pairs of steps that L-BFGS remembers.")] = 10,
    patience: PatienceOption = 20,
    epochs: Annotated[int, typer.Option(min=1, help="Of pseudo-likelihood, at most.")] = 5,
    rate: Annotated[float, typer.Option(min=1e-9, help="Of pseudo-likelihood: the size of its steps.")] = 2e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="Of pseudo-likelihood: words of a step.")] = 512,
    checkpoint: Annotated[
        str | None, typer.Option(help="File to go on from after an interruption or Ctrl-C; removed at the end.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random numbers.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a Markov random field language model. Ctrl-C stops after the current iteration and keeps what was learned.

    Before the first iteration is done, as while text is counted, Ctrl-C ends at once. Options that have no meaning for
    an algorithm or form are refused.

    Example: trelliswork train mrf train.txt --dev dev.txt --distances 1 --rank 100 --out model
    """
    from trelliswork.data.moments import Moments
    from trelliswork.models import MRFLanguageModel

    if files and counts is not None:
        raise typer.BadParameter("give text files or --counts, not both.")
    began = time.perf_counter()
    given: Any = files if files else _bundled("train") if counts is None else Moments.load(counts)
    if counts is not None and distances not in (None, given.K):
        raise typer.BadParameter(f"{counts} has pairs at distances 1 to {given.K}: leave --distances {distances} out.")
    if counts is not None and (min_count > 1 or max_words is not None):
        raise typer.BadParameter("the counts say which words there are: leave --min-count and --max-words out.")
    model = MRFLanguageModel(
        given.K if isinstance(given, Moments) else 2 if distances is None else distances,
        rank,
        form=form.value,
        unary=unary,
        bias=bias,
        bound=bound.value,
        weights=None if weights is None else _numbers(weights),
        algorithm=algorithm.value,
        l2=l2,
        min_count=min_count,
        max_words=max_words,
        max_iter=max_iter,
        tol=tol,
        memory=memory,
        patience=patience,
        epochs=epochs,
        rate=rate,
        batch_size=batch_size,
        seed=seed,
    )
    total = max_iter if algorithm == AlgorithmChoice.lifted else 10 * epochs
    with bound_progress(total, quiet) as (callback, counting):
        model.fit(
            given,
            dev=_development(dev),
            start=None if start is None else MRFLanguageModel.load(start),
            checkpoint=checkpoint,
            callback=callback,
            counting=counting,
        )
    model.input_ = {"format": "text", "columns": [], "label": None} if files or counts is not None else {}
    model.save(out)
    report, lifted = model.report_, algorithm == AlgorithmChoice.lifted
    best = max((step.dev for step in report.history if step.dev is not None), default=None)
    outcome: dict[str, Any] = {
        "model": out,
        "words": len(model.vocabulary_) - 1,
        "tokens": model.n_tokens_,
        "positions": model.n_positions_,
        "distances": model.K,
        "unary": model.unary,
        "bias": model.bias,
        "bound": model.bound_,
        "per": "position" if lifted else "word",
        "objective": report.value,
        "dev": best,
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: text_part(_development(dev), given))
    if json:
        print(json_module.dumps(outcome))
        return
    what = "log-likelihood" if model.bound_ == "exact" else f"{model.bound_} bound"
    shown = f"{what} a position, less the penalty," if lifted else "pseudo-log-likelihood a word"
    print(
        f"{model.n_tokens_:,} tokens, {outcome['words']:,} words: {shown} {-report.value:.4f}"
        + (f", of the development text {best:.4f}" if best is not None else "")
        + f" after {report.n_iter} iterations and {outcome['seconds']:.1f} s ({report.reason}). Saved in {out}"
    )


@contextmanager
def bound_progress(total: int, quiet: bool) -> Iterator[tuple[Any, Any]]:
    """A progress bar for training on a bound; gives the callbacks of training and of counting.

    A Ctrl-C makes training stop and keep what it learned, from its first iteration on: before, there is nothing to
    keep, and it ends the command at once.
    """
    with bar("counting", total, quiet) as show, ExitStack() as stack:
        asked: list[Callable[[], bool]] = []

        def counting(step: "CountStep") -> None:
            rate = step.n_tokens / max(step.seconds, 1e-9)
            about = f"{step.n_tokens:,} tokens, {rate:,.0f} tokens/s" if step.n_tokens else "reading"
            show(0, f"counting: {about}, {step.done / max(step.total, 1):.0%}")

        def callback(step: "Step", parameters: Any) -> bool:
            parts = [f"objective {step.value:.4f}"]
            if not math.isnan(step.gradient_norm):
                parts.append(f"|gradient| {step.gradient_norm:.3g}")
            if step.dev is not None:
                parts.append(f"dev {step.dev:.4f}")
            parts.append(f"{step.seconds / max(step.n_evaluations, 1):.2f} s a pass")
            left = step.seconds / step.iteration * (total - step.iteration)
            show(step.iteration, "  ".join([*parts, f"at most {left / 60:.0f} min left"]))
            if not asked:
                asked.append(stack.enter_context(interruptible()))
            return asked[0]()

        yield callback, counting


def _bundled(split: str) -> list[list[str]]:
    from trelliswork.data import bundled

    return [list(s.words) for s in bundled.load(split)]


def _development(path: str | None) -> Any:
    from trelliswork.data import bundled
    from trelliswork.data.moments import Moments

    if path is None:
        return None
    if path in bundled.SPLITS:
        return _bundled(path)
    return Moments.load(path) if (Path(path) / "moments.json").is_file() else path


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"numbers separated by commas wanted, such as 0.8,0.2, got {text!r}.") from None
