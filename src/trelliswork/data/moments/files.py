"""Names that are now in `trelliswork.data.ids`, for the modules that still import them from here."""

from trelliswork.data.ids import Source, files_of, paths_listed
from trelliswork.data.ids import tokenized_block as _tokenize

__all__ = ["Source", "_tokenize", "files_of", "paths_listed"]
