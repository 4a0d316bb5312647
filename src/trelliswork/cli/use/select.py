"""``trelliswork select``: which sentences of a pool to label next."""

import sys
from typing import Annotated, Any, Literal

import typer

from trelliswork.cli.inputs import inputs_of
from trelliswork.cli.options import TrainedFormatOption, named, tell
from trelliswork.cli.use.loading import Model, load_for
from trelliswork.cli.use.tag import check_words
from trelliswork.compute.display import plural
from trelliswork.data.reading import FileFormat, Layout, read_unlabeled
from trelliswork.data.reading.inputs import Inputs


def select(
    model: Model,
    pool: Annotated[list[str], named("Files of sentences to choose from, in the format of training.")],
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of sentences.")] = 100,
    by: Annotated[
        Literal["entropy", "margin", "expected-gain"],
        typer.Option(
            help="entropy of each token; margin, 1 minus the difference of the two best answers; or expected-gain, "
            "what the labels of a sentence tell about the rest of the pool."
        ),
    ] = "entropy",
    diverse: Annotated[
        bool, typer.Option("--diverse", help="Words of sentences that were chosen before count half, a quarter, ...")
    ] = False,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Divide the value of a sentence by its length, for a budget of tokens.")
    ] = False,
    labeled: Annotated[
        list[str] | None,
        typer.Option(help="File that the model was trained on, for expected-gain; may be given several times."),
    ] = None,
    format: TrainedFormatOption = FileFormat.auto,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per sentence and line.")] = False,
) -> None:
    """Choose the sentences that are most useful to label next, by the uncertainty of a tagger or parser.

    Writes a line for each, best first: the file, the number of the sentence in it (from 1), its score, and its words,
    separated by tabs.

    Example: trelliswork select tagger pool.conllu -n 100 --by expected-gain --labeled train.conllu
    """
    from trelliswork.data import Corpus
    from trelliswork.integrations.selection import select as choose
    from trelliswork.models.tasks import TreeParser

    fitted = load_for(model, "predict_marginals", "give probabilities of tokens: expected a tagger or a parser")
    if isinstance(fitted, TreeParser) and fitted.constituents:
        raise typer.BadParameter("a grammar has no probabilities of tokens: select works with taggers and parsers.")
    files = inputs_of(pool).files
    parts = [_read(fitted, str(file), format) for file in files]
    places = [(str(file), k) for file, part in zip(files, parts, strict=True) for k in range(len(part))]
    corpus = _joined(parts)
    if labeled and by != "expected-gain":
        raise typer.BadParameter(f"--labeled is for --by expected-gain, not for --by {by}: leave it out.")
    known = _joined([_read(fitted, str(file), format) for file in inputs_of(labeled).files]) if labeled else None
    print(f"choosing from {plural(len(corpus), 'sentences')}", file=sys.stderr)
    chosen = choose(fitted, corpus, n, by=by, diverse=diverse, per_token=per_token, labeled=known)
    words = corpus.sentences(0) if isinstance(corpus, Corpus) else None
    for index, score in chosen:
        file, number = places[index]
        own = {} if words is None else {"words": words[index]}
        plain = {"file": file, "sentence": number + 1, "score": score, **own}
        tell(json, plain, f"{file}\t{number + 1}\t{score:.4f}\t{' '.join(own.get('words', ()))}")


def _joined(parts: list[Any]) -> Any:
    """Return the sentences of several files together."""
    from trelliswork.data import Corpus

    if all(isinstance(part, Corpus) for part in parts):
        return Corpus.joined(parts, len(parts[0].columns))
    if len(parts) > 1:
        raise typer.BadParameter("of files of ready attributes, select takes one at a time.")
    return parts[0]


def _read(model: Any, file: str, format: FileFormat) -> Any:
    """Return the sentences of a file as the model reads them."""
    from trelliswork.models.tasks import TreeParser

    if issubclass(type(model), TreeParser):
        from trelliswork.cli.treebanks import columns_of, read_treebank
        from trelliswork.data import Corpus

        treebank = read_treebank(Inputs((file,)), columns_of(model))[0]
        return treebank if model.tagger is None else Corpus(treebank.columns[:1], treebank.offsets)
    layout, source = Layout.of(model), Inputs((file,))
    given: Any = file
    if source.part:
        given = source.excerpt(layout.format if format == FileFormat.auto else str(format))
    corpus, _ = read_unlabeled(given, layout, format)
    check_words(model, corpus, file)
    return corpus
