"""Running text that is not tokenized: sentences and words by simple rules for English, as in the Penn Treebank."""

import re
from collections.abc import Iterable, Iterator

from trelliswork.data.files import Readable, open_text

_TOKEN = re.compile(
    r"""(?:[A-Za-z]\.){2,}                       # U.S.
      | (?:Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Gov|Sen|Rep|vs|etc|No|Inc|Co|Corp|Ltd)\.
      | \w+?(?=n['’]t\b)                         # do n't
      | n['’]t\b
      | ['’](?:s|m|d|re|ve|ll|S|M|D|RE|VE|LL)\b
      | \d+(?:[.,:/]\d+)*                        # 1,000.5
      | \w+(?:[-.@&/]\w+)*
      | \.{2,} | -{2,} | ``|'' | [^\w\s]""",
    re.VERBOSE,
)
_ENDS = {".", "!", "?", "...", "…"}
_CLOSING = {'"', "''", "'", "”", "’", ")", "]"}


def tokens_of(text: str) -> list[str]:
    """Split text into words and punctuation.

    Examples
    --------
    >>> tokens_of("I don't know Mr. Smith's cat, (yet)...")
    ['I', 'do', "n't", 'know', 'Mr.', 'Smith', "'s", 'cat', ',', '(', 'yet', ')', '...']
    """
    return _TOKEN.findall(text)


def raw_sentences(files: Iterable[Readable]) -> Iterator[list[str]]:
    """Yield the sentences of files of running text as lists of words.

    A paragraph ends at a blank line; lines inside are joined. A sentence ends after a full stop, a question or
    exclamation mark, with the quotes and brackets that close after it.
    """
    for file in files:
        with open_text(file) as lines:
            for paragraph in _paragraphs(lines):
                yield from _sentences(tokens_of(paragraph))


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    part: list[str] = []
    for line in lines:
        if line.isspace() or len(part) > 1000:
            yield " ".join(part)
            part = []
        part.append(line)
    yield " ".join(part)


def _sentences(tokens: list[str]) -> Iterator[list[str]]:
    start, ended = 0, False
    for k, token in enumerate(tokens):
        if ended and token not in _ENDS and token not in _CLOSING:
            yield tokens[start:k]
            start, ended = k, False
        ended = ended or token in _ENDS
    if start < len(tokens):
        yield tokens[start:]
