"""CoNLL-U, the format of Universal Dependencies: ten columns, comments, multiword tokens and empty nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

import numpy as np

from trelliswork.data.columns import lines_with_room
from trelliswork.data.corpus import Corpus
from trelliswork.data.files import (
    Readable,
    check_some,
    counting_lines_before,
    lines_of,
    shorten,
    source_name,
    whole_number,
    whole_text,
)
from trelliswork.errors import DataError, ValueRangeError

Arcs = list[list[tuple[int | None, str | None]]]
COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_RANGE = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,17})\.([1-9][0-9]{0,17})")


def read_conllu(path: Readable, *, columns: Sequence[str] = ("form",), keep_lines: bool = False) -> Corpus:
    """Read the words of a CoNLL-U file.

    Comments, multiword tokens (``3-4``) and empty nodes (``8.1``) are checked and skipped: a sentence is its words.

    Parameters
    ----------
    path : str or path
        A plain or gzip file in UTF-8, or an `Excerpt` of one; ``-`` is the standard input.
    columns : sequence of str
        Columns to return: id, form, lemma, upos, xpos, feats, head, deprel, deps, misc.
    keep_lines : bool
        Whether to keep the lines, to write them back with `write_conllu_with`.

    Returns
    -------
    Corpus
        One list of strings per column, ``_`` where it is empty. Equal strings are one object.

    Raises
    ------
    DataError
        If a line does not have ten columns, ids do not count 1, 2, 3, ..., the id of a multiword token or an empty node
        does not fit its place, there is no sentence, or the file cannot be read (see `open_text`).
    ValueRangeError
        If a requested column does not exist.
    """
    if isinstance(columns, str) or not len(columns):
        raise ValueRangeError(f"columns must be a sequence of names such as ('form', 'upos'), got {shorten(columns)}.")
    chosen, source, text = [_index(name) for name in columns], source_name(path), whole_text(path)
    flat, unique = list[str](), dict[str, str]()  # all columns of the first word, of the second, ...
    token_lines, ends, sentence, number = list[int](), [0], _Ids(), 0
    with counting_lines_before(path):
        for number, line in enumerate(lines_of(text), start=1):
            if line.startswith("#"):
                continue
            if not line.strip("\t "):
                sentence.finish(f"{source}:{number}")
                ends.append(len(token_lines))
                sentence = _Ids()
                continue
            fields = line.split("\t")
            if len(fields) != 10:
                raise DataError(
                    f"{source}:{number}: expected 10 columns, separated by tabs, got {len(fields)}: {shorten(line)}. "
                    + ("Are there spaces in place of tabs?" if len(fields) == 1 else "Empty columns are written _.")
                )
            if fields[0] == str(sentence.words + 1):
                sentence.words += 1
                sentence.empty = 0
                flat += [unique.setdefault(fields[c], fields[c]) for c in chosen]
                token_lines.append(number - 1)
            elif complaint := sentence.skip(fields[0]):
                raise DataError(f"{source}:{number}: {complaint}: {shorten(line)}.")
        sentence.finish(f"{source}:{number}")
    check_some(len(token_lines), path, "ten columns, one word per line")
    offsets, places = np.unique([*ends, len(token_lines)]), np.array(token_lines, np.int64)
    of_column = [flat[c :: len(chosen)] for c in range(len(chosen))]
    return Corpus(of_column, offsets, text if keep_lines else None, places, source, path)


@dataclass(slots=True)
class _Ids:
    """Ids of a sentence read so far."""

    words: int = 0  # id of the last word
    last: int = 0  # last word of the last multiword token
    empty: int = 0  # empty nodes since the last word

    def skip(self, id_: str) -> str:
        """Check the id of a line that is not a word; return a description of the error, or an empty text."""
        following = self.words + 1
        if match := _RANGE.fullmatch(id_):
            first, last = int(match[1]), int(match[2])
            if first != following or last < first:
                return f"a multiword token must start with the next word, {following}, and not end before it, got {id_}"
            if first <= self.last:
                return f"multiword tokens must not overlap, the previous one ends with {self.last}, got {id_}"
            self.last = last
            return ""
        if _DECIMAL.fullmatch(id_):
            expected = f"{self.words}.{self.empty + 1}"
            if id_ != expected:
                return f"the id of an empty node here must be {expected}, got {id_}"
            self.empty += 1
            return ""
        return (
            f"expected id {following} (or one such as {following}-{following + 1} or {self.words}.{self.empty + 1}), "
            f"got {shorten(id_)}"
            + (". Put a blank line between sentences" if id_ == "1" else ". Ids count 1, 2, 3, ...")
        )

    def finish(self, where: str) -> None:
        """Raise DataError if the last multiword token reaches beyond the words of the sentence."""
        if self.last > self.words:
            raise DataError(
                f"{where}: a multiword token reaches to word {self.last}, but the sentence ends after "
                f"word {self.words}. Correct its range, or add the words."
            )


def _index(name: str) -> int:
    """Return the number of a column; raise ValueRangeError if there is no such column."""
    if name not in COLUMNS:
        raise ValueRangeError(f"CoNLL-U has no column {shorten(name)}. Its columns are {', '.join(COLUMNS)}.")
    return COLUMNS.index(name)


def read_dependencies(path: Readable, *, columns: Sequence[str] = ("form", "upos", "xpos")) -> tuple[Corpus, Arcs]:
    """Read words with their heads and the labels of arcs, as `DependencyParser.fit` takes them.

    Parameters
    ----------
    path, columns : as in `read_conllu`

    Returns
    -------
    X : Corpus
        The requested columns, with lines.
    y : list of lists of (head, label)
        The head of each word, 0 for the root, and the label of its arc; None where a column is empty (``_``).

    Raises
    ------
    DataError
        As `read_conllu`; or if a head is not a number, not a word of the sentence or the word itself, or heads form a
        cycle.
    """
    read = read_conllu(path, columns=(*columns, "head", "deprel"), keep_lines=True)
    corpus, heads = replace(read, columns=read.columns[:-2]), _heads(read, len(columns))
    labels = [[None if label == "_" else label for label in row] for row in read.sentences(len(columns) + 1)]
    return corpus, [list(zip(*rows, strict=True)) for rows in zip(heads, labels, strict=True)]


def _heads(read: Corpus, column: int) -> list[list[int | None]]:
    """Return the heads in a column; raise DataError if they form no tree."""
    heads: list[list[int | None]] = []
    for n, row in enumerate(read.sentences(column)):
        heads.append([])
        for i, text in enumerate(row):
            head = None if text == "_" else whole_number(text)
            if text != "_" and (head is None or head > len(row) or head == i + 1):
                raise DataError(
                    f"{read.place(n, i)}: the head must be 0, another word of 1 to "
                    f"{len(row)}, or _, got {shorten(text)}."
                )
            heads[-1].append(head)
        at = _on_cycle(heads[-1])
        if at is not None:
            raise DataError(
                f"{read.place(n, at)}: the heads above word {at + 1} form a cycle. "
                "Expected a tree: correct a head, or leave it empty (_)."
            )
    return heads


def _on_cycle(heads: list[int | None]) -> int | None:
    """Return a word (from 0) whose chain of heads runs into a cycle; None if there is none."""
    done: set[int] = set()
    for word in range(1, len(heads) + 1):
        path: set[int] = set()
        at: int | None = word
        while at and at not in done:
            if at in path:
                return word - 1
            path.add(at)
            at = heads[at - 1]
        done |= path
    return None


def write_conllu_with(corpus: Corpus, columns: Mapping[str, Sequence[str]], file: TextIO) -> None:
    """Write the lines of a CoNLL-U file, read with ``keep_lines=True``, with columns of every word replaced.

    ``columns`` has the new values of each word by the name of the column. Comments, multiword tokens and empty nodes
    are unchanged. Line ends are those of ``file``.
    """
    text, token_lines = lines_with_room(corpus, [*columns.values()], "\t")
    lines = lines_of(text)
    words = [lines[i].split("\t") for i in token_lines.tolist()]
    for name, values in columns.items():
        c = _index(name)
        for fields, value in zip(words, values, strict=True):
            fields[c] = value
    for i, fields in zip(token_lines.tolist(), words, strict=True):
        lines[i] = "\t".join(fields)
    file.writelines(f"{line}\n" for line in lines)
