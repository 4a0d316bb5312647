"""``trelliswork tag``, ``evaluate`` and ``inspect``: use a saved model."""

import json as json_module
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trelliswork.cli.corpora import FileFormat, Layout, read_labelled, read_unlabelled, write_tagged
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.models import CRF

Model = Annotated[str, typer.Argument(help="Directory of a saved model.")]


def tag(
    model: Model,
    file: Annotated[str, typer.Argument(help="File to tag; '-' is standard input.")] = "-",
    format: Annotated[
        FileFormat, typer.Option(help="Layout of the file; by default that of training.")
    ] = FileFormat.auto,
    marginals: Annotated[bool, typer.Option("--marginals", help="Add the probability of each label.")] = False,
    topk: Annotated[int, typer.Option(min=1, help="The so many best labellings of each sentence.")] = 1,
    known: Annotated[
        str | None,
        typer.Option(help="Column of labels that are known already, _ where none is: a number, or a CoNLL-U name."),
    ] = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Write here instead of standard output.")] = "-",
) -> None:
    """Tag a file: a column is added (CoNLL-U: the label column replaced).

    With --topk the labellings of a sentence stand one after the other as columns, and their probabilities, in
    that order and separated by commas, in one more column.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text
    """
    from trelliswork.data.files import atomic_write

    tagger = _load(model)
    layout = Layout(**tagger.input_)
    corpus, found, given = read_unlabelled(file, layout, format, known)
    if given is not None:
        _check_given(tagger, given)
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=given)
        extra = [[label for labellings in lists for label in _nth(labellings, k)] for k in range(max(map(len, lists)))]
        extra.append([",".join(f"{p:.6f}" for _, p in labellings) for labellings in lists for _ in labellings[0][0]])
    else:
        extra = [[label for labels in tagger.predict(corpus, known=given) for label in labels]]
        if marginals:
            rows = [token for sentence in tagger.predict_marginals(corpus, known=given) for token in sentence]
            extra.append([f"{row[label]:.6f}" for row, label in zip(rows, extra[0], strict=True)])
    with atomic_write(out) as stream:
        write_tagged(corpus, found, layout, extra, stream)


def _check_given(tagger: "CRF", given: list[list[str | None]]) -> None:
    for n, sentence in enumerate(given):
        for t, label in enumerate(sentence):
            if label is not None and label not in tagger.labels_:
                raise DataError(
                    f"sentence {n}, token {t}: {label!r} is given, but the model has no such label: "
                    f"{', '.join(tagger.labels_)}; _ says that none is known."
                )


def _nth(labellings: list[tuple[list[str], float]], k: int) -> list[str]:
    """The k-th labelling, or blanks if there are fewer."""
    return labellings[k][0] if k < len(labellings) else ["_"] * len(labellings[0][0])


def evaluate(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="Labelled file, laid out like the training file; or test, dev of the bundled corpus.")
    ] = "test",
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compare a tagger with gold labels: accuracy, spans, known and unknown words, mistakes.

    Example: trelliswork evaluate chunker test.txt --json
    """
    from trelliswork.data import Corpus
    from trelliswork.learning.metrics import evaluate_tagging

    tagger = _load(model)
    corpus, gold = read_labelled(file, Layout(**tagger.input_))
    words = corpus.sentences(0) if isinstance(corpus, Corpus) else None
    known = tagger.known_words()
    report = evaluate_tagging(gold, tagger.predict(corpus), words=words if known else None, known_words=known)
    print(json_module.dumps(report.to_dict()) if json else report.summary())


def inspect(
    model: Model,
    n: Annotated[int, typer.Option(min=1, help="How many weights to show.")] = 20,
    label: Annotated[str | None, typer.Option(help="Only features of this label.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a tagger has learned: its largest weights and how training ended.

    Example: trelliswork inspect chunker --label B-NP
    """
    tagger = _load(model)
    if label is not None and label not in tagger.labels_:
        raise typer.BadParameter(f"the model has no label {label!r}; it has {', '.join(tagger.labels_)}.")
    shown: dict[str, Any] = {
        "kind": tagger.kind,
        "labels": list(tagger.labels_),
        "scheme": tagger.scheme_,
        "features": len(tagger.weights_),
        "active": int((tagger.weights_ != 0).sum()),
        "objective": tagger.report_.value,
        "converged": tagger.report_.converged,
        "reason": tagger.report_.reason,
        "top_features": tagger.top_features(n, label),
        "top_transitions": tagger.top_transitions(n),
        "top_edge_features": tagger.top_edge_features(n),
    }
    if json:
        print(json_module.dumps(shown, ensure_ascii=False))
        return
    print(f"CRF, {len(shown['labels'])} labels, {shown['active']:,} of {shown['features']:,} features active")
    print(f"objective {shown['objective']:.4f} ({shown['reason']}); scheme {shown['scheme']}")
    print("labels: " + " ".join(shown["labels"]))
    print("\nweight   label       attribute")
    for attribute, name, weight in shown["top_features"]:
        print(f"{weight:7.3f}  {name:10}  {attribute}")
    print("\nweight   transition")
    for before, after, weight in shown["top_transitions"]:
        print(f"{weight:7.3f}  {before} -> {after}")
    if shown["top_edge_features"]:
        print("\nweight   transition  attribute")
    for attribute, before, after, weight in shown["top_edge_features"]:
        print(f"{weight:7.3f}  {before} -> {after}  {attribute}")
    sys.stdout.flush()


def _load(path: str) -> "CRF":
    from trelliswork.models import CRF

    return CRF.load(path)
