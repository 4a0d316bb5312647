"""Spans encoded as labels: one label per word marks where spans of words start, continue and end.

========= ====================================================================================================
scheme    labels
========= ====================================================================================================
``bio``   ``B-X`` starts a span of type X, ``I-X`` continues it, ``O`` is outside of all spans (IOB2)
``bioes`` also ``E-X``, the last word of a span, and ``S-X``, a span of a single word (IOBES; L and U in BILOU)
========= ====================================================================================================

IOB1 labels, where ``B-X`` only separates a span from another one of type X right before it, are read as ``bio``;
`standard_labels` converts them, and BILOU to ``bioes``.
Reading is lenient, as in the CoNLL evaluation script ``conlleval`` (Tjong Kim Sang and Buchholz, 2000): a label that
cannot continue the previous span starts a new one. Writing and ``allowed_transitions`` are strict.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from trelliswork.data.files import shorten
from trelliswork.errors import ValueRangeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scheme = Literal["bio", "bioes"]

_PREFIXES: dict[Scheme, str] = {"bio": "BI", "bioes": "BIES"}


class Span(NamedTuple):
    """The words ``start``, ..., ``stop - 1`` of a sentence, with a type.

    Examples
    --------
    >>> words, span = ["The", "old", "dog", "barks"], Span("NP", 0, 3)
    >>> words[span.start : span.stop]
    ['The', 'old', 'dog']
    """

    type: str
    start: int
    stop: int


def spans(labels: Sequence[str], scheme: Scheme = "bio") -> list[Span]:
    """Return the spans of one labeled sentence, from left to right.

    Ill-formed ``bio`` is read as ``conlleval`` reads it: ``I-X`` after ``O``, after another type or at the start of the
    sentence starts a span, which ends before ``O``, another type, ``B-X`` or the end of the sentence. In ``bioes``
    ``E-X`` starts a span where ``I-X`` does, both do so after ``E-X`` and ``S-X`` too, and ``S-X`` ends an open span.

    Parameters
    ----------
    labels : sequence of str
        One label per word.
    scheme : {"bio", "bioes"}

    Raises
    ------
    ValueRangeError
        If a label does not belong to the scheme.

    Examples
    --------
    >>> spans(["B-NP", "I-NP", "O", "B-VP"])
    [Span(type='NP', start=0, stop=2), Span(type='VP', start=3, stop=4)]
    >>> spans(["I-NP", "I-VP"])
    [Span(type='NP', start=0, stop=1), Span(type='VP', start=1, stop=2)]
    >>> spans(["B-NP", "E-NP", "S-NP"], "bioes")
    [Span(type='NP', start=0, stop=2), Span(type='NP', start=2, stop=3)]
    """
    _check_scheme(scheme)
    result: list[Span] = []
    open_type, start = "", 0  # no type is empty: "" means that no span is open
    for t, label in enumerate(labels):
        prefix, type_ = _split(label, scheme)
        if open_type and (type_ != open_type or prefix in "BS"):
            result.append(Span(open_type, start, t))
            open_type = ""
        if type_ and not open_type:
            open_type, start = type_, t
        if prefix in "ES":
            result.append(Span(open_type, start, t + 1))
            open_type = ""
    if open_type:
        result.append(Span(open_type, start, len(labels)))
    return result


def labels_from_spans(spans: Iterable[tuple[str, int, int]], n: int, scheme: Scheme = "bio") -> list[str]:
    """Return the labels of a sentence of ``n`` words with these spans; the inverse of ``spans``.

    Spans may be in any order, but neither be empty nor overlap.

    Examples
    --------
    >>> labels_from_spans([("NP", 0, 3), ("VP", 3, 4)], 5)
    ['B-NP', 'I-NP', 'I-NP', 'B-VP', 'O']
    >>> labels_from_spans([("NP", 0, 3), ("VP", 3, 4)], 5, "bioes")
    ['B-NP', 'I-NP', 'E-NP', 'S-VP', 'O']
    """
    _check_scheme(scheme)
    if n < 0:
        raise ValueRangeError(f"n, the number of words, must not be negative, got {n}.")
    labels = ["O"] * n
    for type_, start, stop in spans:
        span = f"the span ({shorten(type_)}, {start}, {stop})"
        if not type_:
            raise ValueRangeError(f"{span} must have a type, got an empty one: give it a name such as 'X'.")
        if not 0 <= start < stop <= n:
            raise ValueRangeError(f"{span} must hold 0 <= start < stop <= n={n}: stop is one past its last word.")
        if any(label != "O" for label in labels[start:stop]):
            raise ValueRangeError(f"{span} overlaps another one: labels encode only spans that share no word.")
        labels[start:stop] = [f"B-{type_}"] + [f"I-{type_}"] * (stop - start - 1)
        if scheme == "bioes":
            labels[stop - 1] = f"{'S' if stop - start == 1 else 'E'}-{type_}"
    return labels


def allowed_transitions(
    labels: Sequence[str], scheme: Scheme | None
) -> "tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]":
    """Return which of S labels may follow each other (S, S), start (S,) and end (S,) a sentence.

    ``allowed[i, j]``: label j may come right after label i. The allowed paths are exactly those that
    ``labels_from_spans`` writes. In ``bio``, ``I-X`` comes only after ``B-X`` or ``I-X``. In ``bioes``, ``B-X`` and
    ``I-X`` must, and nothing else may, be followed by ``I-X`` or ``E-X``. None, for plain tags, allows everything.

    Examples
    --------
    >>> allowed, start, end = allowed_transitions(["O", "B-NP", "I-NP"], "bio")
    >>> allowed.astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    >>> start.tolist(), end.tolist()
    ([True, True, False], [True, True, True])
    """
    import numpy as np  # here, so that reading and writing labels load nothing heavy

    S = len(labels)
    if scheme is None:
        return np.ones((S, S), bool), np.ones(S, bool), np.ones(S, bool)
    _check_scheme(scheme)
    prefixes = [_split(label, scheme)[0] for label in labels]
    inside = np.array([prefix in "IE" for prefix in prefixes], dtype=bool)  # needs an open span of its type before it
    # In bioes, a span that may continue must do so.
    unfinished = np.array([prefix in "BI" for prefix in prefixes], dtype=bool) & (scheme == "bioes")
    joins = joined_labels(labels, scheme)[2]
    return np.where(inside[None, :], joins, ~unfinished[:, None]), ~inside, ~unfinished


def joined_labels(labels: Sequence[str], scheme: Scheme) -> "tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]":
    """Return the types of spans, the type (S,) of each of S labels, -1 for ``O``, and which labels are joined (S, S).

    ``joined[i, j]``: label j, right after label i, continues the span of label i; so ``spans`` reads any labels.

    Examples
    --------
    >>> types, type_of, joined = joined_labels(["O", "B-NP", "I-NP"], "bio")
    >>> types, type_of.tolist(), joined.astype(int).tolist()
    (['NP'], [-1, 0, 0], [[0, 0, 0], [0, 0, 1], [0, 0, 1]])
    """
    import numpy as np

    _check_scheme(scheme)
    split = [_split(label, scheme) for label in labels]
    types = list(dict.fromkeys(type_ for _, type_ in split if type_))
    ids = {type_: i for i, type_ in enumerate(types)} | {"": -1}
    type_of = np.array([ids[type_] for _, type_ in split], dtype=np.int64)
    opens = np.array([prefix in "BI" for prefix, _ in split], dtype=bool)
    inside = np.array([prefix in "IE" for prefix, _ in split], dtype=bool)
    return types, type_of, opens[:, None] & inside & (type_of[:, None] == type_of)


def detect_scheme(labels: Iterable[str]) -> Scheme | None:
    """Return the scheme of labels; None if one of them fits no scheme (plain tags), or if all are ``O``.

    Examples
    --------
    >>> detect_scheme(["O", "B-NP", "I-NP"]), detect_scheme(["B-NP", "E-NP"]), detect_scheme(["DT", "NN"])
    ('bio', 'bioes', None)
    """
    distinct = set(labels) - {"O"}
    if not distinct or not all(_fits(label, "bioes") for label in distinct):
        return None
    return "bioes" if any(label[0] in "ES" for label in distinct) else "bio"


def is_iob1(sentences: Iterable[Sequence[str]]) -> bool:
    """Return whether labels are IOB1: ``B-X`` marks only spans right after another one of type X, ``I-X`` all others.

    The labels must fit the scheme ``bio``.

    Examples
    --------
    >>> is_iob1([["I-NP", "I-NP", "B-NP", "O"]]), is_iob1([["B-NP", "I-NP", "B-NP", "O"]]), is_iob1([["O"]])
    (True, False, False)
    """
    started = False  # whether an I-X starts a span
    for labels in sentences:
        before = ""
        for label in labels:
            prefix, type_ = _split(label, "bio")
            if prefix == "B" and type_ != before:
                return False
            started = started or (prefix == "I" and type_ != before)
            before = type_
    return started


def standard_labels(sentences: Sequence[Sequence[str]]) -> tuple[Sequence[Sequence[str]], str]:
    """Convert labels in IOB1 to ``bio`` and in BILOU to ``bioes``; return them, and a sentence that says so.

    Labels in other schemes, and plain tags, are returned as they are, with an empty text. In a group of processes the
    labels of all decide.

    Examples
    --------
    >>> standard_labels([["I-NP", "B-NP", "O"]])
    ([['B-NP', 'B-NP', 'O']], 'the labels are in IOB1 and were converted to BIO (IOB2)')
    >>> standard_labels([["B-NP", "L-NP", "U-VP"]])
    ([['B-NP', 'E-NP', 'S-VP']], 'the labels are in BILOU and were converted to BIOES (IOBES)')
    """
    seen = SeenLabels()
    seen.add(sentences)
    text = seen.text()
    return [seen.converted(labels) for labels in sentences] if text else sentences, text


class SeenLabels:
    """What labels that are read part by part say about their scheme; see `standard_labels`."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._renamed: dict[str, str] = {}  # labels in BILOU
        self._bio = True  # all labels fit the scheme
        self._started, self._strict = False, True  # an I-X starts a span, and every B-X follows a span of type X

    def add(self, sentences: Sequence[Sequence[str]]) -> None:
        """Read some labels."""
        self.names.update(*sentences)
        self._bio = self._bio and all(_fits(label, "bio") for label in self.names - {"O"})
        for labels in sentences if self._bio else ():
            before = ""
            for label in labels:
                prefix, type_ = _split(label, "bio")
                self._strict = self._strict and not (prefix == "B" and type_ != before)
                self._started = self._started or (prefix == "I" and type_ != before)
                before = type_

    def text(self) -> str:
        """Return a sentence about the conversion; empty if there is none. In a group, the labels of all decide."""
        from trelliswork.compute.sharing import current

        group, names = current(), self.names - {"O"}
        if group.any(any(label[:2] in ("L-", "U-") for label in names)):
            if group.any(not all(len(label) > 2 and label[0] in "BILU" and label[1] == "-" for label in names)):
                return ""
            ends = {"L": "E", "U": "S"}
            self._renamed = {label: ends.get(label[0], label[0]) + label[1:] for label in names} | {"O": "O"}
            return "the labels are in BILOU and were converted to BIOES (IOBES)"
        if group.any(not self._bio):
            return ""
        if not group.any(self._started) or group.any(not self._strict):
            return ""
        return "the labels are in IOB1 and were converted to BIO (IOB2)"

    def converted(self, labels: Sequence[str]) -> list[str]:
        """Return the labels of a sentence in the other scheme."""
        return [self._renamed[label] for label in labels] if self._renamed else convert(labels, "bio", "bio")


def convert(labels: Sequence[str], source: Scheme, target: Scheme) -> list[str]:
    """Convert the labels of one sentence to another scheme.

    With ``source == target`` this repairs ill-formed labels.

    Examples
    --------
    >>> convert(["B-NP", "I-NP", "B-VP", "O"], "bio", "bioes")
    ['B-NP', 'E-NP', 'S-VP', 'O']
    >>> convert(["I-NP", "I-NP", "O"], "bio", "bio")
    ['B-NP', 'I-NP', 'O']
    """
    return labels_from_spans(spans(labels, source), len(labels), target)


def _check_scheme(scheme: str) -> None:
    if scheme not in get_args(Scheme):
        raise ValueRangeError(f"scheme must be 'bio' (IOB2) or 'bioes' (IOBES, BILOU), got {scheme!r}.")


def _fits(label: str, scheme: Scheme) -> bool:
    return label == "O" or (len(label) > 2 and label[1] == "-" and label[0] in _PREFIXES[scheme])


@lru_cache(maxsize=4096)
def _split(label: str, scheme: Scheme) -> tuple[str, str]:
    """Return prefix and type, ``("O", "")`` outside; a type may have hyphens of its own."""
    if not _fits(label, scheme):
        forms = ", ".join(f"{prefix}-TYPE" for prefix in _PREFIXES[scheme])
        hint = ""
        if scheme == "bio" and _fits(label, "bioes"):
            hint = "scheme='bioes', or "
        elif label[:2] in ("L-", "U-"):
            hint = "E for the L and S for the U of BILOU, or "
        raise ValueRangeError(
            f"labels of the scheme {scheme!r} must be O or {forms}, got {shorten(label)}. "
            f"Use {hint}scheme=None if the labels are plain tags."
        )
    return label[:1], label[2:]
