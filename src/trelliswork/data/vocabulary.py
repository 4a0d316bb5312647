"""Strings to ids and back."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence


class Vocabulary:
    """A fixed list of distinct strings with ids 0, 1, 2, ...

    Parameters
    ----------
    items : iterable of str
        In the order of their ids; repeated ones are an error.
    unknown : callable, optional
        Gives a stand-in for a string that is not listed, such as ``word_shape``; the stand-in itself may be
        unlisted too, then ``default`` is used. Without it an unlisted string is an error.
    default : str
        The last resort; listed at the end when ``unknown`` is given and it is not among the items.

    Examples
    --------
    >>> tags = Vocabulary(["DT", "NN"])
    >>> tags.ids(["NN", "DT"]), tags[1], len(tags)
    ([1, 0], 'NN', 2)
    """

    def __init__(
        self, items: Iterable[str], *, unknown: Callable[[str], str] | None = None, default: str = "<unk>"
    ) -> None:
        self.items = list(items)
        self.unknown = unknown
        self.default = default
        if unknown is not None and default not in self.items:
            self.items.append(default)
        self._ids = {item: i for i, item in enumerate(self.items)}
        if len(self._ids) < len(self.items):
            twice = next(item for item, n in Counter(self.items).items() if n > 1)
            raise ValueError(f"a vocabulary must not list a string twice, got {twice!r} twice.")

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        unknown: Callable[[str], str] | None = None,
        default: str = "<unk>",
    ) -> "Vocabulary":
        """List the strings of some sequences, most frequent first (ties in order of appearance).

        Strings seen fewer than ``min_count`` times are replaced by their stand-in, which is then counted and listed:
        so rare words teach the model what unknown words are like.
        """
        counts = Counter(item for sequence in sequences for item in sequence)
        kept: Counter[str] = Counter()
        for item, n in counts.items():
            if n >= min_count:
                kept[item] += n
            elif unknown is not None:
                kept[unknown(item)] += n
        return cls((item for item, _ in kept.most_common()), unknown=unknown, default=default)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self._ids

    def __getitem__(self, index: int) -> str:
        return self.items[index]

    def id(self, item: str) -> int:
        """The id of a string, or of its stand-in."""
        found = self._ids.get(item)
        if found is not None:
            return found
        if self.unknown is None:
            some = ", ".join(self.items[:8]) + (", ..." if len(self.items) > 8 else "")
            raise KeyError(f"{item!r} is not among the {len(self)} listed strings ({some}).")
        return self._ids.get(self.unknown(item), self._ids[self.default])

    def ids(self, sequence: Iterable[str]) -> list[int]:
        """The ids of several strings."""
        return [self.id(item) for item in sequence]

    def strings(self, ids: Iterable[int]) -> list[str]:
        """The strings of several ids."""
        return [self.items[i] for i in ids]


SUFFIXES = ("ing", "ed", "ly", "ness", "tion", "er", "est", "ous", "ful", "able", "ive", "al", "ies", "s", "y")


def word_shape(word: str) -> str:
    """A stand-in for a rare or unknown word: digits, capital, hyphen, or its ending.

    >>> word_shape("1987"), word_shape("Zanzibar"), word_shape("re-unionizing")
    ('<number>', '<capital>', '<-ing>')
    """
    if any(c.isdigit() for c in word):
        return "<number>"
    if word[:1].isupper():
        return "<capital>"
    ending = next((suffix for suffix in SUFFIXES if word.endswith(suffix)), "")
    return f"<{'-' if '-' in word else ''}{ending}>" if "-" in word or ending else "<word>"
