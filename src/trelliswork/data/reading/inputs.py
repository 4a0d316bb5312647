"""Files, or a part of the bundled corpus, of which each process of a group has a share."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.compute.sharing import Group
    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.data.files import Readable

NAMED = 3  # files that a message names
PARTS = ("train", "dev", "test")  # of the bundled corpus
BUNDLED = "bundled:"  # before the name of a part of the bundled corpus, where a file is expected
T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])


def current() -> "Group":
    """Return the group of processes; the help of a command does without this import."""
    from trelliswork.compute import sharing

    return sharing.current()


@dataclass(frozen=True)
class Inputs:
    """Files, or a part of the bundled corpus.

    In a group of processes each reads its share; with ``whole``, each reads everything, such as development data.
    """

    files: "tuple[Readable, ...]"  # as the user gave them; or one name such as bundled:test
    whole: bool = False
    allow_empty: bool = False  # whether one file may be without sentences; of several files, one must have some

    def __str__(self) -> str:
        return self.name

    @property
    def part(self) -> str | None:
        """The part of the bundled corpus; ``None`` for files."""
        first = self.files[0] if self.files else None
        return first.removeprefix(BUNDLED) if isinstance(first, str) and first.startswith(BUNDLED) else None

    @property
    def name(self) -> str:
        """The files, for messages."""
        from trelliswork.data.files import source_name

        more = len(self.files) - NAMED
        return ", ".join(map(source_name, self.files[:NAMED])) + (f" and {more} more" if more > 0 else "")

    @property
    def shared(self) -> bool:
        """Whether each process has only a part of the input."""
        return current().size > 1 and not self.whole

    def own(self, *, blank_lines: bool | None) -> "list[Readable]":
        """Return the files, or parts of files, that this process reads; see `shares`."""
        if not self.shared:
            return list(self.files)
        if self.part:
            return list(self.files) if current().rank == 0 else []
        from trelliswork.data.shares import shares

        if self.files == ("-",):
            raise DataError("<stdin>: processes cannot share standard input. Name files, or leave torchrun out.")
        return [*shares(list(map(str, self.files)), current().rank, current().size, blank_lines=blank_lines)]

    def share(self, sentences: S) -> S:
        """Return the part of sentences in memory that belongs to this process."""
        if not self.shared:
            return sentences
        start, stop = current().share(len(sentences))
        return sentences[start:stop]  # type: ignore[return-value]

    def is_one(self) -> bool:
        """Return whether this process reads exactly one file, whole."""
        return len(self.files) == 1 and not self.shared

    def parts(
        self,
        read: "Callable[..., T]",
        *,
        blank_lines: bool | None,
        sentences: Callable[[T], Sized] = lambda part: part,  # type: ignore[assignment,return-value]
    ) -> "list[tuple[Readable, T]]":
        """Return what ``read`` returns for each file of this process, without files that have no sentence.

        Some file of some process must have one. ``sentences`` returns those of a result.
        """
        if self.is_one():
            return [(self.files[0], read(self.files[0], allow_empty=self.allow_empty))]
        found = [(file, read(file, allow_empty=True)) for file in self.own(blank_lines=blank_lines)]
        kept = [(file, part) for file, part in found if len(sentences(part))]
        if not (current().any(bool(kept)) if self.shared else kept):
            raise no_sentences(self)
        return kept

    def corpus(self, read: "Callable[..., Corpus]", *, blank_lines: bool | None) -> "Corpus":
        """Return the sentences that ``read`` returns for each file of this process, as one corpus.

        The number of columns is the same on all processes, also on those without sentences.
        """
        from trelliswork.data import Corpus

        parts = self.parts(read, blank_lines=blank_lines)
        if self.is_one():
            return parts[0][1]
        own = [(len(part.columns), str(file), getattr(file, "start", 0)) for file, part in parts]
        every = [row for rows in current().gather(own) for row in rows] if self.shared else own
        width, *first = every[0]
        for n, *other in every:
            if n != width:
                expected = f"{width} column{'s' * (width != 1)}, as in {_first_line(*first)}"
                raise DataError(f"{_first_line(*other)}: expected {expected}, got {n}.")
        return Corpus.joined([part for _, part in parts], width, self.name)

    def attributes(self) -> "AttributeCorpus":
        """Return the sentences of files of ready attributes."""
        from trelliswork.data import AttributeCorpus, read_crfsuite

        parts = self.parts(read_crfsuite, blank_lines=True)
        return parts[0][1] if self.is_one() else AttributeCorpus.joined([part for _, part in parts])


def _first_line(path: str, start: int) -> str:
    """Return the place of the first line, after the byte ``start`` of a file, that is not blank."""
    from trelliswork.data.files import Section, fields_of, open_text

    section = Section(path, start)
    with open_text(section) as lines:
        number = next((k for k, line in enumerate(lines, start=1) if fields_of(line)), 1)
    return f"{path}:{section.lines_before() + number}"


def own_text(source: Inputs) -> Any:
    """Return the text files of this process, those of directories sorted by name, or its parts of them.

    Of the bundled corpus, return its sentences.
    """
    from trelliswork.data import bundled
    from trelliswork.data.ids import files_of

    if source.part:
        return source.share([list(s.words) for s in bundled.load(source.part)])
    if not source.shared:
        return [*source.files]
    return Inputs(tuple(map(str, files_of(source.files) or ()))).own(blank_lines=False)


def no_sentences(source: Inputs) -> DataError:
    """Return the error for files without sentences."""
    return DataError(f"{source}: expected at least one sentence, got none. Are these the right files?")


def equal_parts(parts: Iterable[T], n: int, empty: T) -> Iterator[T]:
    """Yield the n parts of this process, and then empty ones until every process has had the same number."""
    missing = max(current().gather(n)) - n  # before the first part, as on the other processes
    yield from parts
    yield from repeat(empty, missing)


def totals(*numbers: int) -> tuple[int, ...]:
    """Return the sums of numbers over all processes."""
    return tuple(int(current().total(n)) for n in numbers)
