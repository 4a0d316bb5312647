"""A typed line to the tokens that a model takes: words, words with columns, ready attributes, or numbers."""

from dataclasses import dataclass
from typing import Any, Literal

from trelliswork.explore.requests import RequestError

COLUMN, ATTRIBUTE = "/", "|"
BLANKS = ("_", "___")


@dataclass(frozen=True)
class TokenReader:
    """How a line is read.

    Attributes
    ----------
    form : {"words", "columns", "attributes", "numbers"}
    n_columns : int
        Of a token: with ``"columns"`` they are joined by a slash, as in ``dog/NN``.
    max_words : int
    """

    form: Literal["words", "columns", "attributes", "numbers"] = "words"
    n_columns: int = 1
    max_words: int = 200

    def read(self, text: str) -> tuple[list[Any], list[str]]:
        """The tokens as the model takes them, and the words to show."""
        typed = self.words(text)
        if self.form == "columns":
            tokens = [self._columns(t, word) for t, word in enumerate(typed)]
            return [tuple(token) for token in tokens], [token[0] for token in tokens]
        if self.form == "attributes":
            return [word.split(ATTRIBUTE) for word in typed], typed
        if self.form == "numbers":
            return [self._number(t, word) for t, word in enumerate(typed)], typed
        return list(typed), typed

    def words(self, text: str) -> list[str]:
        """The words of a line; too many are refused."""
        found = text.split()
        if len(found) > self.max_words:
            raise RequestError("the sentence", f"{self.max_words} words at most", f"{len(found)} words")
        return found

    def hint(self) -> str:
        """What to type, in a few words."""
        if self.form == "columns":
            shape = COLUMN.join(["word", "tag", *["column"] * (self.n_columns - 2)])
            return f"Words between spaces, each with its columns: {shape}."
        if self.form == "attributes":
            return f"Tokens between spaces, each a list of attributes: one{ATTRIBUTE}two{ATTRIBUTE}three."
        if self.form == "numbers":
            return "Whole numbers between spaces: this model reads numbers."
        return "Words between spaces, full stops and commas as words of their own."

    def example(self) -> str:
        """A sentence of the bundled corpus, typed as the model wants it; nothing if that cannot be."""
        from trelliswork.data import bundled

        if self.form not in ("words", "columns") or self.n_columns > 2:
            return ""
        sentence = bundled.load("train")[1853]  # short, and its preposition may attach to two words
        if self.n_columns == 1:
            return " ".join(sentence.words)
        return " ".join(f"{word}{COLUMN}{tag}" for word, tag in zip(sentence.words, sentence.tags, strict=True))

    def _columns(self, t: int, typed: str) -> list[str]:
        found = typed.rsplit(COLUMN, self.n_columns - 1)
        if len(found) != self.n_columns or not all(found):
            shape = COLUMN.join(["dog", "NN", *["x"] * (self.n_columns - 2)])
            raise RequestError(
                f"word {t + 1} of the sentence", f"{self.n_columns} columns joined by {COLUMN}, such as {shape}", typed
            )
        return found

    def _number(self, t: int, typed: str) -> int:
        if not typed.isascii() or not typed.isdigit() or len(typed) > 9:
            raise RequestError(f"word {t + 1} of the sentence", "a whole number: the model reads numbers", typed)
        return int(typed)


def feature_reader(feature_map: Any, max_words: int) -> TokenReader:
    """The reader for a ``FeatureMap``: as many columns as its templates look at."""
    from trelliswork.features.presets import preset

    if feature_map.function is None and feature_map.features is None:
        return TokenReader("attributes", max_words=max_words)
    if feature_map.function is not None:
        return TokenReader(max_words=max_words)
    if feature_map.preset is not None:
        n_columns = preset(feature_map.preset).n_columns
    else:
        n_columns = max(1, *(template.n_columns for template in feature_map.features))
    return TokenReader("columns" if n_columns > 1 else "words", n_columns, max_words)
