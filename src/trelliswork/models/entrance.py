"""Checks of what a user passes: sentences, labels and evidence, at the entrance of every public method."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from trelliswork.data import AttributeCorpus, Corpus
from trelliswork.data.files import Excerpt, shorten
from trelliswork.errors import ShapeError, ValueRangeError

METHODS = {
    *("fit", "partial_fit", "score", "log_prob", "posterior", "predict", "_predict_flat"),
    *("predict_marginals", "predict_topk", "predict_spans", "tag"),
    *("fill", "predict_next"),
}
COLUMNS = (str, tuple, list, np.ndarray)  # a token with columns
NAMES = (str, os.PathLike, Excerpt)  # of a file
SYMBOLS = (str, int, np.integer)  # a word or its number


def checker(method: Callable[..., Any]) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], None]:
    """Return a function that checks the arguments of a method of a model; see `check_input`."""
    names = [*inspect.signature(method).parameters][1:]

    def check(model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = dict(zip(names, args, strict=False)) | options
        if "sentence" in given:  # one sentence and what is known about it
            known = given.get("known")
            one = {k: [row] for k, row in known.items()} if isinstance(known, Mapping) else [known]
            given = given | {"X": [given["sentence"]], "known": None if known is None else one}
            if method.__name__ == "fill":  # None is a blank
                row = given["sentence"]
                row = row.split() if isinstance(row, str) else _checked_list("the sentence", row, "words")
                given["X"] = [[word for word in row if word is not None]]
        elif "words" in given and method.__name__ == "predict_next":
            given["X"] = [[*_checked_list("words", given["words"], "words")]]
        if "X" in given:
            check_input(model, method.__name__, given)

    return check if method.__name__ in METHODS else lambda *_: None


def check_sentences(X: Any, tokens: tuple[type, ...], *, letters: bool = False, name: str = "X") -> None:
    """Raise an error unless X is a list of sentences, each a list of tokens of some types; without types, of any.

    With ``letters`` a string is a sentence of letters.
    """
    if isinstance(X, Corpus | AttributeCorpus):
        return
    _checked_list(name, X, "sentences")
    if set(map(type, X)) == {list} and _plain(chain.from_iterable(X), str):  # the usual case, quickly
        return
    for n, sentence in enumerate(X):
        if letters and isinstance(sentence, str):
            continue
        _checked_list(f"sentence {n} of {name}", sentence, "words")
        if tokens and not _plain(sentence, str) and not (list in tokens and _plain(sentence, tuple, list)):
            for t, token in enumerate(sentence):
                for word in token if isinstance(token, COLUMNS[1:]) and list in tokens else (token,):
                    if problem := _problem(word, tuple(kind for kind in tokens if kind not in COLUMNS[1:])):
                        raise ValueRangeError(f"sentence {n}, token {t} of {name}: expected a word, got {problem}.").at(
                            n, t
                        )


def check_labels(
    y: Any, listed: Iterable[str] | None = None, *, gaps: bool = False, complete: bool = False, name: str = "y"
) -> None:
    """Raise an error unless y has for each token a label, a collection of labels or ``None``.

    With ``listed`` they must be among these. With ``gaps`` a sentence may be ``None``; if ``complete``, no token.
    """
    _checked_list(name, y, "sentences")
    known = None if listed is None else set(listed)
    for n, row in enumerate(y):
        if gaps and row is None:
            continue
        _checked_list(f"{name}[{n}]", row, "labels")
        if known is None and _plain(row, str):
            continue
        for t, token in enumerate(row):
            if token is None and not complete:
                continue
            where = f"sentence {n}, token {t} of {name}"
            for label in token if isinstance(token, tuple | list | set | frozenset) else (token,):
                if problem := _problem(label, (str,)):
                    raise ValueRangeError(f"{where}: expected a label, got {problem}.").at(n, t)
                if known is not None and label not in known:
                    some = ", ".join(list(listed or ())[:20]) + ", ..." * (len(known) > 20)
                    text = f"sentence {n}, token {t}: {shorten(label)} is given, but the model has no such label"
                    raise ValueRangeError(f"{text}: {some[:400]}. Use None (in a file _) for an unknown one.").at(n, t)


def _checked_list(name: str, value: Any, of: str) -> Any:
    """Return a list; raise an error for what is not a list, such as a generator, a string or ``None``."""
    if isinstance(value, str | bytes):
        hint = "pass [X] for one sentence" if of == "words" else "split it"
        raise ShapeError(f"{name} must be a list of {of}, got {shorten(value)}: {hint}.")
    if isinstance(value, Mapping) or not (hasattr(value, "__len__") and hasattr(value, "__iter__")):
        hint = ": pass list(...) of it" if hasattr(value, "__next__") else ""
        raise ShapeError(f"{name} must be a list of {of}, got {shorten(value)}{hint}.")
    return value


def _plain(row: Iterable[Any], *kinds: type) -> bool:
    """Return whether all tokens have these types, which are strings or consist of them, and all can be encoded."""
    if kinds != (str,) and not set(map(type, row)) <= {*kinds}:
        return False
    flat = row if kinds == (str,) else list(chain.from_iterable(row))  # joining them finds what is no string
    try:
        "".join(flat).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _problem(word: Any, kinds: tuple[type, ...]) -> str:
    """Return what is wrong with a word or a label; nothing if it is fine."""
    if not isinstance(word, kinds) or isinstance(word, bool):
        hint = ": decode it" if isinstance(word, bytes) else ": use str(...) of it" if isinstance(word, SYMBOLS) else ""
        return f"{shorten(word)}{hint}"
    try:
        str(word).encode()
    except UnicodeEncodeError:
        return f"{shorten(word)}, half of a character that UTF-8 cannot write: decode the text again"
    return ""


def check_input(model: Any, method: str, given: dict[str, Any]) -> None:
    """Check the sentences, and of a tagger the labels and the evidence, among the arguments of a method."""
    parser, tagger = hasattr(type(model), "constituents"), hasattr(type(model), "predict_spans")
    if not parser and not tagger:  # a language model, which also reads files and streams
        for name, X in (("X", given["X"]), ("dev", given.get("dev", ()))):
            if (X is None and name == "X") or (type(X) is list and not any(isinstance(x, NAMES) for x in X[:1])):
                check_sentences(X, (str,) if method == "fit" else model._tokens, name=name)
        return
    features = getattr(model, "features", "")  # of a function or of ready attributes: it decides about tokens
    tokens = () if features is None or callable(features) else model._tokens
    dev = given.get("dev")
    data = dev if isinstance(dev, tuple) and len(dev) == 2 else (dev, None)
    for name, X in (("X", given["X"]), ("X of dev", data[0])):
        if name == "X" or X is not None:
            check_sentences(X, tokens, letters=features == "letters", name=name)
    if parser:  # which knows what heads are
        for name in () if model.constituents else ("y", "known"):
            rows = given.get(name)
            for n, row in enumerate(() if rows is None else _checked_list(name, rows, "sentences")):
                _checked_list(f"{name}[{n}]", row, "heads")
        return
    gaps = getattr(model, "family", "") == "hmm"  # which learns from sentences without labels, too
    listed = {layer.name: layer.labels for layer in getattr(model, "_layers", ())} or getattr(model, "_labels", None)
    for name in ("y", "known", "y of dev"):
        rows = data[1] if name == "y of dev" else given.get(name)
        for layer, some in () if rows is None else rows.items() if isinstance(rows, Mapping) else [("", rows)]:
            own = listed if name == "known" or method == "log_prob" else None
            own = own.get(layer) if isinstance(own, Mapping) else own
            full = name == "y of dev" or (name == "y" and bool(layer) and method != "log_prob")
            check_labels(some, own, gaps=gaps, complete=full and not gaps, name=f"{name}[{layer!r}]" if layer else name)
