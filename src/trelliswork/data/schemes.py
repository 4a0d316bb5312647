"""Spans written as labels: one label per word says where spans of words begin, go on and end.

========= ====================================================================================================
scheme    labels
========= ====================================================================================================
``bio``   ``B-X`` begins a span of type X, ``I-X`` goes on inside it, ``O`` is outside of all (IOB2)
``bioes`` as well ``E-X``, the last word of a span, and ``S-X``, a span of a single word (IOBES; BILOU says L, U)
========= ====================================================================================================

Reading is forgiving, as in the CoNLL evaluation script ``conlleval`` (Tjong Kim Sang and Buchholz, 2000): a label that
cannot go on with what came before begins a span. Writing, and ``allowed_transitions``, are strict.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

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
    """Read the spans of one labelled sentence, from left to right.

    Ill-formed ``bio`` is read as ``conlleval`` reads it: ``I-X`` after ``O``, after another type or at the start of the
    sentence begins a span, which ends before ``O``, another type, ``B-X`` or the end of the sentence. In ``bioes``
    ``E-X`` begins a span where ``I-X`` does, both do so after ``E-X`` and ``S-X`` too, and ``S-X`` ends what is open.

    Parameters
    ----------
    labels : sequence of str
        One label per word.
    scheme : {"bio", "bioes"}

    Raises
    ------
    ValueRangeError
        If a label does not belong to the scheme at all.

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
    found: list[Span] = []
    open_type, start = "", 0  # no type is empty: "" says that no span is open
    for t, label in enumerate(labels):
        prefix, type_ = _split(label, scheme)
        if open_type and (type_ != open_type or prefix in "BS"):
            found.append(Span(open_type, start, t))
            open_type = ""
        if type_ and not open_type:
            open_type, start = type_, t
        if prefix in "ES":
            found.append(Span(open_type, start, t + 1))
            open_type = ""
    if open_type:
        found.append(Span(open_type, start, len(labels)))
    return found


def labels_from_spans(spans: Iterable[tuple[str, int, int]], n: int, scheme: Scheme = "bio") -> list[str]:
    """Write spans as the labels of a sentence; ``spans`` reads them back.

    Parameters
    ----------
    spans : iterable of Span or (type, start, stop)
        In any order, not empty, not overlapping.
    n : int
        Words of the sentence.
    scheme : {"bio", "bioes"}

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
        span = f"the span ({type_!r}, {start}, {stop})"
        if not type_:
            raise ValueRangeError(f"{span} must have a type, got an empty one: give it a name such as 'X'.")
        if not 0 <= start < stop <= n:
            raise ValueRangeError(f"{span} must hold 0 <= start < stop <= n={n}: stop is one past its last word.")
        if any(label != "O" for label in labels[start:stop]):
            raise ValueRangeError(f"{span} overlaps another one: labels can write only spans that share no word.")
        labels[start:stop] = [f"B-{type_}"] + [f"I-{type_}"] * (stop - start - 1)
        if scheme == "bioes":
            labels[stop - 1] = f"{'S' if stop - start == 1 else 'E'}-{type_}"
    return labels


def allowed_transitions(
    labels: Sequence[str], scheme: Scheme | None
) -> "tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]":
    """Which label may follow which, begin and end a sentence, if the scheme is kept strictly.

    The allowed paths are exactly those that ``labels_from_spans`` writes. In ``bio``, ``I-X`` comes only after ``B-X``
    or ``I-X``. In ``bioes``, ``B-X`` and ``I-X`` must, and nothing else may, be followed by ``I-X`` or ``E-X``.

    Parameters
    ----------
    labels : sequence of str
        The S labels, in the order of their ids.
    scheme : {"bio", "bioes"} or None
        None allows everything, for labels that are plain tags.

    Returns
    -------
    allowed : bool ndarray (S, S)
        ``allowed[i, j]``: label j may come right after label i.
    start, end : bool ndarray (S,)
        The label may come first, last.

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
    split = [_split(label, scheme) for label in labels]
    ids = {type_: i for i, type_ in enumerate(dict.fromkeys(type_ for _, type_ in split))}
    type_ids = np.array([ids[type_] for _, type_ in split], dtype=np.int64)
    inside = np.array([prefix in "IE" for prefix, _ in split], dtype=bool)  # needs an open span of its type before it
    opens = np.array([prefix in "BI" for prefix, _ in split], dtype=bool)  # leaves a span that may go on...
    unfinished = opens & (scheme == "bioes")  # ... and here must
    goes_on = opens[:, None] & (type_ids[:, None] == type_ids[None, :])
    return np.where(inside[None, :], goes_on, ~unfinished[:, None]), ~inside, ~unfinished


def detect_scheme(labels: Iterable[str]) -> Scheme | None:
    """Tell which scheme labels are written in, or None if they are plain tags.

    Parameters
    ----------
    labels : iterable of str
        A list of distinct labels, or those of a text; repetitions do not matter.

    Returns
    -------
    {"bio", "bioes"} or None
        None as soon as one label fits no scheme, or if there is nothing but ``O``.

    Examples
    --------
    >>> detect_scheme(["O", "B-NP", "I-NP"]), detect_scheme(["B-NP", "E-NP"]), detect_scheme(["DT", "NN"])
    ('bio', 'bioes', None)
    """
    distinct = set(labels) - {"O"}
    if not distinct or not all(_fits(label, "bioes") for label in distinct):
        return None
    return "bioes" if any(label[0] in "ES" for label in distinct) else "bio"


def convert(labels: Sequence[str], source: Scheme, target: Scheme) -> list[str]:
    """Write the labels of one sentence in another scheme.

    With ``source == target`` this mends ill-formed labels and leaves the others as they are.

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
            f"labels of the scheme {scheme!r} must be O or {forms}, got {label!r}. "
            f"Use {hint}scheme=None if the labels are plain tags."
        )
    return label[:1], label[2:]
