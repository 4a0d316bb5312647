"""``trelliswork tag`` and ``evaluate``: use a saved tagger."""

import json as json_module
from typing import Annotated, Any

import typer

from trelliswork.cli.corpora import (
    FileFormat,
    Layout,
    evaluation_layout,
    read_labeled,
    read_unlabeled,
    write_tagged,
)
from trelliswork.cli.options import OtherBeamOption, set_beam
from trelliswork.cli.reporting import ReportOption, judged_part, report_evaluation
from trelliswork.cli.use.constituents import evaluate_constituents, saved_kind
from trelliswork.cli.use.factorial import evaluate_layers, tag_layers
from trelliswork.cli.use.parse import evaluate_parser
from trelliswork.cli.use.tag_output import labellings, write_json
from trelliswork.errors import DataError

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
        typer.Option(
            help="Column of labels that are known already, _ where none is: a number, or a CoNLL-U name; "
            "of a layer of a factorial CRF: pos=1."
        ),
    ] = None,
    beam: OtherBeamOption = None,
    out: Annotated[str, typer.Option("--out", "-o", help="Write here instead of standard output.")] = "-",
    json: Annotated[
        bool, typer.Option("--json", help="An object a line for each sentence: words, labels, probabilities.")
    ] = False,
) -> None:
    """Tag a file: a column is added for each layer of labels (CoNLL-U: the label column replaced).

    With --topk the labellings of a sentence stand one after the other as columns, and their probabilities, in
    that order and separated by commas, in one more column.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text
    """
    from trelliswork.data import AttributeCorpus
    from trelliswork.data.files import atomic_write

    if topk > 1 and marginals:
        raise typer.BadParameter("--topk tells probabilities of labellings, --marginals those of labels: choose one.")
    if json and marginals:
        raise typer.BadParameter("--json has the probabilities of labels anyway: leave --marginals out.")
    tagger: Any = _load(model)  # all kinds take what was checked to suit them
    if tagger.kind == "parser":
        raise typer.BadParameter("this model is a parser: use trelliswork parse.")
    set_beam(tagger, beam)
    layout = Layout.of(tagger)
    if tagger.kind == "factorial-crf":
        if topk > 1:
            raise typer.BadParameter("--topk is for models with one layer of labels.")
        tag_layers(tagger, layout, file, format, marginals, known, out, json)
        return
    corpus, found, given = read_unlabeled(file, layout, format, known)
    if given is not None:
        _check_given(_labels(tagger), given)
    if tagger.kind in ("hmm", "mrf-tagger") and isinstance(corpus, AttributeCorpus):
        raise DataError(f"{file}: this tagger reads words, this file has ready attributes.")
    if json:
        answers = labellings(tagger, corpus, given, topk)
        with atomic_write(out) as stream:
            write_json(corpus, answers, stream)
        return
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


def _check_given(labels: list[str], given: list[list[str | None]]) -> None:
    for n, sentence in enumerate(given):
        for t, label in enumerate(sentence):
            if label is not None and label not in labels:
                raise DataError(
                    f"sentence {n}, token {t}: {label!r} is given, but the model has no such label: "
                    f"{', '.join(labels)}; _ says that none is known."
                )


def _nth(labellings: list[tuple[list[str], float]], k: int) -> list[str]:
    """The k-th labelling, or blanks if there are fewer."""
    return labellings[k][0] if k < len(labellings) else ["_"] * len(labellings[0][0])


def evaluate(
    model: Model,
    file: Annotated[
        str, typer.Argument(help="Labelled file, laid out like the training file; or test, dev of the bundled corpus.")
    ] = "test",
    format: Annotated[
        FileFormat, typer.Option(help="Layout of the file; by default that of training.")
    ] = FileFormat.auto,
    label: Annotated[
        str | None,
        typer.Option(
            help="Column of the labels, if not that of training: a number, or a CoNLL-U name; of several layers 1,2."
        ),
    ] = None,
    beam: OtherBeamOption = None,
    page: ReportOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compare a tagger with gold labels: accuracy, spans, known and unknown words, mistakes.

    Of several layers: each of them, and the accuracy of all labels of a token together.
    Of a grammar: brackets against those of trees, left- and right-branching ones beside it.
    Of induced states: many-to-one and one-to-one accuracy, V-measure and variation of information.
    Of a language model: log evidence and perplexity of a text.

    Example: trelliswork evaluate chunker test.txt --json
    """
    from trelliswork.data import Corpus
    from trelliswork.metrics.induction import InductionReport, evaluate_induction
    from trelliswork.metrics.tagging import TaggingReport, evaluate_tagging

    if saved_kind(model) in ("hmm-lm", "kneser-ney", "lbl", "mrf-lm"):
        from trelliswork.cli.use.generate import evaluate_text

        if label is not None:
            raise typer.BadParameter("a language model is judged by its perplexity: leave --label out.")
        evaluate_text(model, file, format, beam, json, page)
        return
    if saved_kind(model) == "pcfg":
        if label is not None or beam is not None or format != FileFormat.auto:
            raise typer.BadParameter("a grammar is compared with bracketed trees: leave --label, --beam, --format out.")
        evaluate_constituents(model, file, json, page)
        return
    tagger: Any = _load(model)
    set_beam(tagger, beam)
    if tagger.kind == "parser":
        evaluate_parser(tagger, file, format, label, json, model, page)
        return
    if tagger.kind == "factorial-crf":
        evaluate_layers(tagger, Layout.of(tagger), file, format, label, json, model, page)
        return
    corpus, gold = read_labeled(file, evaluation_layout(Layout.of(tagger), file, format, label))
    if tagger.kind in ("hmm", "mrf-tagger") and not isinstance(corpus, Corpus):
        raise DataError(f"{file}: this tagger reads words, this file has ready attributes.")
    predicted = tagger.predict(corpus)
    report: TaggingReport | InductionReport
    if getattr(tagger, "induced_", False):
        report = evaluate_induction(gold, predicted)
    else:
        words = corpus.sentences(0) if isinstance(corpus, Corpus) else None
        known = tagger.known_words()
        report = evaluate_tagging(gold, predicted, words=words if known else None, known_words=known)
    told = report_evaluation(page, tagger, report, file=file, name=model, sample=lambda: judged_part(corpus, gold))
    print(json_module.dumps(report.to_dict() | told) if json else report.summary())


def _load(path: str) -> Any:
    from trelliswork.models import load

    model = load(path)
    if not hasattr(model, "predict"):
        raise DataError(f"{path}: a model of kind {model.kind!r} does not tag: a tagger or parser is wanted.")
    return model


def _labels(tagger: Any) -> list[str]:
    return list(tagger.labels_)
