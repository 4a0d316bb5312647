"""Plain text: one sentence per line, white space between words."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from trelliswork.data.corpus import Column, Corpus
from trelliswork.data.files import Readable, check_some, fields_of, lines_of, shorten, source_name, whole_text
from trelliswork.errors import DataError, DataWarning, ValueRangeError

PUNCTUATION = frozenset(".,;:!?\"')]}”’»…")
SHOWN = 100  # lines that show whether a text is in columns
GLUED = 0.05  # share of words with unknown punctuation from which a text is taken to be not tokenized


def read_text(path: Readable) -> Corpus:
    """Read plain text: one sentence per line, words separated by ASCII white space. Blank lines are skipped.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or an `Excerpt` of one; ``-`` is the standard input.

    Returns
    -------
    Corpus
        One column, the words. Equal words are one object.

    Raises
    ------
    DataError
        If there is no sentence, or the file cannot be read (see `open_text`).
    """
    from trelliswork.data.ids import tokenized  # which imports compiled code

    ids, words, _ = tokenized(whole_text(path), keep_empty=True)
    sizes = np.diff(np.flatnonzero(ids < 0), prepend=-1) - 1  # of all lines
    lines = np.flatnonzero(sizes)
    check_some(len(lines), path, "one per line")
    column = Column([word.decode() for word in words], ids[ids >= 0])
    ends = np.cumsum(np.append(0, sizes[lines]))
    return Corpus([column], ends, None, np.repeat(lines, sizes[lines]), source_name(path), path)


def _is_glued(word: str) -> bool:
    return word[-1:] in PUNCTUATION and word[:1].isalnum()


def warn_if_untokenized(words: Sequence[str], known: Collection[str], source: str) -> None:
    """Warn if many words of a text are unknown and end in punctuation, as ``York.`` does: tokenization is missing."""
    glued = [word for word in words if _is_glued(word) and word not in known and word.lower() not in known]
    if len(glued) > GLUED * len(words) and sum(map(_is_glued, known)) <= GLUED * len(known):
        warnings.warn(
            f"{source}: {len(glued) / len(words):.0%} of the words end in punctuation and are unknown to the "
            f"model, such as {shorten(glued[0])}: words are separated at white space only. Put spaces before "
            "punctuation, as in the training text.",
            DataWarning,
            stacklevel=2,
        )


def warn_if_running_text(corpus: Corpus, n_columns: int) -> None:
    """Warn if a column file looks like running text: lines have more columns than needed, and end as sentences do.

    The corpus must have its lines. A line of text would be read as one token, whose other words are further columns.
    """
    assert corpus.raw is not None
    assert corpus.token_lines is not None
    lines = lines_of(corpus.raw)
    ends = [fields_of(lines[n])[n_columns:][-1:] for n in corpus.token_lines[:SHOWN].tolist()]
    alone = corpus.n_tokens == len(corpus)  # each token is a sentence
    if ends and (alone or sum(_is_glued(*end) for end in ends if end) > len(ends) / 2) and any(ends):
        warnings.warn(
            f"{corpus.source}: this looks like running text, and the first word of each line was read as a token, the "
            "others as further columns. Use --tokenize for running text, or --format text if tokens are separated by "
            "spaces.",
            DataWarning,
            stacklevel=2,
        )


class Lines:
    """Sentences as strings with ASCII white space between the words, the fastest source of sentences in memory.

    Examples
    --------
    >>> list(Lines(["the dog runs", "the cat"]))
    [['the', 'dog', 'runs'], ['the', 'cat']]
    """

    def __init__(self, lines: Iterable[str]) -> None:
        if isinstance(lines, str):
            raise ValueRangeError("Lines takes several sentences, got one string: give a list of strings.")
        self.lines = lines

    def __iter__(self) -> Iterator[list[str]]:
        for n, line in enumerate(self.lines):
            if not isinstance(line, str) or "\n" in line or "\0" in line:
                raise DataError(f"sentence {n}: expected a line of text without line break, got {shorten(line)}.")
            yield fields_of(line)
