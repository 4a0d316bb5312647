"""Plain text: one sentence per line, white space between words."""

import os
from array import array

import numpy as np

from trelliswork.data.corpus import Corpus, as_array
from trelliswork.data.files import fields_of, no_sentence, open_text, source_name


def read_text(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> Corpus:
    """Read plain text: one sentence per line, words separated by ASCII white space. Blank lines are skipped.

    Parameters
    ----------
    path : str or path
        A plain or gzip file; ``-`` is the standard input.
    encoding : str

    Returns
    -------
    Corpus
        One column, the words. Equal words are one object.

    Raises
    ------
    DataError
        If there is no sentence, or the file cannot be read (see `open_text`).
    """
    words: list[str] = []
    ends = array("q", [0])
    unique: dict[str, str] = {}
    with open_text(path, encoding=encoding) as file:
        for line in file:
            fields = fields_of(line)
            if fields:
                words.extend([unique.setdefault(field, field) for field in fields])
                ends.append(len(words))
    source = source_name(path)
    if not words:
        raise no_sentence(source, "one per line")
    return Corpus([words], as_array(ends, np.int64), source=source)
