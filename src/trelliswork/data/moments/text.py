"""Names that are now in `trelliswork.data.ids`, for the modules that still import them from here."""

from functools import partial

from trelliswork.data.ids import Callback, CountStep, stream_ids
from trelliswork.data.vocabulary import Vocabulary

__all__ = ["Callback", "CountStep", "number_text", "open_vocabulary", "unknown_word"]

number_text = partial(stream_ids, edges=True)
open_vocabulary = Vocabulary.restored


def unknown_word(vocabulary: Vocabulary) -> str | None:
    """Return ``vocabulary.unknown_word``."""
    return vocabulary.unknown_word
