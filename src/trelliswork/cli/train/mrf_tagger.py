"""``trelliswork train mrf-tagger``: train a Markov random field of tags and words on a file; ``inspect`` it."""

import json as json_module
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, read_labeled, training_layout
from trelliswork.cli.options import FormatOption, LabeledFile, LabelOption, SeparatorOption
from trelliswork.cli.reporting import part
from trelliswork.cli.train.command import Job

if TYPE_CHECKING:
    from trelliswork.models.mrf_tagger import MRFTagger


def run(
    job: Job,
    model: "MRFTagger",
    train: LabeledFile = None,
    format: FormatOption = FileFormat.auto,
    columns: Annotated[str | None, typer.Option(help="Column of the words.", show_default="0, or form")] = None,
    label: LabelOption = None,
    separator: SeparatorOption = None,
) -> dict[str, Any]:
    """Train a tagger by the joint likelihood of tags and words. Ctrl-C stops after the current iteration and saves it.

    The file has one token per line and an empty line after each sentence: words are the first column, tags the last;
    CoNLL-U is read as well. Without a file the tags of the bundled corpus are used. The model is a directory for tag,
    evaluate, inspect and explore.
    """
    from trelliswork.data import Corpus

    if train is None and label is None:
        label = "1"
    layout = training_layout(
        train, format, columns if columns is not None or train is not None else "0", label, separator
    )
    corpus, tags = read_labeled(train, layout)
    if not isinstance(corpus, Corpus):
        raise typer.BadParameter("this tagger reads words: a file of ready attributes is for train crf.")
    dev = None if job.dev is None else read_labeled(job.dev, layout)
    job.fit(model, corpus, tags, n_tokens=corpus.n_tokens, total=model.max_iter, dev=dev)
    job.sample = partial(part, dev, corpus)
    model.input_ = layout.to_dict()
    return {
        "sentences": len(corpus),
        "tokens": corpus.n_tokens,
        "labels": len(model.labels_),
        "words": len(model.known_words()),
        "bound": model.bound_,
        "bound_kind": "exact" if model.order == model.n_words == 1 else "lower",
    }


def inspect_mrf_tagger(tagger: "MRFTagger", n: int, label: str | None, json: bool) -> None:
    """Print the largest weights of word features, and of pairs of neighboring tags."""
    if label is not None and label not in tagger.labels_:
        raise typer.BadParameter(f"the model has no label {label!r}; it has {', '.join(tagger.labels_)}.")
    shown: dict[str, Any] = {
        "kind": tagger.kind,
        "labels": list(tagger.labels_),
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
