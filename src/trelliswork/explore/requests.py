"""Input from the page: checked fields of a JSON object, lines of text as tokens of a model, and error messages."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trelliswork.data.tokenize import Tokenizer
from trelliswork.serve.requests import Form, RequestError

MAX_BODY = 64 * 1024  # bytes
MAX_BEST = 20  # structures in a k-best list
COLUMN, ATTRIBUTE = "/", "|"
BLANKS = ("_", "___")


@dataclass(frozen=True)
class Item:
    """Evidence about one token: its value is forced, or some values are forbidden."""

    token: int
    layer: str | None
    force: Any
    forbid: tuple[Any, ...]

    @property
    def named(self) -> tuple[Any, ...]:
        """Values that the evidence names."""
        return self.forbid if self.force is None else (*self.forbid, self.force)


class Body:
    """The fields of a request; each is read once, and ``close`` raises an error if any is left."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise RequestError("the body of the request", "a JSON object", type(fields).__name__)
        self._fields: dict[str, Any] = dict(fields)

    def text(self, name: str) -> str:
        """Return a string that is not blank."""
        value = self._fields.pop(name, None)
        if not isinstance(value, str):
            raise RequestError(f"field {name!r}", "a string", "nothing" if value is None else value)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"field {name!r}", "valid Unicode", "an unpaired surrogate") from None
        if not value.strip():
            raise RequestError(f"field {name!r}", "at least one word", "nothing")
        return value

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return an integer between two limits."""
        value = self._fields.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise RequestError(f"field {name!r}", f"an integer from {low} to {high:,}", value)
        return value

    def items(self, n_tokens: int, layers: Collection[str] | None = None) -> list[Item]:
        """Return field ``evidence``: entries ``{token, layer, force}`` or ``{token, layer, forbid}``, one per place."""
        value = self._fields.pop("evidence", [])
        if not isinstance(value, list) or len(value) > n_tokens * max(1, len(layers or ())):
            raise RequestError("field 'evidence'", "a list with at most one entry per token", value)
        items = [_item(entry, n_tokens, layers) for entry in value]
        if len({(item.token, item.layer) for item in items}) != len(items):
            raise RequestError("field 'evidence'", "at most one entry per token", "several for the same token")
        return items

    def pairs(self, name: str, n_tokens: int) -> list[tuple[int, int, bool]]:
        """Return spans ``{first, last, force}`` of at least two words; ``force: false`` forbids the span."""
        value = self._fields.pop(name, [])
        expected = f"a list of {{first, last, force}} with 0 <= first < last < {n_tokens}"
        if not isinstance(value, list) or len(value) > n_tokens**2:
            raise RequestError(f"field {name!r}", expected, value)
        spans = []
        for entry in value:
            span = entry if isinstance(entry, dict) else {}
            first, last, force = (span.get(key) for key in ("first", "last", "force"))
            good = set(span) == {"first", "last", "force"} and isinstance(force, bool)
            if not good or type(first) is not int or type(last) is not int or not 0 <= first < last < n_tokens:
                raise RequestError(f"field {name!r}", expected, entry)
            spans.append((first, last, bool(force)))
        return spans

    def close(self) -> None:
        """Raise an error if there are fields that were not read."""
        if self._fields:
            raise RequestError("the body of the request", "no other fields", ", ".join(map(repr, self._fields)))


def _item(entry: Any, n_tokens: int, layers: Collection[str] | None) -> Item:
    expected = "{token, force} or {token, forbid: [...]}" + ("" if layers is None else ", and layer")
    names = {"token", "force", "forbid"} | (set() if layers is None else {"layer"})
    if not isinstance(entry, dict) or not set(entry) <= names or ("force" in entry) == ("forbid" in entry):
        raise RequestError("an entry of the evidence", expected, entry)
    token, layer, forbid = entry.get("token"), entry.get("layer"), entry.get("forbid", [])
    if type(token) is not int or not 0 <= token < n_tokens:
        raise RequestError("'token' in an entry of the evidence", f"a number from 0 to {n_tokens - 1}", token)
    if layers is not None and layer not in layers:
        raise RequestError("'layer' in an entry of the evidence", f"one of {', '.join(layers)}", layer)
    if not isinstance(forbid, list) or ("forbid" in entry and not forbid):
        raise RequestError("'forbid' in an entry of the evidence", "a list of at least one value", forbid)
    return Item(token, layer, entry.get("force"), tuple(forbid))


def allowed_values(item: Item, values: Mapping[Any, Any] | Collection[Any], noun: str) -> frozenset[Any]:
    """Return the values that evidence allows for a token; unknown values, or none allowed, are an error."""
    for value in item.named:
        if isinstance(value, bool) or not isinstance(value, str | int) or value not in values:
            raise RequestError(f"a {noun} in the evidence about token {item.token}", f"a {noun} of the model", value)
    allowed = frozenset(values) - set(item.forbid) if item.force is None else frozenset([item.force])
    if not allowed:
        raise RequestError(f"the evidence about token {item.token}", f"at least one allowed {noun}", "all forbidden")
    return allowed


@dataclass
class TokenReader:
    """Format of a line of text.

    Words; words with columns joined by a slash, as in ``dog/NN``; attributes joined by ``|``; or integers.
    """

    form: Literal["words", "columns", "attributes", "numbers"] = "words"
    n_columns: int = 1
    max_words: int = 200
    lower: bool = False  # whether words are converted to lower case, as in training
    split: Tokenizer | None = None  # of raw text; by default words are between white space
    kept: Sequence[Any] | None = None  # a sentence of the training data

    def read(self, text: str, *, blanks: bool = False) -> tuple[list[Any], list[str]]:
        """Return the tokens for the model, and the words to show; ``blanks`` turns ``_`` into ``None``."""
        words = self.words(text)
        tokens = [None if blanks and word in BLANKS else self._token(t, word) for t, word in enumerate(words)]
        if self.form == "columns":
            words = [word if token is None else token[0] for token, word in zip(tokens, words, strict=True)]
        return tokens, words

    def words(self, text: str) -> list[str]:
        """Return the words of a line; too many are an error."""
        text = text.lower() if self.lower else text
        words = text.split() if not self.raw else [piece.text for row in self.split(text) for piece in row]  # type: ignore[misc]
        if len(words) > self.max_words:
            raise RequestError("the sentence", f"at most {self.max_words} words", f"{len(words)} words")
        return words

    @property
    def raw(self) -> bool:
        """Whether the text is raw: words with columns, attributes and numbers are between white space anyway."""
        return self.split is not None and self.form == "words"

    def hint(self) -> str:
        """Return a short description of the format."""
        if self.form == "columns":
            shape = COLUMN.join(["word", "tag", *["column"] * (self.n_columns - 2)])
            return f"Words separated by spaces, each with its columns: {shape}."
        if self.form == "attributes":
            return f"Tokens separated by spaces, each a list of attributes: one{ATTRIBUTE}two{ATTRIBUTE}three."
        if self.form == "numbers":
            return "Integers separated by spaces: this model reads numbers."
        return "Any text." if self.raw else "Words and punctuation marks separated by spaces."

    def example(self) -> str:
        """Return the sentence of the training data that the model keeps; empty if it has none."""
        joint = ATTRIBUTE if self.form == "attributes" else COLUMN
        n = self.n_columns if self.form in ("words", "columns") else None
        return " ".join(joint.join(t[:n]) if isinstance(t, list) else t for t in self.kept or ())

    def _token(self, t: int, typed: str) -> Any:
        if self.form == "attributes":
            return typed.split(ATTRIBUTE)
        if self.form == "numbers":
            if not typed.isascii() or not typed.isdigit() or len(typed) > 9:
                raise RequestError(f"word {t + 1} of the sentence", "an integer: the model reads numbers", typed)
            return int(typed)
        if self.form == "words":
            return typed
        columns = typed.rsplit(COLUMN, self.n_columns - 1)
        if len(columns) != self.n_columns or not all(columns):
            shape = COLUMN.join(["dog", "NN", *["x"] * (self.n_columns - 2)])
            expected = f"{self.n_columns} columns joined by {COLUMN}, such as {shape}"
            raise RequestError(f"word {t + 1} of the sentence", expected, typed)
        return tuple(columns)


def token_reader(model: Any, max_words: int) -> TokenReader:
    """Return the reader for a model: with the columns that it uses."""
    form = Form.of(model)
    return TokenReader(form.kind, form.n_columns, max_words, lower=form.lower)
