"""What a page may send: fields of a JSON object, checked one by one; and the errors it gets back."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

MAX_BODY = 64 * 1024  # bytes
MAX_BEST = 20  # structures of a k-best list
MAX_ANSWERS = 50  # words of a list
MAX_SAMPLES = 50
MAX_SAMPLE_LENGTH = 200
MAX_LINES = 20  # sentences to score at once
MAX_SHOWN = 80  # characters of a bad value that an error repeats


class RequestError(Exception):
    """A request that cannot be answered: what was wrong, what was wanted, what came."""

    def __init__(self, what: str, wanted: str, got: object, status: int = 400) -> None:
        super().__init__(what)
        text = got if isinstance(got, str) else repr(got)
        self.what, self.wanted, self.status = what, wanted, status
        self.got = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ..."

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"what": self.what, "wanted": self.wanted, "got": self.got}


@dataclass(frozen=True)
class Item:
    """Evidence about one token: its value is forced, or some values are forbidden."""

    token: int
    layer: str | None
    force: Any
    forbid: tuple[Any, ...]


class Body:
    """The fields of a request; each is taken once, and ``close`` refuses those that nobody asked for."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise RequestError("the body of the request", "a JSON object", type(fields).__name__)
        self._fields: dict[str, Any] = dict(fields)

    def text(self, name: str) -> str:
        """A string that is not blank."""
        value = self._fields.pop(name, None)
        if not isinstance(value, str):
            raise RequestError(f"field {name!r}", "a string", "nothing" if value is None else value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"field {name!r}", "text in Unicode", "half a surrogate pair") from None
        if not value.strip():
            raise RequestError(f"field {name!r}", "at least one word", "nothing")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number between two others."""
        value = self._fields.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise RequestError(f"field {name!r}", f"a whole number from {low} to {high:,}", value)
        return value

    def items(self, n_tokens: int, layers: Collection[str] | None = None) -> list[Item]:
        """Field ``evidence``: a list of ``{token, layer, force}`` or ``{token, layer, forbid}``, each place once."""
        value = self._fields.pop("evidence", [])
        if not isinstance(value, list) or len(value) > n_tokens * max(1, len(layers or ())):
            raise RequestError("field 'evidence'", "a list with an entry or none for each token", value)
        found = [_item(entry, n_tokens, layers) for entry in value]
        if len({(item.token, item.layer) for item in found}) != len(found):
            raise RequestError("field 'evidence'", "one entry at most for each token", "several for the same")
        return found

    def pairs(self, name: str, n_tokens: int) -> list[tuple[int, int, bool]]:
        """A list of spans ``{first, last, force}`` of two words or more; ``force`` false forbids the span."""
        value = self._fields.pop(name, [])
        wanted = f"a list of {{first, last, force}} with 0 <= first < last < {n_tokens}"
        if not isinstance(value, list) or len(value) > n_tokens**2:
            raise RequestError(f"field {name!r}", wanted, value)
        found = []
        for entry in value:
            span = entry if isinstance(entry, dict) else {}
            first, last, force = (span.get(key) for key in ("first", "last", "force"))
            good = set(span) == {"first", "last", "force"} and isinstance(force, bool)
            if not good or type(first) is not int or type(last) is not int or not 0 <= first < last < n_tokens:
                raise RequestError(f"field {name!r}", wanted, entry)
            found.append((first, last, bool(force)))
        return found

    def close(self) -> None:
        """Refuse fields that were not taken."""
        if self._fields:
            raise RequestError("the body of the request", "no other fields", ", ".join(map(repr, self._fields)))


def _item(entry: Any, n_tokens: int, layers: Collection[str] | None) -> Item:
    wanted = "{token, force} or {token, forbid: [...]}" + ("" if layers is None else ", and layer")
    names = {"token", "force", "forbid"} | (set() if layers is None else {"layer"})
    if not isinstance(entry, dict) or not set(entry) <= names or ("force" in entry) == ("forbid" in entry):
        raise RequestError("an entry of the evidence", wanted, entry)
    token, layer, forbid = entry.get("token"), entry.get("layer"), entry.get("forbid", [])
    if type(token) is not int or not 0 <= token < n_tokens:
        raise RequestError("the token of an entry of the evidence", f"a number from 0 to {n_tokens - 1}", token)
    if layers is not None and layer not in layers:
        raise RequestError("the layer of an entry of the evidence", f"one of {', '.join(layers)}", layer)
    if not isinstance(forbid, list) or ("forbid" in entry and not forbid):
        raise RequestError("what an entry of the evidence forbids", "a list of one or more", forbid)
    return Item(token, layer, entry.get("force"), tuple(forbid))


def allowed_values(item: Item, values: Mapping[Any, Any] | Collection[Any], noun: str) -> frozenset[Any]:
    """The values that evidence leaves to a token; unknown values, or none left, are refused."""
    for value in (*item.forbid, *(() if item.force is None else (item.force,))):
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in values:
            raise RequestError(f"a {noun} in the evidence about token {item.token}", f"a {noun} of the model", value)
    left = frozenset(values) - set(item.forbid) if item.force is None else frozenset([item.force])
    if not left:
        raise RequestError(f"the evidence about token {item.token}", f"a {noun} that is left", "all are forbidden")
    return left
