"""``trelliswork train mrf-tagger``: fit a Markov random field of tags and words to a file; ``inspect`` it."""

import json as json_module
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, read_labeled, training_layout
from trelliswork.cli.options import (
    DevOption,
    FallOption,
    FormatOption,
    JsonOption,
    LabeledFile,
    LabelOption,
    OutOption,
    PatienceOption,
    PenaltyOption,
    QuietOption,
    SeparatorOption,
)
from trelliswork.cli.progress import training_progress
from trelliswork.cli.reporting import ReportOption, part, report_training
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.models.mrf_tagger import MRFTagger


def train_mrf_tagger(
    train: LabeledFile = None,
    out: OutOption = "mrf-tagger",
    dev: DevOption = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
    distances: Annotated[int, typer.Option(min=1, max=3, help="Tie tags up to so far apart.")] = 1,
    words: Annotated[int, typer.Option(min=1, help="Words that a tag is tied to, the nearest first.")] = 1,
    l2: PenaltyOption = 1.0,
    rare: Annotated[int, typer.Option(min=0, help="Words seen at most so often are known by affixes and shape.")] = 5,
    dictionary: Annotated[
        bool, typer.Option("--dictionary", help="Give words of the training part only tags that they had there.")
    ] = False,
    max_iter: Annotated[int, typer.Option(min=1, help="At most so many iterations.")] = 100,
    tol: FallOption = 1e-3,
    patience: PatienceOption = 20,
    page: ReportOption = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> None:
    """Train a tagger by the joint likelihood of tags and words. Ctrl-C keeps what was learned so far.

    The bundled corpus has words, tags and chunk labels: without a file its tags are learned.
    """
    from trelliswork.data import Corpus
    from trelliswork.models.mrf_tagger import MRFTagger

    if train is None and label is None:
        label = "1"
    layout = training_layout(
        train, format, columns if columns is not None or train is not None else "0", label, separator
    )
    began = time.perf_counter()
    corpus, tags = read_labeled(train, layout)
    if not isinstance(corpus, Corpus):
        raise DataError(f"{train}: this tagger reads words, this file has ready attributes.")
    development: Any = None
    if dev is not None:
        development = read_labeled(dev, layout)
    tagger = MRFTagger(
        distances, words, l2=l2, rare=rare, dictionary=dictionary, max_iter=max_iter, tol=tol, patience=patience
    )
    with training_progress(corpus.n_tokens, max_iter, quiet) as callback:
        tagger.fit(corpus, tags, dev=development, callback=callback)
    tagger.input_ = layout.to_dict()
    tagger.save(out)
    report = tagger.report_
    outcome: dict[str, Any] = {
        "model": out,
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "tags": len(tagger.tags_),
        "words": len(tagger.known_words()),
        "bound": tagger.bound_,
        "kind": "exact" if distances == words == 1 else "lower",
        "iterations": report.n_iter,
        "converged": report.converged,
        "reason": report.reason,
        "dev": max((step.dev for step in report.history if step.dev is not None), default=None),
        "seconds": round(time.perf_counter() - began, 3),
    }
    report_training(page, tagger, outcome, lambda: part(development, corpus))
    if json:
        print(json_module.dumps(outcome))
    else:
        print(
            f"{outcome['tokens']:,} tokens, {outcome['tags']} tags, {outcome['words']:,} words; joint log-likelihood "
            f"{'' if outcome['kind'] == 'exact' else 'at least '}{tagger.bound_:.4f} a position after "
            f"{report.n_iter} iterations and {outcome['seconds']:.1f} s ({report.reason}). Saved in {out}"
        )


def inspect_mrf_tagger(tagger: "MRFTagger", n: int, label: str | None, json: bool) -> None:
    """Show the largest weights of words' features, and the tags that follow each other."""
    if label is not None and label not in tagger.tags_:
        raise typer.BadParameter(f"the model has no label {label!r}; it has {', '.join(tagger.tags_)}.")
    shown: dict[str, Any] = {
        "kind": tagger.kind,
        "labels": list(tagger.tags_),
        "words": len(tagger.known_words()),
        "bound": tagger.bound_,
        "cover": tagger.cover_weights_.tolist(),
        "converged": tagger.report_.converged,
        "reason": tagger.report_.reason,
        "top_features": tagger.top_features(n, label),
        "top_transitions": tagger.top_transitions(n),
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    print(f"MRF tagger, {len(shown['labels'])} tags, {shown['words']:,} words ({shown['reason']})")
    print("labels: " + " ".join(shown["labels"]))
    print("\nweight   label       feature")
    for feature, name, weight in shown["top_features"]:
        print(f"{weight:7.3f}  {name:10}  {feature}")
    print("\nscore    transition")
    for before, after, weight in shown["top_transitions"]:
        print(f"{weight:7.3f}  {before} -> {after}")
