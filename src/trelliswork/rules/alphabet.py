"""What rules read: labels or words, and how they form spans."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.schemes import detect_scheme, joined_labels
from trelliswork.errors import ValueRangeError
from trelliswork.inference.chain.automata import Automaton, Mask, numbered

BILOU = {"L-": "E-", "U-": "S-"}
Spans = Literal["auto", "bio", "bioes", "run", "word"]


@dataclass(frozen=True)
class Alphabet:
    """Labels and the spans that they form.

    With a scheme such as BIO, spans are those that the labels encode. Plain tags form runs: neighbors with the same tag
    are one span. Each word is a span of its own.

    Rules are automata over *letters*: letter j is label j where it continues a span, letter L + j where it starts one
    or stands alone.
    """

    labels: tuple[str, ...]
    spans: Literal["bio", "bioes", "run", "word"]

    @classmethod
    def of(cls, labels: Sequence[str], spans: Spans = "auto") -> "Alphabet":
        """Return the alphabet of labels; by default their scheme is recognized."""
        names = tuple(labels)
        if spans == "auto":
            names = tuple(BILOU.get(name[:2], name[:2]) + name[2:] for name in names)
            return cls(names, detect_scheme(names) or "run")
        return cls(names, spans)

    @property
    def n_letters(self) -> int:
        """Number of letters, 2 L."""
        return 2 * len(self.labels)

    @cached_property
    def _read(self) -> tuple[list[str], NDArray[np.int64], Mask]:
        """Types of spans, the type (L,) of each label, and whether a label continues the span of another (L, L)."""
        n = len(self.labels)
        if self.spans == "run" or self.spans == "word":
            return list(self.labels), np.arange(n), np.eye(n, dtype=bool) & (self.spans == "run")
        return joined_labels(self.labels, self.spans)

    @property
    def names(self) -> list[str]:
        """Types of spans, and labels."""
        return list(dict.fromkeys([*self._read[0], *self.labels]))

    def starts(self, name: str) -> Mask:
        """Return the letters (2 L,) that start a span of a type."""
        return np.concatenate([np.zeros(len(self.labels), bool), self._is(name)])

    def goes_on(self, name: str) -> Mask:
        """Return the letters (2 L,) that continue a span of a type."""
        return np.concatenate([self._is(name), np.zeros(len(self.labels), bool)])

    def tokens(self, name: str) -> Mask:
        """Return the letters (2 L,) of a label, or of all labels of a type."""
        own = np.array([label == name for label in self.labels])
        return np.tile(own if own.any() else self._is(name), 2)

    def _is(self, name: str) -> Mask:
        types, type_of, _ = self._read
        if name not in types:
            near = get_close_matches(name, self.names, 1, 0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            kind = {"run": "labels", "word": "words"}.get(self.spans, "types of spans")
            some = ", ".join(types[:20]) + ", ..." * (len(types) > 20)
            raise ValueRangeError(f"{name!r} is not one of the {kind}: {hint}They are {some}.")
        return np.asarray(type_of == types.index(name))

    def over_labels(self, letters: Automaton) -> Automaton:
        """Return the minimal automaton over labels for one over letters: it remembers which labels would continue."""
        L = len(self.labels)
        joins = self._read[2] & (letters.step[:, :L] != letters.step[:, L:]).any(axis=0)  # as far as it matters
        rows, after = np.unique(np.concatenate([np.zeros((1, L), bool), joins]), axis=0, return_inverse=True)
        begins, after = np.where(rows, 0, L) + np.arange(L), after.reshape(-1)

        def following(code: int) -> list[int]:
            state, row = divmod(code, len(rows))
            ahead: list[int] = (letters.step[state, begins[row]].astype(np.int64) * len(rows) + after[1:]).tolist()
            return ahead

        codes, step = numbered(following, int(after[0]))
        return Automaton(step, letters.final[np.array(codes) // len(rows)]).minimal()
