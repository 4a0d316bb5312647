"""Lexicons and gazetteers: words and phrases with classes, found in sentences by longest match."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from trelliswork.data.files import Readable, atomic_write, fields_of, open_text, shorten, source_name, whole_number
from trelliswork.data.schemes import detect_scheme, spans
from trelliswork.errors import DataError, ValueRangeError

BLOCK = 200  # neighboring sentences that a learned lexicon leaves out in training


class Lexicon:
    """Words and phrases with their classes.

    Parameters
    ----------
    entries : mapping of str to str or collection of str
        Classes of each phrase; its words are separated by white space.
    fold_case : bool
        Whether upper and lower case are the same.

    Examples
    --------
    >>> lexicon = Lexicon({"New York": "city", "York": "city", "Ann": ["name"]})
    >>> lexicon.tag(["Ann", "likes", "new", "York", "."])
    ['B-name', '', 'B-city', 'I-city', '']
    """

    def __init__(self, entries: Mapping[str, str | Iterable[str]], *, fold_case: bool = True) -> None:
        self.fold_case = fold_case
        self.entries: dict[tuple[str, ...], tuple[str, ...]] = {}
        for phrase, classes in entries.items():
            key = self._key(fields_of(phrase))
            names = {classes} if isinstance(classes, str) else set(classes)
            if not key or not names or not all(names):
                raise ValueRangeError(f"an entry must be a phrase and its classes, got {shorten((phrase, classes))}.")
            self.entries[key] = tuple(sorted(names.union(self.entries.get(key, ()))))
        # Of a learned lexicon: the first and last block of sentences in which each class of a phrase occurs.
        self._blocks: dict[tuple[tuple[str, ...], str], tuple[int, int]] = {}
        self._index()

    @classmethod
    def read(cls, *files: Readable, fold_case: bool | None = None) -> Self:
        """Read files with one entry per line: a phrase, a tab, and its class.

        In a file without tabs every line is an entry, whose class is the name of the file without its ending. Blank
        lines and lines that start with ``#`` are ignored. In a file of a learned lexicon, two numbers follow the class:
        the first and the last block of training sentences that have the entry.

        Parameters
        ----------
        *files : path
        fold_case : bool, optional
            Whether upper and lower case are the same. By default they are, unless all files are learned lexicons.
        """
        entries: dict[str, set[str]] = {}
        blocks: dict[tuple[str, str], tuple[int, int]] = {}
        learned = 0
        for file in files:
            name = source_name(file)
            with open_text(file) as lines:
                kept = [(n, line.strip()) for n, line in enumerate(lines, start=1)]
            kept = [(n, line) for n, line in kept if line and not line.startswith("#")]
            if not kept:
                raise DataError(f"{name}: expected a lexicon, one entry per line, got none.")
            tabs = any("\t" in line for _, line in kept)
            for n, line in kept:
                fields = [field.strip() for field in line.split("\t")]
                numbers = [whole_number(field) for field in fields[2:]]
                if len(fields) not in ((2, 4) if tabs else (1,)) or not all(fields) or None in numbers:
                    raise DataError(f"{name}:{n}: expected a phrase, a tab and its class, got {shorten(line)}.")
                entries.setdefault(fields[0], set()).add(fields[1] if tabs else Path(name).name.partition(".")[0])
                if numbers:
                    blocks[fields[0], fields[1]] = numbers[0] or 0, numbers[1] or 0
            learned += bool(blocks) and all(line.count("\t") == 3 for _, line in kept)
        self = cls(entries, fold_case=learned < len(files) if fold_case is None else fold_case)
        for (phrase, name), (first, last) in blocks.items():
            entry = self._key(fields_of(phrase)), name
            one, two = self._blocks.get(entry, (first, last))
            self._blocks[entry] = min(one, first), max(two, last)
        return self

    @classmethod
    def learn(
        cls,
        sentences: Iterable[Sequence[Any]],
        labels: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        fold_case: bool = False,
    ) -> Self:
        """Collect the labeled phrases of training data, with labels such as ``B-LOC``.

        A tagger that is trained on the same sentences must not find a phrase in the lexicon only because the sentence
        at hand, or another one of the same document, has it: it would trust the lexicon too much. So in training, the
        lexicon of a sentence is that of the other blocks of 200 sentences.

        Parameters
        ----------
        sentences, labels : list of lists
            Words, or sequences that start with the word, and their labels in the BIO or BIOES scheme.
        min_count : int
            Phrases that have a class less often are left out.
        fold_case : bool
            Whether upper and lower case are the same.
        """
        labels = list(labels)
        scheme = detect_scheme(label for tags in labels for label in tags)
        if scheme is None:
            raise ValueRangeError("a lexicon is learned from labels in the scheme BIO or BIOES, such as B-LOC and O.")
        counts: Counter[tuple[tuple[str, ...], str]] = Counter()
        blocks: dict[tuple[tuple[str, ...], str], tuple[int, int]] = {}
        for n, (sentence, tags) in enumerate(zip(sentences, labels, strict=True)):
            words = [token if isinstance(token, str) else token[0] for token in sentence]
            words = [word.casefold() for word in words] if fold_case else words
            for name, start, stop in spans(tags, scheme):
                entry = tuple(fields_of(" ".join(words[start:stop]))), name
                counts[entry] += 1
                blocks[entry] = blocks.get(entry, (n // BLOCK,))[0], n // BLOCK
        kept = [entry for entry, n in counts.items() if n >= min_count and entry[0]]
        entries: dict[str, set[str]] = {}
        for key, name in kept:
            entries.setdefault(" ".join(key), set()).add(name)
        self = cls(entries, fold_case=fold_case)
        self._blocks = {entry: blocks[entry] for entry in kept}
        return self

    def tag(self, words: Sequence[str], *, without: int | None = None) -> list[str]:
        """Return the tag of each word: ``B-`` or ``I-`` with the class, empty outside of phrases.

        Phrases are found from left to right, the longest first, and do not overlap. A phrase of several classes has
        all of them in one tag, such as ``B-city|name``. ``without`` is the number of a sentence that the lexicon was
        learned from: its block is left out.
        """
        keys, tags, t = self._key(words), [""] * len(words), 0
        while t < len(keys):
            for n in self._lengths.get(keys[t], ()):
                classes = self.entries.get(keys[t : t + n]) if t + n <= len(keys) else None
                if classes and without is not None:
                    own = (without // BLOCK,) * 2
                    classes = tuple(name for name in classes if self._blocks.get((keys[t : t + n], name)) != own)
                if classes:
                    name = "|".join(classes)
                    tags[t : t + n] = [f"B-{name}"] + [f"I-{name}"] * (n - 1)
                    t += n - 1
                    break
            t += 1
        return tags

    def classes(self, word: str) -> tuple[str, ...]:
        """Return the classes of a single word."""
        return self.entries.get(self._key([word]), ())

    @property
    def learned(self) -> bool:
        """Whether it comes from the labels of training data."""
        return bool(self._blocks)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lexicon) and (self.entries, self.fold_case) == (other.entries, other.fold_case)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Lexicon({len(self)} entries)"

    def save(self, path: str | Path) -> None:
        """Write a file for ``read``."""
        rows = [(key, name) for key, names in self.entries.items() for name in names]
        with atomic_write(path) as file:
            for key, name in rows:
                ends = self._blocks.get((key, name), ())
                file.write("\t".join([" ".join(key), name, *map(str, ends)]) + "\n")

    def _key(self, words: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.casefold() for word in words) if self.fold_case else tuple(words)

    def _index(self) -> None:
        """List the lengths of the phrases by first word, longest first."""
        lengths: dict[str, set[int]] = {}
        for key in self.entries:
            lengths.setdefault(key[0], set()).add(len(key))
        self._lengths = {word: sorted(of, reverse=True) for word, of in lengths.items()}

    def state(self) -> dict[str, Any]:
        """Return plain data for ``from_state``."""
        entries = [[" ".join(key), *names] for key, names in self.entries.items()]
        blocks = [[" ".join(key), name, *ends] for (key, name), ends in self._blocks.items()]
        return {"fold_case": self.fold_case, "entries": entries, "blocks": blocks}

    @classmethod
    def from_state(cls, plain: Mapping[str, Any]) -> Self:
        """Build a lexicon from its ``state``."""
        self = cls({row[0]: row[1:] for row in plain["entries"]}, fold_case=bool(plain["fold_case"]))
        self._blocks = {(tuple(fields_of(row[0])), row[1]): (int(row[2]), int(row[3])) for row in plain["blocks"]}
        return self
