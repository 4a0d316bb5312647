"""Input of requests: JSON bodies, checked sentences of the form that a model reads, and error messages."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from trelliswork.models.tasks import Tagger

MAX_SHOWN = 80  # characters of a wrong value that an error message repeats
BLANK = "___"
BUSY = 429  # status of a request that finds too many waiting
Tokens = list[Any]


class RequestError(Exception):
    """A request that cannot be answered: the problem, the expected value, and the value sent."""

    def __init__(self, what: str, expected: str, got: object, status: int = 400, wait: int | None = None) -> None:
        super().__init__(what)
        text = got if isinstance(got, str) else repr(got)
        self.what, self.expected, self.status, self.wait = what, expected, status, wait
        self.got = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ..."

    def to_dict(self) -> dict[str, str]:
        """Return plain data for JSON."""
        return {"what": self.what, "expected": self.expected, "got": self.got}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer: after how many seconds to try again, if that may help."""
        return {} if self.wait is None else {"retry-after": str(self.wait)}


async def read_body(receive: Callable[[], Awaitable[Any]], headers: Any, most: int) -> bytes:
    """Return the body of a request; a longer one than ``most`` bytes is an error.

    A client that sends somewhat more is let finish before it gets the answer, which it would miss otherwise.
    """
    announced = headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() and len(announced) < 20 else 0
    parts: list[bytes] = []
    n = 0
    more = size <= 8 * most
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        part = message.get("body", b"")
        n += len(part)
        if n <= most:
            parts.append(part)
        more = message.get("more_body", False) and n <= 8 * most
    if max(n, size) > most:
        raise RequestError("the body of the request", f"at most {most:,} bytes", f"{max(n, size):,} bytes", status=413)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_json(raw: bytes, what: str = "the body of the request") -> Any:
    """Return JSON as plain data; anything else is an error."""
    try:
        value = _decode(raw.decode())
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise RequestError(what, "JSON", raw[:60].decode(errors="replace")) from None
    if b"\\ud" in raw or b"\\uD" in raw:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RequestError(what, "valid Unicode", "an unpaired surrogate") from None
    return value


def check_type(kind: str | None, *expected: str) -> str:
    """Return the content type of a request; another one than expected is an error."""
    name = (kind or "nothing").split(";")[0].strip().lower()
    if name not in expected:
        raise RequestError("the content type", " or ".join(expected), name, status=415)
    return name


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


@dataclass(frozen=True)
class Form:
    """The tokens that a model reads: words, words with more columns, attributes, or integers."""

    kind: Literal["words", "columns", "attributes", "numbers"] = "words"
    n_columns: int = 1
    lower: bool = False  # whether words are converted to lower case, as in training

    @classmethod
    def of(cls, model: Any) -> "Form":
        """Return the form of a fitted model."""
        features = getattr(getattr(model, "_learned", None), "features", None)
        if hasattr(features, "preset"):
            return _of_features(features)
        if hasattr(model, "_n_columns"):  # a parser
            return cls("columns" if model._n_columns > 1 else "words", model._n_columns)
        if isinstance(model, Tagger) and hasattr(model, "top_words") and not isinstance(_some_word(model), str):
            return cls("numbers")
        return cls(lower=bool(getattr(model, "input_", {}).get("lower")))

    @property
    def expected(self) -> str:
        """Description of a sentence for error messages."""
        if self.kind == "columns":
            return f"a list of tokens, each a list of {self.n_columns} strings"
        if self.kind == "attributes":
            return "a list of tokens, each a list of strings or an object of numbers: its attributes"
        if self.kind == "numbers":
            return "a list of non-negative integers"
        return "a list of words, or a string of words between spaces"

    def sentence(self, value: Any, where: str, blanks: bool = False) -> Tokens:
        """Return a sentence for the model; with ``blanks``, null and ``___`` are words that are missing."""
        tokens = value.split() if isinstance(value, str) and self.kind == "words" else value
        if not isinstance(tokens, list) or not tokens:
            raise RequestError(where, self.expected, "nothing" if tokens in ([], None) else value)
        plain = self.kind == "words" and not self.lower and not blanks
        if plain and set(map(type, tokens)) == {str} and "" not in tokens:  # the usual case, quickly
            return tokens
        if blanks:
            tokens = [None if token == BLANK else token for token in tokens]
        for t, token in enumerate(tokens):
            if type(token) is str and self.kind == "words" and token:
                continue
            if not (token is None and blanks) and not self._fits(token):
                raise RequestError(f"token {t} of {where}", self.expected, token)
        if self.kind == "columns":
            return [tuple(token) for token in tokens]
        return [token and token.lower() for token in tokens] if self.lower else tokens

    def _fits(self, token: Any) -> bool:
        if self.kind == "numbers":
            return type(token) is int and 0 <= token < 1 << 31
        if self.kind == "attributes" and isinstance(token, dict):
            return all(type(value) in (int, float) for value in token.values())
        if self.kind == "words" or not isinstance(token, list):
            return False
        right = all(type(string) is str and string for string in token)
        return right and (self.kind == "attributes" or len(token) == self.n_columns)


def _some_word(model: Any) -> Any:
    """Return a word of a tagger that lists its words: a string, or an integer."""
    return model.top_words(model.labels_[0], 1)[0][0]


def _of_features(feature_map: Any) -> Form:
    """Return the form that a ``FeatureMap`` reads: with the columns that its templates use."""
    n = feature_map.n_columns
    if n is None:
        return Form("attributes") if feature_map.function is None else Form()
    return Form("columns" if n > 1 else "words", max(1, n))
