"""Raw text to sentences and tokens that know their place: rules of our own, or the tokenizer of another package.

Tokens are those of the Penn Treebank and of English Universal Dependencies: punctuation is separate, ``don't`` is
``do`` and ``n't``, ``dogs'`` is ``dogs`` and ``'``; numbers, abbreviations, addresses and hyphenated words are whole. A
sentence ends at a blank line, and after ``.``, ``!``, ``?`` or ``…`` unless the rules see an abbreviation or a small
letter after it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.corpus import Corpus
from trelliswork.data.files import Excerpt, Readable, check_some, open_text, source_name
from trelliswork.errors import DataWarning, ValueRangeError, extras_for


class Piece(NamedTuple):
    """A token, and the place of its first and after its last character in the text."""

    text: str
    start: int
    stop: int


Tokenizer = Callable[[str], list[list[Piece]]]

_TITLES = "Mr Mrs Ms Messrs Dr Prof Gen Sen Rep Gov Lt Col Sgt Capt Maj Cmdr Rev Hon Pres Supt St Mt Ft No Nos Art vs"
_OTHERS = (
    "Inc Corp Co Ltd Bros Jr Sr Esq etc al approx dept est fig Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon "
    "Tue Wed Thu Fri Sat Sun Ave Blvd Rd a.m p.m e.g i.e cf pp vol ed eds Ph.D M.D B.A M.A"
)
_TITLE = frozenset(word.lower() for word in _TITLES.split())  # a name follows: never the end of a sentence
_ABBREVIATION = _TITLE | frozenset(word.lower() for word in _OTHERS.split())
_WORDS_TOO = frozenset({"no", "art", "sun", "sat", "mar"})  # also words, which may end a sentence
_CAPITALS = "The A An It He She They We I You This That These Those There In On At But And If When"
_STARTERS = frozenset(_CAPITALS.split())
_FREQUENT = (
    "the of and to is was that for it with as he be on by at this have from are not but they his her you we were had "
    "i my your she said there which or an if so what would will all do me just"
)
_COMMON = frozenset(_FREQUENT.split())
COMMON_RATE, FEW_WORDS, SEARCHED_WORDS = 0.06, 40, 2000  # fewer common words than that are not English
_QUOTES = "\"'“”‘’«»`"
_CLITIC = re.compile(r"(?i)(?<=[^\W\d_])(n['’]t|['’](?:s|m|d|re|ve|ll))$")
# Linear in the length of any text: no alternative reads far and then fails at each of many places.
_TOKEN = re.compile(
    r"""
    (?:https?://|ftp://|www\.)[^\s<>"”]*[^\s<>"”.,;:!?)\]}'’]   # addresses
  | (?<![\w.+-])[\w.+-]++@\w[\w-]*+(?:\.\w[\w-]*+)++
  | [#@]\w+
  | (?:[:;=8][-o*']?[)\](\[dDpP/\\|*])(?!\w)                    # faces
  | <3
  | (?:[A-Za-z]\.){2,}                                          # U.S.
  | [$€£¥]?(?:(?<!\S)[+-])?\d+(?:[.,:/-]\d+)*(?:%|(?:st|nd|rd|th|s)\b|(?=(?i:am|pm|k|m|mm|mb|gb)?\b))  # numbers
  | \w+(?:[-'’&._]\w+)*(?:\.(?!\.))?                            # words, with what joins them
  | \.{2,}|-{2,}|[!?]{2,}|\*{2,}|_{2,}|={2,}|~{2,}|<{2,}|>{2,}|''|’’|``
  | ['’]\d\ds?\b
  | \S
    """,
    re.VERBOSE,
)
_CURRENCY = "$€£¥"
LOOKAHEAD = 3  # tokens of the next sentence that the end of one depends on
PARAGRAPH = 1000  # lines of a paragraph that are split together
_PARAGRAPH = re.compile(r"\n[ \t\r\f\v]*\n\s*")
_ENDING = re.compile(r"[.!?…]+")
_FOLLOWING = re.compile(r"\S")
_CLOSING = frozenset(")]}" + _QUOTES)
_OPENING = frozenset("([{" + _QUOTES)


def tokenize(text: str) -> list[list[Piece]]:
    """Split a text into sentences of tokens.

    Examples
    --------
    >>> for sentence in tokenize("Mr. Smith doesn't pay $3.50. He left (early)!"):
    ...     print([piece.text for piece in sentence])
    ['Mr.', 'Smith', 'does', "n't", 'pay', '$', '3.50', '.']
    ['He', 'left', '(', 'early', ')', '!']
    """
    sentences: list[list[Piece]] = []
    for start, stop in _paragraphs(text):
        pieces = [piece for m in _TOKEN.finditer(text, start, stop) for piece in _split(text, *m.span(), stop)]
        ends = [0, *sentence_ends(pieces, text), len(pieces)]
        sentences += [pieces[a:b] for a, b in pairwise(ends) if a < b]
    return sentences


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    for gap in _PARAGRAPH.finditer(text):
        yield at, gap.start()
        at = gap.end()
    yield at, len(text)


def _split(text: str, start: int, end: int, stop: int) -> Iterator[Piece]:
    """Yield the tokens of one match: clitics, currency signs and full stops that end a sentence are separate."""
    word = text[start:end]
    if len(word) > 1 and word[0] in _CURRENCY:
        yield Piece(word[0], start, start + 1)
        start, word = start + 1, word[1:]
    if len(word) > 1 and word.endswith("%"):
        yield Piece(word[:-1], start, end - 1)
        yield Piece("%", end - 1, end)
        return
    tail: list[Piece] = []
    if len(word) > 1 and word.endswith(".") and word[0].isalnum() and not _is_abbreviation(word, text, end, stop):
        tail = [Piece(".", end - 1, end)]
        end, word = end - 1, word[:-1]
    if word.lower() == "cannot":
        tail = [Piece(word[3:], start + 3, end), *tail]
        end, word = start + 3, word[:3]
    clitic = _CLITIC.search(word)
    if clitic and clitic.start() > 0:
        at = start + clitic.start()
        yield Piece(word[: clitic.start()], start, at)
        yield Piece(clitic.group(), at, end)
    elif word:
        yield Piece(word, start, end)
    yield from tail


def _is_abbreviation(word: str, text: str, end: int, stop: int) -> bool:
    """Return whether the full stop belongs to a word: an abbreviation, an initial, or a small letter follows."""
    stem = word[:-1]
    if stem.lower() in _WORDS_TOO and _at_end(text, end, stop):
        return False
    if stem.lower() in _ABBREVIATION or (len(stem) == 1 and stem.isalpha() and stem != "I"):
        return True
    return re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]", stem) is not None


def _at_end(text: str, end: int, stop: int) -> bool:
    """Return whether a sentence can end here: white space and a capital follow, or nothing."""
    following = _FOLLOWING.search(text, end, stop)
    return following is None or following.group().isupper()


def sentence_ends(pieces: list[Piece], text: str) -> Iterator[int]:
    """Yield the number of tokens up to the end of each sentence."""
    k, n = 0, len(pieces)
    while k < n:
        word = pieces[k].text
        stem = word[:-1].lower()
        glued = len(word) > 1 and word.endswith(".") and word[0].isalnum()  # an abbreviation may end a sentence
        if not (_ENDING.fullmatch(word) or glued) or (glued and (stem in _TITLE or len(stem) == 1)):
            k += 1
            continue
        k += 1
        while k < n and (_ENDING.fullmatch(pieces[k].text) or _closes(pieces, k)):
            k += 1
        if k == n:
            return
        following, gap = pieces[k].text, text[pieces[k - 1].stop : pieces[k].start]
        if not gap:
            continue
        letter = next((piece.text[0] for piece in pieces[k : k + 3] if piece.text[0] not in _OPENING), following[0])
        if letter.islower() or (glued and following not in _STARTERS) or letter in ",;:-–—":
            continue
        yield k


def _closes(pieces: list[Piece], k: int) -> bool:
    """Return whether a bracket or quote belongs to what is before it: no space is between them."""
    return pieces[k].text in _CLOSING and (pieces[k].start == pieces[k - 1].stop or pieces[k].text in ")]}")


def tokenizer(name: str = "rules") -> Tokenizer:
    """Return a tokenizer by name.

    Parameters
    ----------
    name : str
        ``rules``; ``spacy`` or ``spacy:LANGUAGE``, a blank pipeline of spaCy with its sentence rules; ``spacy:NAME``,
        an installed pipeline.
    """
    kind, _, rest = name.partition(":")
    if kind == "rules" and not rest:
        return tokenize
    if kind == "spacy":
        return _spacy(rest or "en")
    raise ValueRangeError(f"the tokenizer must be rules, spacy, spacy:LANGUAGE or spacy:NAME, got {name!r}.")


def _spacy(name: str) -> Tokenizer:
    with extras_for("the tokenizer spacy"):
        import spacy

    if len(name) <= 3:
        nlp = spacy.blank(name)
        nlp.add_pipe("sentencizer")
    else:
        nlp = spacy.load(name)

    def split(text: str) -> list[list[Piece]]:
        sentences = []
        for start, stop in _paragraphs(text):
            for sentence in nlp(text[start:stop]).sents:
                pieces = [Piece(t.text, start + t.idx, start + t.idx + len(t)) for t in sentence if not t.is_space]
                if pieces:
                    sentences.append(pieces)
        return sentences

    return split


@dataclass(frozen=True, eq=False, repr=False)
class TokenizedText(Corpus):
    """The sentences of a raw text; token i is ``text[starts[i] - before:stops[i] - before]``.

    ``before`` is the number of characters of the file before the text.
    """

    text: str = ""
    starts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    stops: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    before: int = 0

    def space_after(self, i: int) -> bool:
        """Return whether white space, or the end of the text, follows a token."""
        stop = self.stops[i] - self.before
        return stop >= len(self.text) or self.text[stop].isspace()

    def sentence_text(self, n: int) -> str:
        """Return the text of a sentence on one line."""
        first, last = int(self.offsets[n]), int(self.offsets[n + 1]) - 1
        return " ".join(self.text[self.starts[first] - self.before : self.stops[last] - self.before].split())

    def located(self, n: int) -> dict[str, Any]:
        """Return the text of a sentence as it is, its offset in the file, and start and end of its tokens there."""
        at = slice(self.offsets[n], self.offsets[n + 1])
        places: list[list[int]] = np.stack([self.starts[at], self.stops[at]], axis=1).tolist()
        offset = places[0][0]
        return {
            "text": self.text[offset - self.before : places[-1][1] - self.before], "offset": offset, "places": places
        }  # fmt: skip

    @classmethod
    def of(cls, text: str, split: Tokenizer = tokenize, source: str = "", before: int = 0) -> TokenizedText:
        """Return the sentences of a text, of a file with ``before`` characters before it."""
        return cls.placed(split(text), before, source=source, text=text, before=before)

    @classmethod
    def placed(cls, sentences: Sequence[Sequence[Piece]], first: int = 0, **fields: Any) -> Self:
        """Return sentences of tokens whose places count from the character ``first``."""
        pieces, unique = list(chain.from_iterable(sentences)), dict[str, str]()
        words = [unique.setdefault(piece.text, piece.text) for piece in pieces]
        starts, stops = (np.array([piece[k] for piece in pieces], np.int64) + first for k in (1, 2))
        return cls([words], np.cumsum([0, *map(len, sentences)], dtype=np.int64), starts=starts, stops=stops, **fields)


def read_raw_text(path: Readable, *, split: Tokenizer = tokenize) -> TokenizedText:
    """Read running text that is not tokenized; blank lines separate paragraphs.

    Parameters
    ----------
    path : str or path
        A plain or gzip file, or an `Excerpt` of one; ``-`` is the standard input.
    split : callable
        Text to sentences of `Piece`: `tokenize`, or a result of `tokenizer`.

    Returns
    -------
    TokenizedText
        A corpus of one column, with the place of each token in the text, whose line ends are one character each.
    """
    with open_text(path) as lines:
        text = "".join(f"{line}\n" for line in lines)
    source = source_name(path)
    corpus = TokenizedText.of(text, split, source, path.characters if isinstance(path, Excerpt) else 0)
    check_some(len(corpus), path, "running text")
    if split is tokenize:
        _check_english(corpus)
    return corpus


def _check_english(corpus: TokenizedText) -> None:
    """Warn if few of the words are the most common ones of English."""
    words = [word for word in corpus.columns[0][:SEARCHED_WORDS] if word.isalpha()]
    if len(words) >= FEW_WORDS and sum(word.lower() in _COMMON for word in words) < COMMON_RATE * len(words):
        warnings.warn(
            f"{corpus.source}: this does not look like English, for which the rules of tokens and sentences are made. "
            "--tokenizer spacy:LANGUAGE, such as spacy:de, has those of other languages.",
            DataWarning,
            stacklevel=3,
        )


def raw_sentences(files: Iterable[Readable]) -> Iterator[list[str]]:
    """Yield the sentences of files of running text as lists of words, a paragraph in memory at a time."""
    for file in files:
        part: list[str] = []
        with open_text(file) as lines:
            for line in chain(lines, [""]):
                if not line.strip() or len(part) >= PARAGRAPH:
                    for sentence in tokenize("\n".join(part)):
                        yield [piece.text for piece in sentence]
                    part = []
                part.append(line)


def safe_end(lines: list[str], split: Tokenizer = tokenize) -> int:
    """Return the number of lines at the start of a paragraph that can be split without what follows.

    They end with a sentence, and the tokens of later lines that its end depends on have been seen.
    """
    text = "\n".join(lines)
    sentences = split(text)
    left = 0  # tokens after the start of a sentence
    for before, sentence in zip(reversed(sentences[:-1]), reversed(sentences), strict=False):
        left += len(sentence)
        if left >= LOOKAHEAD and "\n" in text[before[-1].stop : sentence[0].start]:
            return text.count("\n", 0, sentence[0].start)
    return 0
