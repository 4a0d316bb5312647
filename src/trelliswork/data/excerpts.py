"""Files in parts: whole sentences as they arrive, so that a program can write while it reads."""

from collections.abc import Callable, Iterable, Iterator

from trelliswork.data.files import Excerpt, Readable, open_blocks

FIRST, MOST = 1 << 9, 1 << 14  # tokens, about, of the first part and of the largest ones
LONGEST = 10_000  # lines of a paragraph without a place to cut


def excerpts(
    path: Readable,
    *,
    blank_lines: bool,
    cut: Callable[[list[str]], int] | None = None,
    first: int | None = None,
    most: int | None = None,
) -> Iterator[Excerpt]:
    """Yield a file in parts of whole sentences: small ones first, and when a pipe has nothing more for now.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or a `Section` of one; ``-`` is the standard input. An `Excerpt` is yielded as it is.
    blank_lines : bool
        Whether blank lines separate sentences, and each line is a token; otherwise each line is a sentence.
    cut : callable, optional
        For text whose sentences may be on several lines: the number of lines, of some after a blank one, that can be
        read without those that follow.
    first, most : int
        Number of tokens, about, of the first part (512) and of the largest ones (16,384); parts double in size.

    Yields
    ------
    Excerpt
        The last one, which may be empty, is marked as such. All have the same ``notes``.
    """
    if isinstance(path, Excerpt):
        yield path
        return
    with open_blocks(path) as blocks:
        yield from _parts(path, blocks, blank_lines, cut, first or FIRST, most or MOST)


def _parts(
    path: "Readable",
    blocks: Iterable[tuple[list[str], bool]],
    blank_lines: bool,
    cut: Callable[[list[str]], int] | None,
    size: int,
    most: int,
) -> Iterator[Excerpt]:
    assert not isinstance(path, Excerpt)
    whole = Excerpt(path, [], last=False)
    pending: list[str] = []
    n_tokens = start = characters = searched = 0
    count = _one if blank_lines and not cut else _words

    def part(n: int, last: bool = False) -> Excerpt:
        nonlocal pending, n_tokens, start, characters, searched
        lines, pending = pending[:n], pending[n:]
        made = Excerpt(path, lines, start, characters, last, whole.notes)
        start += n
        characters += sum(map(len, lines)) + n if cut else 0
        n_tokens, searched = sum(map(count, pending)), 0
        return made

    for lines, waits in blocks:
        for line in lines:
            pending.append(line)
            n_tokens += count(line)
            if n_tokens >= size and (not blank_lines or not line.strip(" \t")):
                yield part(len(pending))
                size = min(2 * size, most)
        if not pending or not (waits or (cut and n_tokens >= size)):
            continue
        n = _last_blank(pending) if blank_lines else len(pending)
        if not n and cut and (waits or len(pending) >= 2 * searched):  # a long paragraph
            searched = len(pending)
            n = cut(pending) or (searched if searched > LONGEST else 0)
        if n:
            yield part(n)
    yield part(len(pending), last=True)


def _one(line: str) -> int:
    return 1


def _words(line: str) -> int:
    return line.count(" ") + 1


def _last_blank(lines: list[str]) -> int:
    """Return the number of lines up to the last blank one; 0 if there is none."""
    return next((k for k in range(len(lines), 0, -1) if not lines[k - 1].strip(" \t")), 0)
