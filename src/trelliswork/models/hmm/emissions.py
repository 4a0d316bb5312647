"""Emissions of an HMM: log p(word | state), also of words that do not occur in training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trelliswork.data.files import shorten
from trelliswork.data.vocabulary import UNKNOWN, strings
from trelliswork.errors import DataError
from trelliswork.models.hmm.data import Token
from trelliswork.models.hmm.suffixes import Lexicon, SuffixModel

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


class TableEmissions:
    """Emissions by a table (S, V); of unlisted words by their suffixes, or else as ``<unk>`` if that is listed.

    ``words`` are the listed words by id: strings, or 0 to V-1.
    """

    def __init__(self, words: Sequence[Token], log_emission: Doubles, suffixes: SuffixModel | None) -> None:
        self.words, self.log_emission, self.suffixes = list(words), log_emission, suffixes
        self._ids = {word: i for i, word in enumerate(self.words)}

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.log_emission)

    def rows(self, tokens: Sequence[Token], offsets: Integers) -> Doubles:
        """Return log p(word | state) of each token (n_tokens, S)."""
        other = -1 if self.suffixes is not None else self._ids.get(UNKNOWN, -1)
        ids = np.array([self._ids.get(token, other) for token in tokens], np.int32)
        rows = self.log_emission.T[ids]
        unseen = [tokens[i] for i in np.flatnonzero(ids < 0).tolist()]
        if unseen:
            if self.suffixes is None:
                raise DataError(
                    f"{shorten(unseen[0])} is not among the {len(self.words)} symbols of training, and the model "
                    "cannot score others: train with strings and unknown='suffix' or 'symbol', or leave it out."
                )
            rows[ids < 0] = self.suffixes.log_emission([str(word) for word in unseen])
        return rows

    def table(self) -> Doubles:
        """Return log p(word | state) of the listed words (S, V)."""
        return self.log_emission

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the saved state: plain data, and arrays."""
        plain: dict[str, Any] = {"words": self.words}
        arrays: dict[str, NDArray[Any]] = {"emission": self.log_emission}
        if self.suffixes is not None:
            plain["suffixes"], extra = self.suffixes.state()
            arrays |= {f"suffixes.{name}": array for name, array in extra.items()}
        return plain, arrays


Emissions = Lexicon | TableEmissions


def emissions_from_state(plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Emissions:
    """Build emissions from their ``state``."""
    if "lexicon" in plain:
        return Lexicon.from_state(plain, arrays)
    if not all(type(word) is int for word in plain["words"]):
        strings(plain["words"])  # raises if they are something else
    suffixes = None
    if "suffixes" in plain:
        own = {name.removeprefix("suffixes."): a for name, a in arrays.items() if name.startswith("suffixes.")}
        suffixes = SuffixModel.from_state(plain["suffixes"], own)
    log_emission = arrays["emission"]
    fits = log_emission.dtype == np.float64 and log_emission.ndim == 2 and log_emission.shape[1] == len(plain["words"])
    if not fits or not (log_emission <= 1e-9).all():
        raise DataError("damaged weights: the emissions do not match the words: the file is damaged, train again.")
    return TableEmissions(plain["words"], log_emission, suffixes)
