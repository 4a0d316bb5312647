"""Regular expressions over labels and spans, compiled by positions (Glushkov, 1961) and the subset construction.

A name of a type of spans is two positions: a letter that starts the span, and letters that continue it. After a span
only letters that start something may follow, since the span would go on otherwise.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from trelliswork.errors import LimitError, ValueRangeError
from trelliswork.inference.chain.automata import Automaton, Mask, numbered
from trelliswork.rules.alphabet import Alphabet

TOKEN = re.compile(
    r"""\s*(?:(?P<sign>[()|*+?.]|\{\d+(?:,\d*)?\})|"([^"]+)"|'([^']+)'|([^\s"'(){}|*+?.][^\s"'(){}|*+?]*))"""
)
TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}
MOST = 2_000  # positions of a pattern, after repetitions are written out
Tokens = list[tuple[bool, str]]  # whether they are signs, and the text; the next one is the last


def parsed(text: object) -> tuple[Any, list[str]]:
    """Return the tree of a pattern, and the names in it; raise an error if it is not well formed.

    A tree is a name, a mask of letters, ``(".",)``, or a tuple of ``"|"``, ``" "`` or ``"{"`` and its parts.
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
    names = list(dict.fromkeys(name for sign, name in tokens if not sign))
    tokens.reverse()
    tree = _alternatives(text, tokens)
    if tokens:
        raise _error(text, f"{tokens[-1][1]!r} is not expected")
    return tree, names


def _error(text: str, problem: str) -> ValueRangeError:
    return ValueRangeError(f"the pattern {text!r} is not well formed: {problem}.")


def _alternatives(text: str, tokens: Tokens) -> Any:
    """Return alternatives, which are taken from the tokens."""
    parts: list[Any] = [[]]
    while tokens and tokens[-1] != (True, ")"):
        if tokens[-1] == (True, "|"):
            tokens.pop()
            parts.append([])
        else:
            parts[-1].append(_item(text, tokens))
    return ("|", *((" ", *items) for items in parts))


def _item(text: str, tokens: Tokens) -> Any:
    """Return one item with its repetition, which are taken from the tokens."""
    sign, value = tokens.pop()
    tree: Any = (value,) if sign else value
    if sign and value == "(":
        tree = _alternatives(text, tokens)
        if not tokens:
            raise _error(text, "a parenthesis is not closed")
        tokens.pop()
    elif sign and value != ".":
        raise _error(text, f"{value!r} has nothing to repeat")
    if not tokens or not tokens[-1][0] or tokens[-1][1] in ("(", ")", "|", "."):
        return tree
    _, value = tokens.pop()
    low, comma, high = value[1:-1].partition(",")
    limits = TIMES.get(value) or (int(low), int(high) if high else None if comma else int(low))
    if not limits[0] <= (limits[0] if limits[1] is None else limits[1]) <= MOST:
        raise _error(text, f"{value} is no number of repetitions up to {MOST}")
    return ("{", tree, *limits)


class Part(NamedTuple):
    """A part of an expression: whether it may be empty, and the positions that it may start and end with, as bits."""

    empty: bool
    first: int
    last: int


class _Positions:
    """The positions of a pattern: letters that may stand there, and the positions that may follow."""

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self.letters: list[Mask] = []
        self._follow: list[int] = []
        self._inside: dict[int, int] = {}  # of a span, the position of the words that go on with it

    def build(self, tree: Any) -> Part:
        """Return a part of the tree with new positions."""
        alphabet, whole = self._alphabet, Part(True, 0, 0)
        match tree:
            case str() if tree not in alphabet.labels:
                head, tail = self._add(alphabet.starts(tree)), self._add(alphabet.goes_on(tree))
                self._inside |= dict.fromkeys(_bits(head.first | tail.first), tail.first)
                self._link(head.last | tail.last, tail.first)
                return Part(False, head.first, head.last | tail.last)
            case str():
                return self._add(alphabet.tokens(tree))
            case np.ndarray():
                return self._add(tree)
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
            raise LimitError(f"it has more than {MOST:,} names, repetitions included.")
        self.letters.append(letters)
        self._follow.append(0)
        bit = 1 << (len(self.letters) - 1)
        return Part(False, bit, bit)


def compiled(tree: Any, alphabet: Alphabet) -> Automaton:
    """Return an automaton over the letters of an alphabet."""
    positions, n = _Positions(alphabet), alphabet.n_letters
    whole = positions.build(tree)
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
