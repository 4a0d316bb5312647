"""The NetTalk pronouncing dictionary: words whose letters are aligned one to one with phonemes and stress."""

import os

import numpy as np

from trelliswork.data.files import no_sentence, open_text, shorten, source_name
from trelliswork.errors import DataError, ShapeError


def read_nettalk(path: str | os.PathLike[str], *, stress: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """Read ``nettalk.data``: a record a line, its word, phonemes, stress and a flag between tabs.

    Parameters
    ----------
    path : str or path
        Lines before the first record, such as a licence, are passed over.
    stress : bool
        Whether labels are phoneme and stress together; phonemes alone by default. A record without all its stress
        marks, of which the file has one, is then left out.

    Returns
    -------
    letters, labels : lists of lists of str
        Of each word one string a letter; ``-`` is a silent letter.

    Raises
    ------
    DataError
        If a record has other than four fields, or not as many phonemes as letters.
    """
    source = source_name(path)
    letters: list[list[str]] = []
    labels: list[list[str]] = []
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip(" ").split("\t")
            if len(fields) != 4 or not fields[0].isalpha():
                if letters and line.strip():
                    raise DataError(
                        f"{source}:{number}: word, phonemes, stress and a number, with tabs between them, are wanted, "
                        f"got {shorten(line)}."
                    )
                continue
            word, phonemes, marks, _ = fields
            if len(word) != len(phonemes):
                raise DataError(
                    f"{source}:{number}: {len(word)} letters and {len(phonemes)} phonemes: they must be as many."
                )
            if stress and len(word) != len(marks):
                continue
            letters.append(list(word))
            labels.append([p + m for p, m in zip(phonemes, marks, strict=True)] if stress else list(phonemes))
    if not letters:
        raise no_sentence(source, "records of word, phonemes, stress and a number")
    return letters, labels


def split_words(
    letters: list[list[str]], labels: list[list[str]], *, n_test: int = 934, seed: int = 0
) -> tuple[tuple[list[list[str]], list[list[str]]], tuple[list[list[str]], list[list[str]]]]:
    """Records for training and testing, cut by spelling: the records of a word are on one side only.

    Words are drawn until at least ``n_test`` records are in the test part.
    """
    if len(letters) != len(labels):
        raise ShapeError(f"letters and labels must pair up, got {len(letters)} and {len(labels)} words.")
    records: dict[str, list[int]] = {}
    for n, word in enumerate(letters):
        records.setdefault("".join(word), []).append(n)
    spellings = list(records)
    chosen: set[int] = set()
    for k in np.random.default_rng(seed).permutation(len(spellings)):
        if len(chosen) >= n_test:
            break
        chosen.update(records[spellings[k]])
    parts = [[n for n in range(len(letters)) if (n in chosen) == test] for test in (False, True)]
    train, test = [([letters[n] for n in part], [labels[n] for n in part]) for part in parts]
    return train, test
