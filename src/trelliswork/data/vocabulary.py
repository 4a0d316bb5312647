"""Vocabularies: strings to ids and back, and the symbols that all models share."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from trelliswork.compute.sharing import current
from trelliswork.data.files import shorten
from trelliswork.errors import DataError

UNKNOWN = "<unk>"  # replaces words that are not in a vocabulary
START, END = "<s>", "</s>"  # edges of a sentence


def strings(values: Any) -> list[str]:
    """Return a list of strings that was read from JSON; DataError if it is anything else."""
    try:
        "".join(values).encode()  # JSON can hold halves of characters
    except (TypeError, UnicodeEncodeError):
        values = None
    if not isinstance(values, list):
        raise DataError("expected a list of strings: the file is damaged.")
    return values


class Vocabulary:
    """A fixed list of distinct strings with ids 0, 1, 2, ...

    Parameters
    ----------
    items : iterable of str
        The strings in the order of their ids; duplicates are an error.
    unknown : str or callable, optional
        The string that represents unlisted ones, such as ``UNKNOWN``, or a function that returns a stand-in for an
        unlisted string, such as ``word_shape``; ``UNKNOWN`` if the stand-in is not listed either. By default, looking
        up an unlisted string is an error.

    Notes
    -----
    The unknown string (for a function ``UNKNOWN``) is appended to the items if it is missing.

    Examples
    --------
    >>> tags = Vocabulary(["DT", "NN"])
    >>> tags.ids(["NN", "DT"]), tags[1], len(tags)
    ([1, 0], 'NN', 2)
    >>> Vocabulary(["the", "dog"], unknown=UNKNOWN).ids(["the", "cat"])
    [0, 2]
    """

    def __init__(self, items: Iterable[str], *, unknown: str | Callable[[str], str] | None = None) -> None:
        self.items = list(items)
        self.unknown = unknown
        self.default = unknown if isinstance(unknown, str) else UNKNOWN
        if unknown is not None and self.default not in self.items:
            self.items.append(self.default)
        self.check_distinct()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The strings, in the order of their ids."""
        return tuple(self.items)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return dict(zip(self.items, range(len(self.items)), strict=True))

    def check_distinct(self) -> None:
        """Raise ValueError if a string occurs twice."""
        if len(self._ids) < len(self.items):
            duplicate = next(item for item, n in Counter(self.items).items() if n > 1)
            raise ValueError(f"the strings of a vocabulary must be distinct, got {shorten(duplicate)} twice.")

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        unknown: str | Callable[[str], str] | None = None,
    ) -> "Vocabulary":
        """List the strings of sequences, most frequent first (ties in order of appearance).

        Strings seen fewer than ``min_count`` times are dropped. With ``unknown`` they are replaced by the unknown
        string or their stand-in, which is counted and listed: rare words show the model what unknown words are like.
        """
        own = Counter(item for sequence in sequences for item in sequence)
        counts = current().count_names(own, min_count if unknown is None else 1)
        kept: Counter[str] = Counter()
        for item, n in counts.items():
            if n >= min_count:
                kept[item] += n
            elif unknown is not None:
                kept[unknown if isinstance(unknown, str) else unknown(item)] += n
        return cls((item for item, _ in kept.most_common()), unknown=unknown)

    @classmethod
    def restored(cls, items: Any, unknown: str | None, *, check: bool = True) -> "Vocabulary":
        """Return a vocabulary read from a file; ``unknown`` is its unknown word, if it lists one.

        If ``check`` is false, the caller has to find out whether the items are distinct; ids are looked up when they
        are first needed.
        """
        items = strings(items)
        if check:
            return cls(items, unknown=unknown if unknown in items else None)
        self = cls((), unknown=None)
        self.items, self.unknown = items, unknown if unknown in items else None
        self.default = self.unknown or UNKNOWN
        del self._ids
        return self

    @property
    def unknown_word(self) -> str | None:
        """The string that represents unlisted ones; None if they are an error."""
        return None if self.unknown is None else self.default

    @property
    def index(self) -> Mapping[str, int]:
        """The ids of all strings."""
        return self._ids

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self._ids

    def __getitem__(self, index: int) -> str:
        return self.items[index]

    def id(self, item: str) -> int:
        """Return the id of a string, or of the string that represents it."""
        number = self._ids.get(item)
        if number is not None:
            return number
        if self.unknown is None:
            some = ", ".join(self.items[:8]) + (", ..." if len(self.items) > 8 else "")
            raise KeyError(f"{shorten(item)} is not among the {len(self)} listed strings ({some}).")
        stand_in = self.default if isinstance(self.unknown, str) else self.unknown(item)
        return self._ids.get(stand_in, self._ids[self.default])

    def ids(self, sequence: Iterable[str]) -> list[int]:
        """Return the ids of several strings."""
        return [self.id(item) for item in sequence]

    def strings(self, ids: Iterable[int]) -> list[str]:
        """Return the strings of several ids."""
        return [self.items[i] for i in ids]


SUFFIXES = ("ing", "ed", "ly", "ness", "tion", "er", "est", "ous", "ful", "able", "ive", "al", "ies", "s", "y")


def word_shape(word: str) -> str:
    """Return a stand-in for a rare or unknown word: digits, capital, hyphen, or its ending.

    >>> word_shape("1987"), word_shape("Zanzibar"), word_shape("re-unionizing")
    ('<number>', '<capital>', '<-ing>')
    """
    if any(c.isdigit() for c in word):
        return "<number>"
    if word[:1].isupper():
        return "<capital>"
    ending = next((suffix for suffix in SUFFIXES if word.endswith(suffix)), "")
    return f"<{'-' if '-' in word else ''}{ending}>" if "-" in word or ending else "<word>"
