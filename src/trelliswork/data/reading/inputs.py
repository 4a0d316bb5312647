"""Files, or a part of the bundled corpus, of which each process of a group has a share."""

import os
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trelliswork.errors import DataError

if TYPE_CHECKING:
    from trelliswork.compute.sharing import Group
    from trelliswork.data import AttributeCorpus, Corpus
    from trelliswork.data.files import Excerpt, Readable
    from trelliswork.data.reading import Layout

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
        from trelliswork.data.reading.shares import shares

        if self.files == ("-",):
            raise DataError("<stdin>: processes cannot share standard input. Name files, or leave torchrun out.")
        return [*shares(list(map(str, self.files)), current().rank, current().size, blank_lines=blank_lines)]

    def excerpt(self, format: str) -> "Excerpt":
        """Return what belongs to this process of a part of the bundled corpus, as a file of a format."""
        from trelliswork.data import bundled, writers
        from trelliswork.data.files import Excerpt

        assert self.part is not None
        write = getattr(writers, f"write_{format}", None)
        if write is None:
            raise DataError(f"{self}: the bundled corpus has words, tags, chunks and trees, but no ready attributes.")
        text = StringIO()
        write(self.share(bundled.load(self.part)), text)
        return Excerpt(self.name, text=text.getvalue().encode())

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
        layout: "Layout",
        sentences: Callable[[T], Sized] = lambda part: part,  # type: ignore[assignment,return-value]
    ) -> list[T]:
        """Return what ``read`` returns for each file of this process, without files that have no sentence.

        Some file of some process must have one. ``sentences`` returns those of a result.
        """
        from trelliswork.data.files import Excerpt

        files = [self.excerpt(layout.format)] if self.part else self.own(blank_lines=layout.blank_lines)
        if self.is_one():
            return [read(files[0])]
        some = [file if isinstance(file, Excerpt) else Excerpt(os.fspath(file)) for file in files]
        kept = [part for one in some if len(sentences(part := read(one)))]
        if not (current().any(bool(kept)) if self.shared else kept):
            raise no_sentences(self)
        return kept

    def corpus(self, read: "Callable[..., Corpus]", layout: "Layout") -> "Corpus":
        """Return the sentences that ``read`` returns for each file of this process, as one corpus.

        The number of columns is the same on all processes, also on those without sentences.
        """
        from trelliswork.data import Corpus

        parts = self.parts(read, layout)
        if self.is_one():
            return parts[0]
        own = [(len(part.columns), str(part.place(0))) for part in parts]
        every = [row for rows in current().gather(own) for row in rows] if self.shared else own
        width, first = every[0]
        for n, other in every:
            if n != width:
                raise DataError(f"{other}: expected {width} column{'s' * (width != 1)}, as in {first}, got {n}.")
        return Corpus.joined(parts, width, self.name)

    def attributes(self, layout: "Layout") -> "AttributeCorpus":
        """Return the sentences of files of ready attributes."""
        from trelliswork.data import AttributeCorpus, read_crfsuite

        parts = self.parts(read_crfsuite, layout)
        return parts[0] if self.is_one() else AttributeCorpus.joined(parts)


def own_text(source: Inputs) -> Any:
    """Return the text files of this process, those of directories sorted by name, or its parts of them.

    Of the bundled corpus, return its sentences.
    """
    from trelliswork.data import bundled
    from trelliswork.data.ids import files_of

    if source.part:
        return source.share([list(s.words) for s in bundled.load(source.part)])
    files = [Path(str(file)) for file in source.files]
    if not source.shared:
        return files
    return [*Inputs(tuple(map(str, files_of(files) or ()))).own(blank_lines=False)]


def no_sentences(source: Inputs) -> DataError:
    """Return the error for files without sentences."""
    return DataError(f"{source}: expected at least one sentence, got none. Are these the right files?")


def totals(*numbers: int) -> tuple[int, ...]:
    """Return the sums of numbers over all processes."""
    return tuple(int(current().total(n)) for n in numbers)
