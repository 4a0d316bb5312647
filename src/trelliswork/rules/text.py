"""Rules as text: ``AtMostOnce(Zip, "Street Name") & ~Before(City, Street)``, one to a line in a file."""

import ast
from difflib import get_close_matches
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any

from trelliswork.errors import DataError, TrellisworkError, ValueRangeError
from trelliswork.rules import values
from trelliswork.rules.values import Rule

KINDS: dict[str, Any] = {kind.__name__: kind for kind in values.Written.__subclasses__()}
LONGEST = 100_000  # characters of a text


def parse(text: str) -> Rule:
    """Return the rule that a text describes; lines are rules that must hold together, ``#`` starts a comment.

    Names may stand without quotes if they are letters, digits and underscores.

    Examples
    --------
    >>> parse("AtMostOnce(Zip, City) & ~Before(City, Street)")
    AtMostOnce("Zip", "City") & ~Before("City", "Street")
    """
    return _parsed(text, "")


def read(path: str | Path) -> Rule:
    """Return the rules of a file, which must hold together."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason} at byte {error.start}.") from None
    return _parsed(text, f"{path}:")


def _parsed(text: str, place: str) -> Rule:
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueRangeError(f"rules are a text of at most {LONGEST:,} characters, got {str(text)[:60]!r}.")
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            rules.append(_rule(ast.parse(line.strip(), mode="eval").body))
        except TrellisworkError as error:
            raise DataError(f"{place}{number}: {error}" if place else str(error)) from None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            where = f"{place}{number}: " if place else ""
            raise DataError(
                f'{where}{line.strip()[:100]!r} is no rule: write AtMostOnce("Zip") & Before("Street", "City").'
            ) from None
    if not rules:
        raise DataError(f"{place} there is no rule.".strip())
    return reduce(and_, rules)


def _rule(node: Any) -> Rule:
    """Return the rule of a part of the text."""
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            return _rule(left) & _rule(right)
        case ast.BinOp(left, ast.BitOr(), right):
            return _rule(left) | _rule(right)
        case ast.UnaryOp(ast.Invert(), inner):
            return ~_rule(inner)
        case ast.Call(ast.Name(name), arguments, keywords):
            if name not in KINDS:
                near = get_close_matches(name, KINDS, 1, 0.5)
                hint = f"did you mean {near[0]}? " if near else ""
                raise ValueRangeError(f"there is no rule {name}: {hint}The rules are {', '.join(KINDS)}.")
            options = {str(keyword.arg): _value(keyword.value) for keyword in keywords}
            try:
                return KINDS[name](*map(_value, arguments), **options)
            except TypeError as error:
                raise ValueRangeError(f"{name}: {str(error).partition('.__init__() ')[2] or error}.") from None
    raise ValueRangeError(f"{ast.unparse(node)[:60]!r} is no rule: the rules are {', '.join(KINDS)}.")


def _value(node: Any) -> Any:
    """Return a name, a number, or a dict of them."""
    match node:
        case ast.Constant(value) if isinstance(value, str | int) or value is None:
            return value
        case ast.Name(name):
            return name
        case ast.Dict(keys, values_):
            return {_value(key): _value(value) for key, value in zip(keys, values_, strict=True)}
    raise ValueRangeError(f"{ast.unparse(node)[:60]!r} is neither a name nor a number.")
