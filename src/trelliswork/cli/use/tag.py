"""``trelliswork tag``: label a file with a saved tagger of one layer of labels or several."""

import json as json_module
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from trelliswork.cli.corpora import (
    ANNOTATED,
    FileFormat,
    Layout,
    format_for,
    naming_lines,
    read_unlabeled,
    write_tagged,
)
from trelliswork.cli.inputs import AWAITED, Inputs, say_what_is_awaited
from trelliswork.cli.options import (
    OtherBeamOption,
    OutputOption,
    TokenizeOption,
    TokenizerOption,
    TrainedFormatOption,
    bundled_option,
    chosen_tokenizer,
    set_beam,
)
from trelliswork.cli.use.loading import Model, check_columns, check_tokenized, load_for
from trelliswork.cli.use.parts import counted, done_with, parts_of
from trelliswork.cli.use.sharing import write_outputs
from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.data.files import Excerpt
    from trelliswork.data.schemes import Span

Labels = list[list[str]]


class TagDecide(StrEnum):
    """How one labeling is chosen from a posterior; see ``Tagger.predict``."""

    viterbi = "viterbi"
    posterior = "posterior"
    mbr_span = "mbr-span"


class Decision(NamedTuple):
    """How labels are chosen, and the least probability of an answer."""

    decoding: str
    least: float | None


def tag(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files to tag, plain or gzip. Default: standard input, '-'.", show_default=False),
    ] = None,
    bundled: Annotated[bool, bundled_option("test")] = False,
    format: TrainedFormatOption = FileFormat.auto,
    marginals: Annotated[bool, typer.Option("--marginals", help="Add the probability of each label.")] = False,
    spans: Annotated[
        bool,
        typer.Option(
            "--spans",
            help="Add a column with the spans that start at a token, such as NP:3 (type and number of words), for "
            "labels in BIO or BIOES; with --marginals NP:3:0.971, the probability of all their labels together.",
        ),
    ] = False,
    decode: Annotated[
        TagDecide,
        typer.Option(
            help="viterbi: most probable labeling. posterior: most probable label of each token. mbr-span: spans with "
            "the best expected F1."
        ),
    ] = TagDecide.viterbi,
    topk: Annotated[int, typer.Option(min=1, help="Number of best labelings per sentence.")] = 1,
    min_probability: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Give only answers of at least this probability: the words of other spans are O, other tags are _.",
            show_default=False,
        ),
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(
            help="Column of known labels, with _ for unknown ones: a number or a CoNLL-U name; for a layer of a "
            "factorial CRF: pos=1."
        ),
    ] = None,
    beam: OtherBeamOption = None,
    tokenize: TokenizeOption = False,
    tokenizer: TokenizerOption = None,
    out: OutputOption = "-",
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object per sentence and line: words, labels, probabilities of labels, and probability of "
            "the labeling. --spans adds spans: type, tokens [first, last + 1] and probability. --tokenize adds text, "
            "offset of the sentence, places of tokens, and start and end of spans, all in characters of the file.",
        ),
    ] = False,
) -> None:
    """Tag files: a column is added for each layer of labels (in CoNLL-U the label column is replaced).

    Sentences are written while others are read, in bounded memory; a pipe gets what was tagged when no more input has
    arrived.

    With --topk each labeling of a sentence is a column, and one more column has their probabilities in that order,
    separated by commas.

    With --tokenize the last column has the place of each token in the text, START:STOP in characters.

    Example: echo 'We tag words .' | trelliswork tag tagger --format text
    """
    from trelliswork.data.tokenize import TokenizedText, read_raw_text
    from trelliswork.models.tasks import LayeredTagger, Tagger

    if topk > 1 and marginals:
        raise typer.BadParameter("--topk prints probabilities of labelings, --marginals those of labels: choose one.")
    if topk > 1 and (spans or decode != TagDecide.viterbi or min_probability is not None):
        raise typer.BadParameter(
            "--topk gives the most probable labelings: leave --spans, --decode and --min-probability out."
        )
    tagger: Any = load_for(model, Tagger, "tag: expected a tagger (for a parser use trelliswork parse)")
    set_beam(tagger, beam)
    layout = Layout.of(tagger)
    layered = isinstance(tagger, LayeredTagger)
    if layered and topk > 1:
        raise typer.BadParameter("--topk needs a model with one layer of labels.")
    if spans or decode == TagDecide.mbr_span:
        _check_spans(tagger, model)
    layer, column = _known_layer(tagger, known) if layered else ("", known)
    source = Inputs.of(files, bundled, stdin=True)
    split = chosen_tokenizer(tokenize, tokenizer, format)
    if split is not None and known is not None:
        raise typer.BadParameter("--known names a column, which raw text does not have: leave --tokenize out.")
    how = Decision(decode.value, min_probability)
    kind = "text" if split is not None else str(format_for(layout, source, format))
    lines = kind == "text" and split is None

    def work(one: Inputs, stream: TextIO) -> int:
        n = 0
        for part, may_be_empty in counted(parts_of(one, kind, split), one, tagger):
            corpus, evidence = read(part, may_be_empty)
            with naming_lines(part, Layout("text", [], None) if lines else None, corpus):
                answer(part, corpus, evidence, stream)
            done_with(part, len(corpus), stream)
            n += len(corpus)
        return n

    def read(part: "Excerpt", may_be_empty: bool) -> "tuple[Corpus | AttributeCorpus, Any]":
        """Return the sentences of a part, and their known labels."""
        if split is not None:
            return read_raw_text(part, split=split, allow_empty=may_be_empty), None
        corpus, _, given = read_unlabeled(part, layout, format, column, allow_empty=may_be_empty)
        check_words(tagger, corpus, str(part))
        if lines:
            check_tokenized(tagger, corpus, part)
        elif kind == "columns" and layout.format == kind:
            check_columns(layout, corpus, part)
        return corpus, {layer: given} if layered and given is not None else given

    def answer(part: "Excerpt", corpus: "Corpus | AttributeCorpus", evidence: Any, stream: TextIO) -> None:
        """Write the answers for a part."""
        if json:
            answers = _answers(tagger, corpus, evidence, topk, how, spans) if len(corpus) else []
            stream.writelines(json_module.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
            return
        extra = _columns(tagger, corpus, evidence, topk, marginals, how) if len(corpus) else []
        if spans and len(corpus):
            extra += _span_columns(tagger, corpus, evidence, marginals, how)
        if isinstance(corpus, TokenizedText) and len(corpus) and kind not in ANNOTATED:
            places = zip(corpus.starts.tolist(), corpus.stops.tolist(), strict=True)
            extra.append([f"{start}:{stop}" for start, stop in places])
        write_tagged(corpus, kind, layout, extra, stream, part.notes)

    say_what_is_awaited(source, AWAITED["raw" if split is not None else kind])
    write_outputs(source, out, work, blank_lines=True if split is not None else Layout(kind, [], None).blank_lines)


def _columns(
    tagger: Any, corpus: "Corpus | AttributeCorpus", evidence: Any, topk: int, marginals: bool, how: Decision
) -> list[Sequence[str]]:
    """Return the new columns: labels, and probabilities if they are requested."""
    from trelliswork.models.tasks import LayeredTagger

    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=evidence)
        best = [[label for ranked in lists for label in _nth(ranked, k)] for k in range(topk)]
        return [*best, [",".join(f"{p:.6f}" for _, p in ranked) for ranked in lists for _ in ranked[0][0]]]
    if not marginals and not isinstance(tagger, LayeredTagger) and how.least is None:
        return [tagger.predict_flat(corpus, decoding=how.decoding, known=evidence)]
    layers, rows = _predict(tagger, corpus, evidence, how, marginals)
    layers = _confident(tagger, corpus, evidence, how, layers)
    extra: list[Sequence[str]] = [[label for sentence in labels for label in sentence] for labels in layers.values()]
    for labels, own in zip(list(extra), rows.values(), strict=False):  # no rows without --marginals
        tokens = [token for sentence in own for token in sentence]
        extra.append([f"{_p(token, label):.6f}" for token, label in zip(tokens, labels, strict=True)])
    return extra


def _predict(
    tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, how: Decision, marginals: bool = True
) -> tuple[dict[str, Labels], dict[str, Any]]:
    """Return labels and, if requested, marginals by layer; the name of a single layer is empty."""
    from trelliswork.models.tasks import LayeredTagger

    layered = isinstance(tagger, LayeredTagger)
    predict = tagger.predict_layers if layered else tagger.predict
    predicted = predict(corpus, decoding=how.decoding, known=known)
    labels: Any = predicted if layered else {"": predicted}
    if not marginals:
        return labels, {}
    rows = tagger.predict_marginals(corpus, known=known)
    return labels, rows if layered else {"": rows}


def _p(token: dict[str, float], label: str) -> float:
    """Return the probability of a label; that of the best one where it was left out."""
    return token[label] if label in token else max(token.values())


def _confident(
    tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, how: Decision, layers: dict[str, Labels]
) -> dict[str, Labels]:
    """Return labels by layer without improbable answers: O in such spans, ``_`` for tags."""
    if how.least is None:
        return layers
    from trelliswork.data.schemes import detect_scheme

    names = {layer.name: layer.labels for layer in getattr(tagger, "layers_", ())} or {"": tagger.labels_}
    spanned = [name for name, labels in names.items() if detect_scheme(labels) is not None]
    found = _spans(tagger, corpus, known, Decision(how.decoding, None)) if spanned else {}
    rows = tagger.predict_marginals(corpus, known=known) if len(spanned) < len(names) else {}
    result: dict[str, Labels] = {}
    for name, sentences in layers.items():
        if name not in spanned:
            own = rows[name] if name else rows
            result[name] = [
                [label if p[label] >= how.least else "_" for label, p in zip(*pair, strict=True)]
                for pair in zip(sentences, own, strict=True)
            ]
            continue
        result[name] = [list(labels) for labels in sentences]
        for labels, some in zip(result[name], found[name], strict=True):
            for (_, start, stop), p in some:
                if p < how.least:
                    labels[start:stop] = ["O"] * (stop - start)
    return result


def _spans(tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, how: Decision) -> dict[str, Any]:
    """Return the spans with their probabilities by layer; the name of a single layer is empty."""
    from trelliswork.models.tasks import LayeredTagger

    found: Any = tagger.predict_spans(corpus, decoding=how.decoding, known=known)
    by_layer = found if isinstance(tagger, LayeredTagger) else {"": found}
    least = how.least or 0.0
    return {name: [[one for one in row if one[1] >= least] for row in rows] for name, rows in by_layer.items()}


def _span_columns(
    tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, marginals: bool, how: Decision
) -> list[list[str]]:
    """Return a column for each layer: the spans that start at each token, ``_`` for none."""
    columns: list[list[str]] = []
    ends = corpus.offsets.tolist()
    by_layer = _spans(tagger, corpus, known, how)
    for name in tagger.layers if hasattr(tagger, "layers_") else [""]:
        found = by_layer.get(name, [[]] * len(corpus))
        cells: list[str] = []
        for row, first, last in zip(found, ends[:-1], ends[1:], strict=True):
            own = ["_"] * (last - first)
            for (type_, start, stop), p in row:
                own[start] = f"{type_}:{stop - start}" + (f":{p:.6f}" if marginals else "")
            cells += own
        columns.append(cells)
    return columns


def _check_spans(tagger: Any, model: str) -> None:
    """Raise an error if no labels of the tagger encode spans."""
    from trelliswork.data.schemes import detect_scheme

    sets = [layer.labels for layer in tagger.layers_] if hasattr(tagger, "layers_") else [tagger.labels_]
    if all(detect_scheme(labels) is None for labels in sets):
        raise DataError(f"{model}: --spans and --decode mbr-span need labels in BIO or BIOES, such as B-NP.")


def _answers(
    tagger: Any, corpus: "Corpus | AttributeCorpus", known: Any, topk: int, how: Decision, spans: bool
) -> list[dict[str, Any]]:
    """Return words, labels and probabilities of each sentence, or its ``topk`` best labelings.

    Files of ready attributes have no words.
    """
    from trelliswork.data import Corpus
    from trelliswork.data.tokenize import TokenizedText

    words: list[dict[str, Any]] = [{} for _ in range(len(corpus))]
    if isinstance(corpus, Corpus):
        words = [{"words": list(s)} for s in corpus.sentences(0)]
    if isinstance(corpus, TokenizedText):
        words = [w | corpus.located(n) for n, w in enumerate(words)]
    if topk > 1:
        lists = tagger.predict_topk(corpus, topk, known=known)
        best = [[{"labels": list(y), "probability": float(p)} for y, p in ranked] for ranked in lists]
        return [{**sentence, "labelings": some} for sentence, some in zip(words, best, strict=True)]
    layers, rows = _predict(tagger, corpus, known, how)
    found = _spans(tagger, corpus, known, how) if spans else {}
    whole = _probabilities(tagger, corpus, layers.get("", layers), known)
    layers = _confident(tagger, corpus, known, how, layers)
    answers: list[dict[str, Any]] = []
    for n, sentence in enumerate(words):
        labels = {name: list(own[n]) for name, own in layers.items()}
        chosen = {
            name: [float(_p(row, label)) for row, label in zip(rows[name][n], own, strict=True)]
            for name, own in labels.items()
        }
        answer: dict[str, Any] = {**sentence, "labels": labels.get("", labels), "probabilities": chosen.get("", chosen)}
        answer["probability"] = whole[n]
        if spans:
            listed: dict[str, Any] = {
                name: [_plain_span(s, p, sentence.get("places")) for s, p in own[n]] for name, own in found.items()
            }
            answer["spans"] = listed.get("", listed)
        answers.append(answer)
    return answers


def _plain_span(span: "Span", p: float, places: list[list[int]] | None) -> dict[str, Any]:
    """Return a span for JSON: its tokens from 0, the last one excluded, and in raw text its characters."""
    plain: dict[str, Any] = {"type": span.type, "tokens": [span.start, span.stop], "probability": p}
    return plain | ({} if places is None else {"start": places[span.start][0], "end": places[span.stop - 1][1]})


def _probabilities(tagger: Any, corpus: "Corpus | AttributeCorpus", labels: Any, known: Any) -> list[float | None]:
    """Return p(labeling | known labels); ``None`` where a lexicon excludes the known labels."""
    import numpy as np

    from trelliswork.models.tasks import LayeredTagger

    log_p = tagger.log_prob(corpus, labels)
    if known is not None:
        if isinstance(tagger, LayeredTagger):
            unknown = [[None] * len(sentence) for sentence in corpus.sentences(0)]  # type: ignore[union-attr]
            known = {name: known.get(name, unknown) for name in tagger.layers}
        evidence = tagger.log_prob(corpus, known)
        log_p = np.where(evidence > -np.inf, log_p - np.where(evidence > -np.inf, evidence, 0), np.nan)
    p = np.exp(np.minimum(log_p, 0.0))
    return [None if np.isnan(value) else float(value) for value in p]


def _known_layer(tagger: Any, known: str | None) -> tuple[str, str | None]:
    """Return layer and column of ``--known``."""
    if known is None:
        return "", None
    name, _, column = known.partition("=")
    if name not in tagger.layers or not column:
        layers = ", ".join(tagger.layers)
        raise typer.BadParameter(
            f"--known must be LAYER=COLUMN, such as {tagger.layers[0]}=1, of {layers}; got {known[:80]!r}."
        )
    return name, column


def _nth(ranked: list[tuple[list[str], float]], k: int) -> list[str]:
    """Return the k-th labeling, or blanks if there are fewer."""
    return ranked[k][0] if k < len(ranked) else ["_"] * len(ranked[0][0])


def check_words(tagger: Any, corpus: Any, file: str) -> None:
    """Raise an error if a tagger of words is given ready attributes."""
    from trelliswork.data import AttributeCorpus

    if isinstance(corpus, AttributeCorpus) and not hasattr(tagger, "features"):
        raise DataError(f"{file}: this tagger reads words, but the file has ready attributes.")
