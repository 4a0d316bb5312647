"""``trelliswork train parser``: fit a dependency parser to a treebank."""

import json as json_module
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from trelliswork.cli.options import DevOption, JsonOption, OutOption, PatienceOption, QuietOption
from trelliswork.cli.parse import read_treebank
from trelliswork.cli.progress import training_progress


class TaggerChoice(StrEnum):
    """Where tags come from."""

    gold = "gold"
    crf = "crf"
    hmm = "hmm"


def train_parser(
    train: Annotated[
        str | None,
        typer.Argument(help="CoNLL-U file with trees ('-': standard input); the bundled corpus by default."),
    ] = None,
    out: OutOption = "parser-model",
    dev: DevOption = None,
    order: Annotated[int, typer.Option(min=1, max=2, help="2: siblings and grandparents too.")] = 2,
    columns: Annotated[str, typer.Option(help="Columns of words and of one or two kinds of tags.")] = "form,upos,xpos",
    tagger: Annotated[
        TaggerChoice, typer.Option(help="Tags of the file, or of our own tagger, trained and saved with the parser.")
    ] = TaggerChoice.gold,
    nonprojective: Annotated[bool, typer.Option("--nonprojective", help="Arcs may cross.")] = False,
    multiroot: Annotated[bool, typer.Option("--multiroot", help="Several words may hang from the root.")] = False,
    min_count: Annotated[int, typer.Option(min=1, help="Words seen less often are known by their shape only.")] = 2,
    hash_bits: Annotated[
        int, typer.Option(min=8, max=30, help="Features are hashed to 2^N weights of each kind.")
    ] = 22,
    epochs: Annotated[int, typer.Option(min=1, help="Passes of the first order.")] = 3,
    second_epochs: Annotated[int, typer.Option(min=1, help="Passes of the second order.")] = 3,
    label_epochs: Annotated[int, typer.Option(min=1, help="Passes for labels.")] = 4,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences of a step.")] = 32,
    rate: Annotated[float, typer.Option(help="Learning rate of the first order.")] = 0.02,
    second_rate: Annotated[float, typer.Option(help="Learning rate of the second order.")] = 0.02,
    threshold: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Pruning keeps arcs of this part of the best one's probability.")
    ] = 1e-3,
    max_iter: Annotated[int, typer.Option(min=1, help="Iterations of belief propagation.")] = 5,
    patience: PatienceOption = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of sentences.")] = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a dependency parser. Ctrl-C stops after the current epoch and keeps what was learned."""
    from trelliswork.models import DependencyParser

    names = columns.split(",")
    if not 2 <= len(names) <= 3:
        raise typer.BadParameter(f"--columns must name words and one or two kinds of tags, got {columns!r}.")
    model = DependencyParser(
        order,
        projective=not nonprojective,
        single_root=not multiroot,
        tagger=None if tagger == TaggerChoice.gold else tagger.value,  # type: ignore[arg-type]
        min_count=min_count,
        hash_bits=hash_bits,
        epochs=epochs,
        second_epochs=second_epochs,
        label_epochs=label_epochs,
        batch_size=batch_size,
        rate=rate,
        second_rate=second_rate,
        threshold=threshold,
        max_iter=max_iter,
        patience=patience,
        seed=seed,
    )
    began = time.perf_counter()
    corpus, heads, labels = read_treebank(train, names)
    development: Any = None if dev is None else read_treebank(dev, names)[:2]
    with_labels = labels if any(name is not None for row in labels for name in row) else None
    total = epochs + (second_epochs if order == 2 else 0)
    with training_progress(corpus.n_tokens, total, quiet) as callback:
        model.fit(corpus, heads, with_labels, dev=development, callback=callback)
    model.input_ = {"columns": names}
    model.save(out)
    report = model.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "labels": 0 if model.labels_ is None else len(model.labels_),
        "order": model.order_,
        "active": sum(int((w != 0).sum()) for w in model.weights_),
        "dropped_heads": model.n_dropped_,
        "objective": report.value,
        "epochs": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "dev": max((step.dev for step in report.history if step.dev is not None), default=None),
        "seconds": round(time.perf_counter() - began, 3),
    }
    if json:
        print(json_module.dumps(outcome))
        return
    print(
        f"{corpus.n_tokens:,} tokens, {outcome['labels']} labels, order {model.order_}, {outcome['active']:,} weights "
        f"in use; loss {report.value:.2f} after {report.n_iter} epochs and {outcome['seconds']:.1f} s "
        f"({report.reason}). Saved in {out}"
    )
