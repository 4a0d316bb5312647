"""Spans encoded as labels: one label per word marks where spans of words start, continue and end.

========= ====================================================================================================
scheme    labels
========= ====================================================================================================
``bio``   ``B-X`` starts a span of type X, ``I-X`` continues it, ``O`` is outside of all spans (IOB2)
``bioes`` also ``E-X``, the last word of a span, and ``S-X``, a span of a single word (IOBES; L and U in BILOU)
========= ====================================================================================================

Models know these two. `standard_labels` recognizes the scheme by most of the labels. It converts BILOU (``bilou``) to
``bioes``, and IOB1 (``iob1``), where ``B-X`` only separates a span from another one of type X before it, to ``bio``.
Reading is lenient, as in the CoNLL evaluation script ``conlleval`` (Tjong Kim Sang and Buchholz, 2000): a label that
cannot continue the previous span starts a new one. Writing and ``allowed_transitions`` are strict.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from trelliswork.data.files import shorten
from trelliswork.errors import ValueRangeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scheme = Literal["bio", "bioes"]
FileScheme = Literal["bio", "iob1", "bioes", "bilou"]  # of labels in files

_PREFIXES: dict[Scheme, str] = {"bio": "BI", "bioes": "BIES"}
_NAMES = {"bio": "BIO (IOB2)", "iob1": "IOB1", "bioes": "BIOES (IOBES)", "bilou": "BILOU"}
N_PLACES = 3  # of labels that break a scheme, in a message
_FEW = 0.1  # of the labels of spans: so many others may be among them


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
    for label in labels:
        _split(label, scheme)
    return lenient_spans(labels)


def lenient_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence with labels of any scheme, whatever they are, as ``conlleval`` reads them.

    A label without a prefix, such as ``PER``, is read as ``I-PER``.
    """
    result: list[Span] = []
    open_type, start = "", 0  # no type is empty: "" means that no span is open
    for t, label in enumerate(labels):
        prefix, type_ = _parts(label)
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


@dataclass(frozen=True)
class StandardLabels:
    """Labels in a scheme that models know, and what was said in the other."""

    labels: Sequence[Sequence[str]]  # in BIO, BIOES, or plain tags as they were
    repaired: Sequence[Sequence[str]]  # in the scheme that they had
    scheme: FileScheme | None  # that they had
    breaks: list[tuple[int, int]]  # sentences and tokens whose label breaks the scheme

    @property
    def target(self) -> Scheme | None:
        """The scheme of the labels now."""
        return model_scheme(self.scheme)

    @property
    def text(self) -> str:
        """A sentence about a conversion; empty if there was none."""
        if self.scheme is None or self.target == self.scheme:
            return ""
        return f"the labels are in {_NAMES[self.scheme]} and were converted to {_NAMES[self.target or '']}"

    def broken(self, places: Sequence[str]) -> str:
        """Return a sentence about the labels that break the scheme, with places of the first; empty without any."""
        if not self.breaks:
            return ""
        some = "1 label breaks" if len(self.breaks) == 1 else f"{len(self.breaks)} labels break"
        more = ", ..." * (len(self.breaks) > len(places))
        return f"{some} {_NAMES[self.scheme or '']}, read as conlleval does ({', '.join(places)}{more})"


_TARGETS: dict[str, Scheme] = {"bio": "bio", "iob1": "bio", "bioes": "bioes", "bilou": "bioes"}


def model_scheme(scheme: FileScheme | None) -> Scheme | None:
    """Return the scheme of models to which labels are converted."""
    return None if scheme is None else _TARGETS[scheme]


def standard_labels(
    sentences: Sequence[Sequence[str]], scheme: FileScheme | Literal["auto"] | None = "auto"
) -> StandardLabels:
    """Return labels in BIO or BIOES; IOB1 and BILOU are converted, and labels that break their scheme are repaired.

    By default the scheme is the one of most labels; in a group of processes the labels of all decide. Plain tags, or
    all labels with ``scheme=None``, are returned as they are.

    Examples
    --------
    >>> found = standard_labels([["I-NP", "B-NP", "O"], ["I-NP", "B-VP"]])
    >>> found.scheme, found.labels, found.breaks
    ('iob1', [['B-NP', 'B-NP', 'O'], ['B-NP', 'B-VP']], [(1, 1)])
    """
    chosen = file_scheme(sentences, shared=True) if scheme == "auto" else scheme
    if chosen is None:
        return StandardLabels(sentences, sentences, None, [])
    read = [lenient_spans(labels) for labels in sentences]
    repaired = [_written(some, len(labels), chosen) for some, labels in zip(read, sentences, strict=True)]
    breaks = [
        (n, t)
        for n, rows in enumerate(zip(sentences, repaired, strict=True))
        if list(rows[0]) != rows[1]
        for t, (label, fine) in enumerate(zip(*rows, strict=True))
        if label != fine
    ]
    if chosen in ("bio", "bioes"):
        return StandardLabels(repaired, repaired, chosen, breaks)
    labels = [labels_from_spans(some, len(row), _TARGETS[chosen]) for some, row in zip(read, repaired, strict=True)]
    return StandardLabels(labels, repaired, chosen, breaks)


def _written(found: Sequence[Span], n: int, scheme: FileScheme) -> list[str]:
    """Return the labels of spans in any scheme of files."""
    labels = labels_from_spans(found, n, _TARGETS[scheme])
    if scheme == "bilou":
        ends = {"E": "L", "S": "U"}
        return [ends.get(label[0], label[0]) + label[1:] for label in labels]
    for k, (type_, start, _) in enumerate(found if scheme == "iob1" else ()):
        if k == 0 or (found[k - 1].type, found[k - 1].stop) != (type_, start):
            labels[start] = f"I-{type_}"
    return labels


def file_scheme(sentences: Iterable[Sequence[str]], *, shared: bool = False) -> FileScheme | None:
    """Return the scheme of most labels, ``None`` for plain tags; if ``shared``, the labels of a group decide.

    Examples
    --------
    >>> file_scheme([["I-NP", "I-NP", "B-NP", "O"]]), file_scheme([["B-NP", "I-NP", "B-NP", "O"]]), file_scheme([["O"]])
    ('iob1', 'bio', None)
    """
    from trelliswork.compute.sharing import current

    # Prefixes, ? if there is none, and the spans that start as in BIO and as in IOB1.
    n: dict[str, float] = dict.fromkeys(("B", "I", "E", "S", "L", "U", "?", "bio", "iob1"), 0)
    for labels in sentences:
        before = ""
        for label in labels:
            prefix, type_ = _parts(label)
            if label != "O":
                n[label[0] if _is_marked(label) else "?"] += 1
            if type_ != before and prefix in "BI":
                n["bio" if prefix == "B" else "iob1"] += 1
            before = type_
    if shared:
        n = {name: current().total(count) for name, count in n.items()}
    ends = n["E"] + n["S"] + n["L"] + n["U"]
    if n["?"] > _FEW * (n["B"] + n["I"] + ends) or not n["B"] + n["I"] + ends:
        return None
    if ends and 2 * ends >= n["B"] + n["S"] + n["U"]:  # in BIOES, each span has an end
        return "bilou" if n["L"] + n["U"] > n["E"] + n["S"] else "bioes"
    return "iob1" if n["iob1"] > n["bio"] else "bio"


def from_grobid(labels: Iterable[str]) -> list[str]:
    """Return labels of GROBID, where ``I-<x>`` opens a field and ``<x>`` continues it, in BIO; none is lost.

    Examples
    --------
    >>> from_grobid(["I-<day>", "I-<month>", "<month>"])
    ['B-<day>', 'B-<month>', 'I-<month>']
    >>> to_grobid(from_grobid(["I-<day>", "<other>"]))
    ['I-<day>', '<other>']
    """
    return [f"B-{label[2:]}" if label.startswith("I-<") else f"I-{label}" for label in labels]


def to_grobid(labels: Iterable[str]) -> list[str]:
    """Return labels in BIO as GROBID writes them; the inverse of ``from_grobid``."""
    return [f"I-{label[2:]}" if label.startswith("B-") else label.removeprefix("I-") for label in labels]


def _check_scheme(scheme: str) -> None:
    if scheme not in get_args(Scheme):
        raise ValueRangeError(f"scheme must be 'bio' (IOB2) or 'bioes' (IOBES, BILOU), got {scheme!r}.")


def _is_marked(label: str) -> bool:
    """Return whether a label has a prefix of some scheme."""
    return len(label) > 2 and label[1] == "-" and label[0] in "BIESLU"


@lru_cache(maxsize=4096)
def _parts(label: str) -> tuple[str, str]:
    """Return prefix (B, I, E or S) and type of any label, ``("O", "")`` outside."""
    if label in ("O", ""):
        return "O", ""
    if not _is_marked(label):
        return "I", label
    return {"L": "E", "U": "S"}.get(label[0], label[0]), label[2:]


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
