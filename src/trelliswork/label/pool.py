"""The sentences to label, with the labels that they come with; and labeled sentences as JSON lines."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from trelliswork.data.files import atomic_write
from trelliswork.data.reading import ANNOTATED, FileFormat, guess_format
from trelliswork.data.reading.inputs import Inputs
from trelliswork.data.schemes import Span, labels_from_spans, lenient_spans
from trelliswork.data.tokenize import TokenizedText, Tokenizer
from trelliswork.data.tokenize import tokenize as by_rules
from trelliswork.errors import DataError

Task = Literal["spans", "tags"]
Labels = list[str | None]  # of a sentence; None where nothing is known
UNKNOWN = "_"  # a label of a column file that is not known
OUTSIDE = "O"


@dataclass(frozen=True)
class Pool:
    """Sentences and the labels that they come with: ``None`` for a sentence without any."""

    task: Task
    words: list[list[str]]
    labels: list[Labels | None]
    digest: str  # of the words: a journal belongs to them
    located: Callable[[int], dict[str, Any]]  # text of a sentence, and places of its tokens in it

    def __len__(self) -> int:
        return len(self.words)


def read_pool(
    path: str, task: Task = "spans", split: Tokenizer | None = None, format: FileFormat = FileFormat.auto
) -> Pool:
    """Read a pool: plain text, columns, CoNLL-U, JSON lines with spans, CSV or brat.

    Parameters
    ----------
    path : str
        The name and the first lines decide the format. Words of plain text are separated by spaces, one sentence per
        line.
    task : {"spans", "tags"}
        Whether labels encode spans. The last column of a column file has labels if there are several, ``_`` where one
        is missing; that of CoNLL-U is ``upos``.
    split : callable, optional
        Text to sentences of tokens, for raw text; records with a text are split by our rules by default.
    format : FileFormat
        Instead of the format that the name and the first lines decide.
    """
    from trelliswork import data

    source = Inputs((path,))
    format = guess_format(source, format)
    if split is not None and format not in ANNOTATED:
        format = FileFormat.text
    corpus: Any
    labels: list[Labels | None] | None = None
    if format in ANNOTATED:
        if task != "spans":
            raise DataError(f"{path}: spans in running text are for --task spans, got --task {task}.")
        how: Any = {"format": str(format), "split": split or by_rules}
        corpus, _ = data.read_spans(path, labeled=False, **how)
        if any(document.spans is not None for document in corpus.documents):
            corpus, rows = data.read_spans(path, **how)
            labels = [None] * len(corpus)
            for d, document in enumerate(corpus.documents):
                if document.spans is not None:
                    for n in range(corpus.ends[d], corpus.ends[d + 1]):
                        labels[n] = [*rows[n]]
    elif format == FileFormat.text:
        corpus = data.read_text(path) if split is None else data.read_raw_text(path, split=split)
    elif format == FileFormat.conllu:
        corpus = data.read_conllu(path, columns=["form", "upos"] if task == "tags" else ["form"])
    elif format == FileFormat.columns:
        corpus = data.read_columns(path)
    else:
        raise DataError(f"{path}: a {format} file has no words to show: expected text, columns, JSON lines or CSV.")
    words = [list(sentence) for sentence in corpus.sentences(0)]
    if labels is None and len(corpus.columns) > 1:
        labels = [_known(row, task) for row in corpus.sentences(len(corpus.columns) - 1)]
    digest = hashlib.sha256("\n".join("\t".join(sentence) for sentence in words).encode()).hexdigest()
    located = corpus.located if isinstance(corpus, TokenizedText) else lambda n: _spaced(words[n])
    return Pool(task, words, labels or [None] * len(words), digest, located)


def _known(row: Sequence[str], task: Task) -> Labels | None:
    """Return the labels of a sentence of a column file, spans in BIO; ``None`` if there are none."""
    labels: Labels = [None if label == UNKNOWN else label for label in row]
    if all(label is None for label in labels):
        return None
    if task == "spans" and None not in labels:
        return [*labels_from_spans(lenient_spans(row), len(row))]
    if task == "spans" and any(label not in (None, OUTSIDE) and label[:2] not in ("B-", "I-") for label in labels):
        raise DataError(f"labels of half-labeled sentences must be O, B-TYPE or I-TYPE, got {' '.join(row)[:80]}.")
    return labels


def _spaced(words: Sequence[str]) -> dict[str, Any]:
    """Return the text of a sentence with spaces between the words."""
    ends = list(accumulate(len(word) + 1 for word in words))
    return {"text": " ".join(words), "offset": 0, "places": [[e - 1 - len(w), e - 1] for w, e in zip(words, ends)]}  # noqa: B905


def spans_of(labels: Sequence[str | None]) -> list[Span]:
    """Return the spans of labels in BIO; nothing is known counts as outside."""
    return lenient_spans([label or OUTSIDE for label in labels])


def record(pool: Pool, n: int, labels: Labels, complete: bool) -> dict[str, Any]:
    """Return a labeled sentence in the form of Prodigy, which doccano and `read_spans` read, too.

    ``tags`` has the label of each token, ``null`` where none is known. Readers leave out a sentence that is not
    complete: its ``answer`` is not ``accept``.
    """
    located = pool.located(n)
    places = [[start - located["offset"], stop - located["offset"]] for start, stop in located["places"]]
    words = pool.words[n]
    tokens = [
        {"text": w, "start": a, "end": b, "id": t} for t, (w, (a, b)) in enumerate(zip(words, places, strict=True))
    ]
    spans = [
        {"start": places[a][0], "end": places[b - 1][1], "token_start": a, "token_end": b - 1, "label": kind}
        for kind, a, b in (spans_of(labels) if pool.task == "spans" else ())
    ]
    answer = "accept" if complete else "ignore"
    return {"text": located["text"], "sentence": n, "tokens": tokens, "spans": spans, "tags": labels, "answer": answer}


def write_records(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write records as JSON lines; the file is replaced in one step."""
    with atomic_write(path) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_columns(path: Path, pool: Pool, answers: Iterable[tuple[int, Labels]]) -> None:
    """Write words and labels in two columns, ``_`` where none is known; the file is replaced in one step."""
    with atomic_write(path) as file:
        for n, labels in answers:
            file.writelines(f"{word}\t{label or UNKNOWN}\n" for word, label in zip(pool.words[n], labels, strict=True))
            file.write("\n")
