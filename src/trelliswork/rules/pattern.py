"""Regular expressions over labels and spans, compiled by positions (Glushkov, 1961) and the subset construction.

A name of a type of spans is two positions: a letter that starts the span, and letters that continue it. After a span
only letters that start something may follow, since the span would go on otherwise.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trelliswork.errors import ValueRangeError
from trelliswork.rules.alphabet import Alphabet
from trelliswork.rules.automata import Automaton, Mask, numbered

TOKEN = re.compile(
    r"""\s*(?:(?P<sign>[()|*+?.]|\{\d+(?:,\d*)?\})|"([^"]+)"|'([^']+)'|([^\s"'(){}|*+?.][^\s"'(){}|*+?]*))"""
)
TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}
MOST = 2_000  # positions of a pattern, after repetitions are written out


def parsed(text: object) -> tuple[Any, list[str]]:
    """Return the tree of a pattern, and the names in it; raise an error if it is not well formed.

    A tree is a name, "." , or a tuple of ``"|"``, ``" "`` or ``"{"`` and its parts.
    """
    if not isinstance(text, str):
        raise ValueRangeError(f"a pattern is a string such as 'Number Street+ City', got {text!r}.")
    if text.count("(") > 100:
        raise _error(text[:100], "it has more than 100 parentheses")
    tokens, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise ValueRangeError(f"the pattern {text!r} cannot be read at {text[at:].strip()[:20]!r}.")
        tokens.append((bool(match["sign"]), next(filter(None, match.groups()))))
        at = match.end()
    tree, rest = _alternatives(text, tokens)
    if rest:
        raise _error(text, f"{rest[0][1]!r} is not expected")
    return tree, list(dict.fromkeys(name for sign, name in tokens if not sign))


Tokens = list[tuple[bool, str]]  # whether they are signs, and the text


def _error(text: str, problem: str) -> ValueRangeError:
    return ValueRangeError(f"the pattern {text!r} is not well formed: {problem}.")


def _alternatives(text: str, tokens: Tokens) -> tuple[Any, Tokens]:
    """Return alternatives and the tokens after them."""
    parts: list[Any] = []
    while not parts or tokens[:1] == [(True, "|")]:
        items, tokens = [], tokens[1:] if parts else tokens
        while tokens and tokens[0] not in ((True, "|"), (True, ")")):
            item, tokens = _item(text, tokens)
            items.append(item)
        parts.append((" ", *items))
    return ("|", *parts), tokens


def _item(text: str, tokens: Tokens) -> tuple[Any, Tokens]:
    """Return one item with its repetitions, and the tokens after it."""
    (sign, value), tokens = tokens[0], tokens[1:]
    tree: Any = (value,) if sign else value
    if sign and value == "(":
        tree, tokens = _alternatives(text, tokens)
        if not tokens:
            raise _error(text, "a parenthesis is not closed")
        tokens = tokens[1:]
    elif sign and value != ".":
        raise _error(text, f"{value!r} has nothing to repeat")
    while tokens and tokens[0][0] and (tokens[0][1] in TIMES or tokens[0][1][0] == "{"):
        value, tokens = tokens[0][1], tokens[1:]
        low, comma, high = value[1:-1].partition(",")
        limits = TIMES.get(value) or (int(low), int(high) if high else None if comma else int(low))
        if not limits[0] <= (limits[0] if limits[1] is None else limits[1]) <= MOST:
            raise _error(text, f"{value} is no number of repetitions up to {MOST}")
        tree = ("{", tree, *limits)
    return tree, tokens


class Part(NamedTuple):
    """A part of an expression: whether it may be empty, and the positions that it may start and end with, as bits."""

    empty: bool
    first: int
    last: int


class _Positions:
    """The positions of a pattern: letters that may stand there, and the positions that may follow."""

    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self._text, self._alphabet = text, alphabet
        self.letters: list[Mask] = []
        self._follow: list[int] = []
        self._inside: dict[int, int] = {}  # of a span, the position of the words that go on with it

    def build(self, tree: Any) -> Part:
        """Return a part of the tree with new positions."""
        alphabet, whole = self._alphabet, Part(True, 0, 0)
        match tree:
            case str() if not alphabet.is_label(tree):
                head, tail = self._add(alphabet.starts(tree)), self._add(alphabet.goes_on(tree))
                self._inside |= dict.fromkeys(_bits(head.first | tail.first), tail.first)
                self._link(head.last | tail.last, tail.first)
                return Part(False, head.first, head.last | tail.last)
            case str():
                return self._add(alphabet.tokens(tree))
            case (".",):
                return self._add(np.ones(alphabet.n_letters, bool))
            case ("|", *parts):
                made = [self.build(part) for part in parts]
                return Part(any(p.empty for p in made), _union(p.first for p in made), _union(p.last for p in made))
            case (" ", *parts):
                for part in parts:
                    whole = self._joined(whole, self.build(part))
            case ("{", part, low, high):
                for n in range(max(low, 1) if high is None else high):
                    one = self.build(part)
                    if not one.first:  # nothing, however often
                        return one
                    if high is None and n + 1 >= low:
                        self._link(one.last, one.first)
                    whole = self._joined(whole, one._replace(empty=one.empty or n >= low))
        return whole

    def after(self, state: int, goes_on: bool) -> int:
        """Return the positions that may follow some positions, for letters that go on with a span or start one."""
        return _union(self._inside[p] if goes_on and p in self._inside else self._follow[p] for p in _bits(state))

    def _joined(self, a: Part, b: Part) -> Part:
        self._link(a.last, b.first)
        first, last = a.first | (b.first if a.empty else 0), b.last | (a.last if b.empty else 0)
        return Part(a.empty and b.empty, first, last)

    def _link(self, last: int, first: int) -> None:
        for p in _bits(last):
            self._follow[p] |= first

    def _add(self, letters: Mask) -> Part:
        if len(self.letters) >= MOST:
            raise _error(self._text, f"it has more than {MOST:,} names, repetitions included")
        self.letters.append(letters)
        self._follow.append(0)
        bit = 1 << (len(self.letters) - 1)
        return Part(False, bit, bit)


def compiled(text: str, alphabet: Alphabet) -> Automaton:
    """Return an automaton over the letters of an alphabet."""
    positions, n = _Positions(text, alphabet), alphabet.n_letters
    whole = positions.build(parsed(text)[0])
    rows = np.array([*positions.letters, np.arange(n) < n // 2]).reshape(-1, n)
    columns, column_of = np.unique(rows, axis=1, return_inverse=True)
    # Letters of one kind may stand at the same positions, and go on with a span, or not.
    kinds = [(_union(1 << p for p in np.flatnonzero(column[:-1]).tolist()), bool(column[-1])) for column in columns.T]

    def following(state: int) -> list[int]:
        return [(positions.after(state, goes_on) if state >= 0 else whole.first) & here for here, goes_on in kinds]

    states, step = numbered(following, -1)  # -1 is the start, before any position
    final = np.array([whole.empty if state < 0 else bool(state & whole.last) for state in states])
    return Automaton(np.ascontiguousarray(step[:, column_of.reshape(-1)]), final)


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of a set."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def _union(sets: Any) -> int:
    total = 0
    for one in sets:
        total |= one
    return total
