"""Rules as values: what must hold in a whole sentence. Each compiles to an automaton over labels, or over words.

A *span* is one that labels of a scheme such as BIO encode; plain tags form runs of equal tags, and each word stands for
itself. Rules are combined by ``&``, ``|`` and ``~``; ``repr`` writes a rule as `parse` reads it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Literal

import numpy as np

from trelliswork.compute.display import Displayed
from trelliswork.errors import LimitError, ValueRangeError
from trelliswork.inference.chain.automata import Automaton, Mask
from trelliswork.rules.alphabet import Alphabet, Spans
from trelliswork.rules.pattern import compiled, parsed

LARGEST = 1_000  # number in a rule


class Rule(Displayed):
    """Base of all rules.

    Attributes
    ----------
    parts : tuple of Rule
        The rules that must hold together: those that ``&`` joins.
    names : tuple of str
        Labels, types of spans or words that the rule speaks about.

    Examples
    --------
    >>> rule = AtMostOnce("Zip") & ~Count("Street", maximum=0)
    >>> rule.holds(["Street", "Street", "Zip"]), rule.holds(["Zip", "Street", "Zip"])
    (True, False)
    >>> rule
    AtMostOnce("Zip") & ~Count("Street", maximum=0)
    """

    names: tuple[str, ...]

    def __and__(self, other: "Rule") -> "Rule":
        return AllOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __or__(self, other: "Rule") -> "Rule":
        return AnyOf((self, other)) if isinstance(other, Rule) else NotImplemented

    def __invert__(self) -> "Rule":
        return Not((self,))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    def parts(self) -> tuple["Rule", ...]:
        """The rules that must hold together."""
        return (self,)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        """Return an automaton over the letters of an alphabet: that of all parts together."""
        return reduce(Automaton.__and__, (part._letters(alphabet) for part in self.parts))

    def automaton(self, labels: Sequence[str], spans: Spans = "auto") -> Automaton:
        """Return the minimal automaton over the numbers of labels.

        Parameters
        ----------
        labels : sequence of str
            Names of the labels, or words.
        spans : {"auto", "bio", "bioes", "run", "word"}
            What spans are: those of a scheme, runs of equal labels, or single words. By default the scheme of the
            labels is recognized, and plain tags form runs.
        """
        return _automaton(self, Alphabet.of(labels, spans))

    def holds(self, labels: Sequence[str]) -> bool:
        """Return whether the labels of a sentence satisfy the rule."""
        alphabet = Alphabet.of(labels)
        more = list(self.names)
        if alphabet.spans != "run":
            more = [name if name == "O" or name[1:2] == "-" else f"B-{name}" for name in more]
        names = list(dict.fromkeys([*alphabet.labels, *more]))
        ids = [names.index(label) for label in alphabet.labels]
        return all(part.automaton(names, alphabet.spans).accepts(ids) for part in self.parts)


@lru_cache(maxsize=1024)
def _automaton(rule: Rule, alphabet: Alphabet) -> Automaton:
    try:
        return alphabet.over_labels(rule._letters(alphabet))
    except (LimitError, ValueRangeError) as error:
        raise type(error)(f"{rule!r}: {error}") from None


class Written(Rule):
    """A rule with arguments, which are kept as they are written."""

    def __init__(self, names: Sequence[str], *arguments: object, **options: object) -> None:
        for name in names:
            if not isinstance(name, str) or not name:
                raise ValueRangeError(f"{type(self).__name__} takes names of labels, got {name!r}.")
        self.names = tuple(names)
        given = [json.dumps(argument, ensure_ascii=False) for argument in arguments]
        given += [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
        self._text = f"{type(self).__name__}({', '.join(given)})"

    def __repr__(self) -> str:
        return self._text


def _number(rule: str, name: str, value: Any, least: int = 0) -> int:
    """Return a checked number of a rule."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= LARGEST:
        raise ValueRangeError(f"{name} of {rule} must be a whole number from {least} to {LARGEST}, got {value!r}.")
    return int(value)


def _limits(rule: str, minimum: Any, maximum: Any, least: int = 0) -> tuple[int, int | None]:
    low = _number(rule, "minimum", minimum, least)
    high = None if maximum is None else _number(rule, "maximum", maximum, least)
    if high is not None and high < low:
        raise ValueRangeError(f"minimum of {rule} must be at most maximum={high}, got {low}.")
    return low, high


class Count(Written):
    """A label has between ``minimum`` and ``maximum`` spans; or tokens, with ``of="tokens"``.

    Examples
    --------
    >>> Count("PER", 1, 2).holds(["B-PER", "I-PER", "O", "B-PER"])
    True
    >>> Count("PER", maximum=2, of="tokens").holds(["B-PER", "I-PER", "O", "B-PER"])
    False
    """

    def __init__(
        self, label: str, minimum: int = 0, maximum: int | None = None, of: Literal["spans", "tokens"] = "spans"
    ) -> None:
        self.minimum, self.maximum = _limits("Count", minimum, maximum)
        if of not in ("spans", "tokens"):
            raise ValueRangeError(f"of must be 'spans' or 'tokens', got {of!r}.")
        self.of = of
        least = {"minimum": minimum} if minimum or maximum is None else {}
        super().__init__([label], label, **least, maximum=maximum, of=None if of == "spans" else of)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        (label,) = self.names
        event = alphabet.tokens(label) if self.of == "tokens" else alphabet.starts(label)
        return _counter(alphabet, event, self.minimum, self.maximum)


def _counter(alphabet: Alphabet, event: Mask, minimum: int, maximum: int | None) -> Automaton:
    """Return the automaton that counts the letters of an event."""
    return compiled((" ", ("{", (" ", _any(~event), event), minimum, maximum), _any(~event)), alphabet)


def _any(letters: Mask) -> Any:
    """Return the expression for any number of some letters."""
    return ("{", letters, 0, None)


class AtMostOnce(Written):
    """Each of these labels has at most one span.

    Examples
    --------
    >>> AtMostOnce("Zip", "City").holds(["City", "City", "Zip"])
    True
    """

    def __init__(self, *labels: str) -> None:
        if not labels:
            raise ValueRangeError("AtMostOnce needs a label.")
        super().__init__(labels, *labels)

    @property
    def parts(self) -> tuple[Rule, ...]:
        """One rule for each label."""
        return tuple(AtMostOnce(label) for label in self.names)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        each = (_counter(alphabet, alphabet.starts(label), 0, 1) for label in self.names)
        return reduce(Automaton.__and__, each)


class Exactly(Written):
    """Each of these labels has exactly this number of spans: ``Exactly(Street=1, Zip=1)``, or with a dict.

    Examples
    --------
    >>> Exactly({"Street": 1, "Unit": 0}).holds(["Street", "Street", "Zip"])
    True
    """

    def __init__(self, spans: Mapping[str, int] | None = None, /, **more: int) -> None:
        counts = {**(spans or {}), **more}
        if not counts:
            raise ValueRangeError("Exactly needs a label with its number of spans, such as Exactly(Street=1).")
        self.spans = {name: _number("Exactly", str(name), n) for name, n in counts.items()}
        super().__init__(list(counts), self.spans)

    @property
    def parts(self) -> tuple[Rule, ...]:
        """One rule for each label."""
        return tuple(Exactly({name: n}) for name, n in self.spans.items())

    def _letters(self, alphabet: Alphabet) -> Automaton:
        each = (_counter(alphabet, alphabet.starts(label), n, n) for label, n in self.spans.items())
        return reduce(Automaton.__and__, each)


class Forbidden(Written):
    """No span of ``second`` comes anywhere after one of ``first``.

    Examples
    --------
    >>> Forbidden("Zip", "Street").holds(["Street", "Zip"]), Forbidden("Zip", "Street").holds(["Zip", "City", "Street"])
    (True, False)
    """

    def __init__(self, first: str, second: str) -> None:
        super().__init__([first, second], first, second)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        return _never_after(alphabet, *self.names)


def _never_after(alphabet: Alphabet, first: str, second: str) -> Automaton:
    start = alphabet.starts(first)
    return compiled((" ", _any(~start), ("{", (" ", start, _any(~alphabet.starts(second))), 0, 1)), alphabet)


class Before(Written):
    """All spans of ``first`` come before those of ``second``; a sentence may lack either.

    Examples
    --------
    >>> Before("Street", "City").holds(["Street", "City"]), Before("Street", "City").holds(["City", "Street"])
    (True, False)
    """

    def __init__(self, first: str, second: str) -> None:
        if first == second:
            raise ValueRangeError(f"Before needs two labels, got {first!r} twice.")
        super().__init__([first, second], first, second)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        return _never_after(alphabet, *self.names[::-1])


class Length(Written):
    """Every span of a label has between ``minimum`` and ``maximum`` words.

    Examples
    --------
    >>> Length("PER", maximum=2).holds(["B-PER", "I-PER", "B-PER"])
    True
    """

    def __init__(self, label: str, maximum: int | None = None, minimum: int = 1) -> None:
        self.minimum, self.maximum = _limits("Length", minimum, maximum, 1)
        least = {"minimum": minimum} if minimum > 1 or maximum is None else {}
        super().__init__([label], label, maximum=maximum, **least)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        start, goes_on = alphabet.starts(self.names[0]), alphabet.goes_on(self.names[0])
        more = None if self.maximum is None else self.maximum - 1
        span = (" ", start, ("{", goes_on, self.minimum - 1, more))
        return compiled(("{", ("|", ~(start | goes_on), span), 0, None), alphabet)


class IsSpan(Written):
    """The words ``start`` to ``stop - 1`` are one span of a label, neither shorter nor longer.

    Examples
    --------
    >>> IsSpan("PER", 1, 3).holds(["O", "B-PER", "I-PER", "O"]), IsSpan("PER", 1, 2).holds(["O", "B-PER", "I-PER"])
    (True, False)
    """

    def __init__(self, label: str, start: int, stop: int) -> None:
        self.start = _number("IsSpan", "start", start)
        self.stop = _number("IsSpan", "stop", stop, self.start + 1)
        super().__init__([label], label, start, stop)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        start, goes_on = alphabet.starts(self.names[0]), alphabet.goes_on(self.names[0])
        more = self.stop - self.start - 1
        after = ("{", (" ", ~goes_on, _any(start | ~start)), 0, 1)
        return compiled(
            (" ", ("{", (".",), self.start, self.start), start, ("{", goes_on, more, more), after), alphabet
        )


class Pattern(Written):
    r"""The whole sentence matches a regular expression over labels and spans.

    A label such as ``B-PER``, ``O`` or a plain tag stands for one token, a type of spans such as ``PER`` for a whole
    span, a word for itself, and ``.`` for any token. ``x y`` is x before y, ``x | y`` either, ``x?``, ``x*`` and ``x+``
    are repeated, as are ``x{2}``, ``x{2,}`` and ``x{2,5}``. Parentheses group; other names stand in quotes.

    Examples
    --------
    >>> address = Pattern("Number Street+ (Unit Id)? City")
    >>> address.holds(["Number", "Street", "Street", "City"]), address.holds(["Number", "Unit", "City"])
    (True, False)
    >>> Pattern(".* PER LOC .*").holds(["O", "B-PER", "I-PER", "B-LOC"])
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree, names = parsed(text)
        super().__init__(names, text)

    def _letters(self, alphabet: Alphabet) -> Automaton:
        return compiled(self._tree, alphabet)


class _Combined(Rule):
    """Rules that are combined by an operator, which binds more tightly the later it comes in ``|&~``."""

    _sign: str

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self.names = tuple(dict.fromkeys(name for rule in self.rules for name in rule.names))

    def __repr__(self) -> str:
        def bound(rule: Rule) -> str:
            looser = isinstance(rule, _Combined) and "|&~".index(rule._sign) < "|&~".index(self._sign)
            return f"({rule!r})" if looser else repr(rule)

        return f" {self._sign} ".join(map(bound, self.rules)) if self._sign != "~" else f"~{bound(self.rules[0])}"


class AllOf(_Combined):
    """All of some rules hold; written with ``&``."""

    _sign = "&"

    @property
    def parts(self) -> tuple[Rule, ...]:
        """The rules."""
        return tuple(dict.fromkeys(part for rule in self.rules for part in rule.parts))


class AnyOf(_Combined):
    """One of some rules holds; written with ``|``."""

    _sign = "|"

    def _letters(self, alphabet: Alphabet) -> Automaton:
        return reduce(Automaton.__or__, (rule._letters(alphabet) for rule in self.rules))


class Not(_Combined):
    """A rule does not hold; written with ``~``."""

    _sign = "~"

    def _letters(self, alphabet: Alphabet) -> Automaton:
        return ~self.rules[0]._letters(alphabet)
