"""Tokens of records: by a regular expression, so that a model names its tokenizer and keeps it."""

import re
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable

from trelliswork.data.schemes import Span
from trelliswork.errors import DataWarning, ValueRangeError
from trelliswork.records.reading import Example

# Every character but white space is in a token, and each match is linear in its length.
TOKENS = {
    "words": r"[(\[]++[^\s,;()\[\]#&]*+[,;)\]]*+|[^\s,;()\[\]#&]++[,;)\]]*+|[#&]|[,;)\]]++",
    "punctuation": r"[^\W_]++|[^\w\s]|_",
    "blanks": r"\S++",
}
Places = list[tuple[int, int]]


def tokenizer(tokens: str) -> Callable[[str], Places]:
    """Return a function from a text to the places of its tokens: of a name in ``TOKENS``, or a regular expression."""
    try:
        pattern = re.compile(TOKENS.get(tokens, tokens))
        if pattern.match(""):
            raise re.error("it matches an empty text")
    except (re.error, TypeError) as error:
        raise ValueRangeError(
            f"tokens must be one of {', '.join(TOKENS)} or a regular expression, got {tokens!r}: {error}."
        ) from None
    return lambda text: [m.span() for m in pattern.finditer(text)]


def token_spans(examples: Iterable[Example], tokens: Iterable[Places]) -> list[list[Span]]:
    """Return the fields of examples as spans of tokens; those that end within a token are moved to its end.

    A token that two fields share belongs to the one where it starts.
    """
    found, moved = list[list[Span]](), 0
    for example, places in zip(examples, tokens, strict=True):
        starts = [start for start, _ in places]
        spans: list[Span] = []
        for name, start, stop in example.spans:
            first, last = bisect_right(starts, start), bisect_right(starts, stop - 1)
            if first and start < places[first - 1][1]:
                first -= 1
            first = max(first, spans[-1].stop if spans else 0)
            if first >= last:
                moved += 1
                continue
            spans.append(Span(name, first, last))
            beyond = example.text[places[first][0] : start] + example.text[stop : places[last - 1][1]]
            moved += any(map(str.isalnum, beyond))
        found.append(spans)
    if moved:
        warnings.warn(
            f"{moved:,} fields do not start and end with a token, and were moved: other tokens= may fit better.",
            DataWarning,
            stacklevel=3,
        )
    return found
