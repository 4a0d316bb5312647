"""What ``tag`` and ``parse`` write: ``--output`` names the form, ``--with`` what is added to labels and trees."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.answers import Answer, Want
    from trelliswork.data import Corpus
    from trelliswork.data.reading import Layout

HEAD, DEPREL, DEPS, MISC = 6, 7, 8, 9  # columns of CoNLL-U
ARC_PROBABILITY, SUBTREE_PROBABILITY, TREE_PROBABILITY = "ArcProb=", "SubtreeProb=", "# tree_prob ="
Cells = dict[int, str]  # column and its new value
Version = tuple[str, list[Cells]]  # of a sentence: a comment, and new cells of its words


Form = Literal["columns", "conllu", "jsonl", "json"]
OBJECTS = ("jsonl", "json")  # forms that are JSON
FormOption = Annotated[
    Form | None,
    typer.Option(
        "--output",
        help="columns: one token per line. conllu. jsonl: one JSON object per sentence and line. json: one array.",
        show_default="like the input",
    ),
]


def with_option(help: str) -> Any:
    """Return the option ``--with``."""
    return typer.Option("--with", metavar="PARTS", help=f"What to add, separated by commas: {help}", show_default=False)


def wanted(text: str | None, parts: Sequence[str]) -> "Want":
    """Return what ``--with`` asks for; a model of a task has some parts."""
    from trelliswork.answers import Want

    chosen: dict[str, Any] = {}
    for part in text.split(",") if text is not None else ():
        name, _, value = part.strip().partition("=")
        number = value.isdecimal() and value.isascii() and 0 < int(value) < 1 << 31
        if name not in parts or (name == "topk") != bool(number) or name in chosen or bool(value) != bool(number):
            names = ", ".join("topk=K" if name == "topk" else name for name in parts)
            raise typer.BadParameter(f"--with takes {names}, each once and separated by commas; got {part[:80]!r}.")
        chosen[name] = int(value) if number else True
    return Want(**chosen)


class Objects:
    """Answers as JSON: one object per line, or one array."""

    def __init__(self, stream: TextIO, array: bool) -> None:
        self._stream, self._array, self._n = stream, array, 0

    def write(self, answers: "Iterable[Answer]", corpus: Any) -> None:
        """Write answers for the sentences of a corpus, those of raw text with their places."""
        from trelliswork.answers import to_json
        from trelliswork.data.tokenize import TokenizedText

        located = corpus.located if isinstance(corpus, TokenizedText) else None
        for n, answer in enumerate(answers):
            text = to_json(answer.to_dict(None if located is None else located(n)))
            before = ("[\n" if self._n == 0 else ",\n") if self._array else ""
            self._stream.write(before + text + ("" if self._array else "\n"))
            self._n += 1

    def close(self) -> None:
        """Write the end of an array."""
        if self._array:
            self._stream.write("\n]\n" if self._n else "[]\n")


def trees_of(answer: "Answer", want: "Want") -> list[Version]:
    """Return the trees of a sentence for CoNLL-U: the tree, or the k best ones."""
    from trelliswork.answers import arc_probabilities

    if answer.alternatives is None:
        ps = answer.probabilities if want.marginals else None
        comment = "" if answer.log_prob is None else f"{TREE_PROBABILITY} {answer.probability:.6f}\n"
        return [(comment, _tree_cells(answer.value, ps, answer.subtrees))]
    return [
        (
            f"{TREE_PROBABILITY} {p:.6f}\n",
            _tree_cells(tree, arc_probabilities(tree, answer.outcomes) if want.marginals else None, None),
        )
        for tree, p in answer.alternatives
    ]


def _tree_cells(tree: Any, arcs: Sequence[float] | None, subtrees: Sequence[float] | None) -> list[Cells]:
    """Return the new cells of each word."""
    rows: list[Cells] = [{HEAD: str(head), DEPREL: label or "_", DEPS: "_"} for head, label in tree]
    for name, ps in ((ARC_PROBABILITY, arcs), (SUBTREE_PROBABILITY, subtrees)):
        for row, p in zip(rows, ps or (), strict=False):
            row[MISC] = "|".join([*([row[MISC]] if MISC in row else []), f"{name}{p:.4f}"])
    return rows


def write_tagged(
    corpus: Any,
    format: str,
    form: Form | None,
    layout: "Layout",
    columns: Sequence[Sequence[str]],
    out: TextIO,
    notes: Any,
) -> None:
    """Write tagged sentences, a part with ``notes`` of a file of a format: with new columns, or with cells replaced.

    CoNLL-U has one column for each layer; further values are appended to it after a bar. Without a form it is annotated
    text with other spans.
    """
    from trelliswork.data.columns import write_columns_with
    from trelliswork.data.conllu import COLUMNS, write_conllu_with

    if form is None:
        _write_spans(corpus, columns[0] if columns else [], out, notes)
        return
    if form == "columns":
        if format == form:
            write_columns_with(corpus, columns, out, layout.separator, notes=notes)
        else:
            _write_words(corpus, columns, out)
        return
    names = ["upos"] if isinstance(layout.label, int | None) else layout.labels()
    if not all(isinstance(name, str) for name in names):
        raise DataError("the model was trained on a column file, so its layers have no CoNLL-U columns.")
    D = len(names)
    cells = [["|".join(values) for values in zip(*columns[d::D], strict=True)] for d in range(D)]
    if format == form:
        write_conllu_with(corpus, dict(zip(names, cells, strict=True)), out)
        return
    rows = [dict(zip(map(COLUMNS.index, names), row, strict=True)) for row in zip(*cells, strict=True)]
    _write_new(corpus, [[("", rows[a:b])] for a, b in pairwise(corpus.offsets.tolist())], out)


def _write_spans(corpus: Any, labels: Sequence[str], out: TextIO, notes: Any) -> None:
    """Write annotated text with the spans of labels; each token is a span if they are plain tags."""
    from trelliswork.data.annotations import write_spans
    from trelliswork.data.schemes import Span, detect_scheme, lenient_spans

    rows = [labels[a:b] for a, b in pairwise(corpus.offsets.tolist())]
    plain = detect_scheme(labels) is None and set(labels) - {"O"}
    read = (lambda row: [Span(tag, t, t + 1) for t, tag in enumerate(row)]) if plain else lenient_spans
    write_spans(corpus, [read(row) for row in rows], out, header=not notes.get("sentences"))


def _write_words(corpus: Any, columns: Sequence[Sequence[str]], out: TextIO) -> None:
    """Write words, one per line, with new columns, and their places in raw text; ready attributes have no words."""
    from trelliswork.data import AttributeCorpus
    from trelliswork.data.tokenize import TokenizedText

    words = [] if isinstance(corpus, AttributeCorpus) else [corpus.columns[0]]
    places = []
    if isinstance(corpus, TokenizedText):
        places = [list(map("{}:{}".format, corpus.starts.tolist(), corpus.stops.tolist()))]
    rows = list(zip(*words, *columns, *places, strict=True)) if len(corpus) else []
    for start, stop in pairwise(corpus.offsets.tolist()):
        out.writelines("\t".join(row) + "\n" for row in rows[start:stop])
        out.write("\n")


def write_trees(corpus: "Corpus", versions: Iterable[list[Version]], out: TextIO) -> None:
    """Write the words of sentences, one per line, with head, label and probabilities."""
    for words, trees in zip(corpus.sentences(0), versions, strict=True):
        for comment, rows in trees:
            out.write(comment)
            for word, row in zip(words, rows, strict=True):
                ps = [part.partition("=")[2] for part in row.get(MISC, "").split("|") if part]
                out.write("\t".join([word, row[HEAD], row[DEPREL], *ps]) + "\n")
            out.write("\n")


def write_conllu(corpus: "Corpus", versions: Iterable[list[Version]], out: TextIO) -> None:
    """Write CoNLL-U: the lines of a file with new cells, or words of plain or raw text."""
    (_write_new if corpus.raw is None else _write_again)(corpus, versions, out)


def _write_new(corpus: "Corpus", versions: Iterable[list[Version]], out: TextIO) -> None:
    """Write CoNLL-U for sentences that were read from plain or raw text."""
    from trelliswork.data.tokenize import TokenizedText

    raw = corpus if isinstance(corpus, TokenizedText) else None
    for n, (start, some) in enumerate(zip(corpus.offsets.tolist(), versions, strict=False)):
        for comment, rows in some:
            out.write(comment)
            if raw is not None:
                out.write(f"# text = {raw.sentence_text(n)}\n")
                for i, row in enumerate(rows, start=start):
                    kept = [row[MISC]] if MISC in row else []
                    places = [f"TokenRange={raw.starts[i]}:{raw.stops[i]}"]
                    row[MISC] = "|".join([*kept, *([] if raw.space_after(i) else ["SpaceAfter=No"]), *places])
            for i, row in enumerate(rows, start=start):
                cells = {0: str(i - start + 1), 1: corpus.columns[0][i], **row}
                out.write("\t".join(cells.get(c, "_") for c in range(10)) + "\n")
            out.write("\n")


def _write_again(corpus: "Corpus", versions: Iterable[list[Version]], out: TextIO) -> None:
    """Write the lines of a file with new cells; a sentence is repeated for each version, with a distinct sent_id."""
    from trelliswork.data.files import lines_of

    assert corpus.raw is not None
    assert corpus.token_lines is not None
    lines = lines_of(corpus.raw)
    word_at = {line: i for i, line in enumerate(corpus.token_lines.tolist())}
    remaining = iter(zip(corpus.offsets.tolist(), versions, strict=False))
    block: list[int] = []
    for number, line in enumerate([*lines, ""]):
        if line.strip("\t "):
            block.append(number)
            continue
        if any(n in word_at for n in block):
            start, some = next(remaining)
            for copy, (comment, rows) in enumerate(some, start=1):
                out.write(comment)
                for n in block:
                    text = lines[n]
                    if n in word_at:
                        text = _replace(text, rows[word_at[n] - start])
                    elif text.startswith(TREE_PROBABILITY):
                        continue  # from an earlier parse
                    elif copy > 1 and re.match(r"#\s*sent_id\s*=", text):
                        text = f"{text.rstrip()}-tree{copy}"
                    out.write(f"{text}\n")
                out.write("\n")
        elif block:  # comments without a sentence
            for n in block:
                out.write(f"{lines[n]}\n")
            out.write("\n" if number < len(lines) else "")
        block = []


def _replace(line: str, cells: Cells) -> str:
    """Return a word's line with new cells, without the arc probability of an earlier parse."""
    fields = line.split("\t")
    earlier = (ARC_PROBABILITY, SUBTREE_PROBABILITY)
    kept = [part for part in fields[MISC].split("|") if part != "_" and not part.startswith(earlier)]
    for column, value in cells.items():
        if column == MISC:
            kept.append(value)
        else:
            fields[column] = value
    fields[MISC] = "|".join(kept) or "_"
    return "\t".join(fields)
