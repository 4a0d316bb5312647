"""``trelliswork train parser``: fit a dependency parser to a treebank."""

import json as json_module
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from trelliswork.cli.options import DevOption, JsonOption, OutOption, QuietOption
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import ReportOption, part, report_training
from trelliswork.cli.use.parse import COLUMNS, check_tags, read_treebank
from trelliswork.errors import DataError

WORDS, TAGS = ("form", "lemma"), ("upos", "xpos", "feats")  # columns of CoNLL-U that may be named


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
    columns: Annotated[
        str, typer.Option(help="Columns of words (form, lemma) and of one or two kinds of tags (upos, xpos, feats).")
    ] = ",".join(COLUMNS),
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
    second_epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes of the second order.", show_default="3")
    ] = None,
    label_epochs: Annotated[int, typer.Option(min=1, help="Passes for labels.")] = 4,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences of a step.")] = 32,
    rate: Annotated[float, typer.Option(help="Learning rate of the first order.")] = 0.02,
    second_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the second order.", show_default="0.02")
    ] = None,
    label_rate: Annotated[float, typer.Option(help="Learning rate of labels.")] = 0.05,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.99,
            help="Pruning keeps arcs of this part of the best one's probability.",
            show_default="0.001",
        ),
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="Iterations of belief propagation.", show_default="5")
    ] = None,
    tree_every: Annotated[
        int | None, typer.Option(min=1, help="The tree factor takes part in every so manieth.", show_default="2")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0.0, help="Iterations end when no belief changes by more.", show_default="0.001"),
    ] = None,
    damping: Annotated[
        float | None, typer.Option(min=0.0, max=0.99, help="Share of the old messages in new ones.", show_default="0")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --dev: a stage stops after so many epochs without a better UAS.", show_default="3"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of sentences.")] = 0,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a dependency parser. Ctrl-C stops after the current epoch and keeps what was learned.

    The file is CoNLL-U; _ as a head says that it is not known. With --tagger the parser learns its own tags and then
    parses plain text. Without a file the bundled corpus is read. The model is a directory, which parse, evaluate,
    inspect and explore take.

    Example: trelliswork train parser train.conllu --tagger crf --out parser
    """
    from trelliswork.models import DependencyParser

    names = _columns(columns)
    second = {
        "second_epochs": second_epochs,
        "second_rate": second_rate,
        "threshold": threshold,
        "max_iter": max_iter,
        "tree_every": tree_every,
        "tolerance": tolerance,
        "damping": damping,
    }
    settings: dict[str, Any] = {name: value for name, value in second.items() if value is not None}
    if order == 1 and settings:
        options = ", ".join("--" + name.replace("_", "-") for name in settings)
        raise typer.BadParameter(f"{options}: of the second order only, leave out with --order 1.")
    settings["tagger"] = None if tagger == TaggerChoice.gold else tagger.value
    if patience is not None:
        if dev is None:
            raise typer.BadParameter("--patience waits for a better figure on development data: give --dev too.")
        settings["patience"] = patience
    model = DependencyParser(
        order,
        projective=not nonprojective,
        single_root=not multiroot,
        min_count=min_count,
        hash_bits=hash_bits,
        epochs=epochs,
        label_epochs=label_epochs,
        batch_size=batch_size,
        rate=rate,
        label_rate=label_rate,
        seed=seed,
        **settings,
    )
    began = time.perf_counter()
    corpus, heads, labels = _read(train, names, tags_needed=True)
    # With a tagger the tags of development data are not looked at.
    held: Any = None if dev is None else _read(dev, names, tags_needed=model.tagger is None)
    development = None if held is None else held[:2]
    with_labels = labels if any(name is not None for row in labels for name in row) else None
    total = epochs + (model.second_epochs if order == 2 else 0)
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
        "dev": model.dev_uas_,
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, model, outcome, lambda: part(held, corpus))
    if json:
        print(json_module.dumps(outcome))
        return
    print(
        f"{corpus.n_tokens:,} tokens, {outcome['labels']} labels, order {model.order_}, {outcome['active']:,} weights "
        f"in use; loss {report.value:.2f} after {report.n_iter} epochs and {outcome['seconds']:.1f} s "
        f"({report.reason}). Saved in {out}"
    )


def _columns(text: str) -> list[str]:
    """The names of the columns, of which the first holds words and the others tags."""
    names = text.split(",")
    if not 2 <= len(names) <= 3:
        raise typer.BadParameter(f"--columns must name words and one or two kinds of tags, got {text!r}.")
    if names[0] not in WORDS or not set(names[1:]) <= set(TAGS) or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"--columns must name words ({' or '.join(WORDS)}), then one or two of the tags {', '.join(TAGS)}, got "
            f"{text!r}."
        )
    return names


def _read(path: str | None, columns: list[str], tags_needed: bool) -> Any:
    """A treebank that has something to learn from."""
    corpus, heads, labels = read_treebank(path, columns)
    if all(head is None for row in heads for head in row):
        raise DataError(f"{path}: no word has a head: a parser learns from trees, whole or in part.")
    if tags_needed:
        check_tags(corpus, columns, str(path))
    return corpus, heads, labels
