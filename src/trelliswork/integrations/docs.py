"""Documents of spaCy: sentences, tags, entities and trees of ``Doc`` objects and ``DocBin`` files, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from trelliswork.data.schemes import labels_from_spans, spans
from trelliswork.errors import DataError, extras_for

Annotation = Literal["tag", "pos", "ent", "dep"]


def read_docbin(path: str | Path, vocab: Any = None) -> list[Any]:
    """Return the documents of a ``DocBin`` file (``.spacy``); ``vocab`` is that of a pipeline, a new one by default."""
    with extras_for("read_docbin"):
        import spacy
        from spacy.tokens import DocBin

    if not Path(path).is_file():
        raise DataError(f"{path}: no such file. Check the path.")
    try:
        found = DocBin().from_disk(path)
    except Exception as error:  # of zlib or msgpack
        raise DataError(f"{path}: expected a DocBin file of spaCy: {type(error).__name__}: {error}.") from None
    return list(found.get_docs(vocab if vocab is not None else spacy.blank("xx").vocab))


def write_docbin(docs: Iterable[Any], path: str | Path) -> None:
    """Write documents to a ``DocBin`` file, which ``spacy train`` reads."""
    with extras_for("write_docbin"):
        from spacy.tokens import DocBin

    DocBin(docs=docs, store_user_data=False).to_disk(path)


def from_docs(
    docs: Iterable[Any], annotation: Annotation | None = None, *, columns: Sequence[str] = ("text",)
) -> tuple[list[list[Any]], list[list[Any]] | None]:
    """Return the sentences and annotation of documents, as estimators take them.

    Parameters
    ----------
    docs : iterable of Doc
        A document without sentences is one sentence.
    annotation : {"tag", "pos", "ent", "dep"}, optional
        Tags, coarse tags, entities as labels (``B-X``, ``I-X``, ``O``; ``None`` where unknown), or trees:
        (head, label) of each word, 0 for the root.
    columns : sequence of str
        Attributes of tokens: the text alone, or several, such as ``("text", "tag_")``; tokens are then tuples.

    Returns
    -------
    X : list of sentences
    y : list of lists, or None without ``annotation``
    """
    X: list[list[Any]] = []
    y: list[list[Any]] = []
    for doc in docs:
        for sentence in _sentences(doc):
            rows = [tuple(getattr(token, column) for column in columns) for token in sentence]
            X.append([row[0] for row in rows] if len(columns) == 1 else list(rows))
            if annotation is not None:
                y.append(_annotation(sentence, annotation))
    return X, None if annotation is None else y


def _sentences(doc: Any) -> Iterator[Any]:
    if len(doc):
        yield from doc.sents if doc.has_annotation("SENT_START") else [doc[:]]


def _annotation(sentence: Any, annotation: Annotation) -> list[Any]:
    if annotation in ("tag", "pos"):
        return [getattr(token, f"{annotation}_") or None for token in sentence]
    if annotation == "ent":
        return [None if not t.ent_iob_ else t.ent_iob_ if t.ent_iob_ == "O" else f"{t.ent_iob_}-{t.ent_type_}"
                for t in sentence]  # fmt: skip
    if annotation == "dep":
        start = sentence.start
        return [(0 if t.head.i == t.i else t.head.i - start + 1, t.dep_ or None) for t in sentence]
    raise DataError(f"the annotation must be tag, pos, ent or dep, got {annotation!r}.")


def to_docs(
    X: Sequence[Sequence[str]],
    y: Sequence[Sequence[Any]] | None = None,
    annotation: Annotation = "tag",
    *,
    vocab: Any = None,
) -> list[Any]:
    """Return sentences of words, each as a document, with labels or trees as annotation.

    Parameters
    ----------
    X, y, annotation : as in `from_docs`, of words
    vocab : Vocab, optional
        That of a pipeline; a new one by default.
    """
    with extras_for("to_docs"):
        import spacy
        from spacy.tokens import Doc

    vocab = vocab if vocab is not None else spacy.blank("xx").vocab
    docs = []
    for n, words in enumerate(X):
        options: dict[str, Any] = {}
        if y is not None:
            options |= _options(list(words), list(y[n]), annotation)
        options.setdefault("sent_starts", [t == 0 for t in range(len(words))] if "heads" not in options else None)
        docs.append(Doc(vocab, words=list(words), **options))
    return docs


def _options(words: list[str], answers: list[Any], annotation: Annotation) -> dict[str, Any]:
    """Return the arguments of ``Doc`` for the annotation of one sentence."""
    if len(answers) != len(words):
        raise DataError(f"expected {len(words)} labels, one per word, got {len(answers)}.")
    if annotation in ("tag", "pos"):
        return {"tags" if annotation == "tag" else "pos": [label or "" for label in answers]}
    if annotation == "ent":
        known = ["O" if label is None else label for label in answers]
        repaired = labels_from_spans(spans(known), len(known))
        return {"ents": [None if a is None else label for a, label in zip(answers, repaired, strict=True)]}
    heads = [t if not head else head - 1 for t, (head, _) in enumerate(answers)]
    return {"heads": heads, "deps": [label or "dep" for _, label in answers]}
