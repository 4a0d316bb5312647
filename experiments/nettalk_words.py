"""The NetTalk pronouncing dictionary: words whose letters are aligned one to one with phonemes and stress."""

import os

import numpy as np

from trelliswork.data.files import no_sentence, open_text, shorten, source_name
from trelliswork.errors import DataError, ShapeError


def read_nettalk(path: str | os.PathLike[str], *, stress: bool = False) -> tuple[list[list[str]], list[list[str]]]:
    """Read ``nettalk.data``: one record per line, with word, phonemes, stress and a flag separated by tabs.

    Parameters
    ----------
    path : str or path
        Lines before the first record, such as a license, are skipped.
    stress : bool
        Whether labels are phoneme and stress together; by default they are phonemes. Records with missing stress
        marks, of which the file has one, are then left out.

    Returns
    -------
    letters, labels : lists of lists of str
        One string per letter of each word; ``-`` is a silent letter.

    Raises
    ------
    DataError
        If a record does not have four fields, or not as many phonemes as letters.
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
                        f"{source}:{number}: expected word, phonemes, stress and a number, separated by tabs, "
                        f"got {shorten(line)}."
                    )
                continue
            word, phonemes, marks, _ = fields
            if len(word) != len(phonemes):
                raise DataError(
                    f"{source}:{number}: expected one phoneme per letter, got {len(word)} letters and "
                    f"{len(phonemes)} phonemes."
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
    """Split records into training and test parts, by spelling: all records of a word are in the same part.

    Words are drawn until the test part has at least ``n_test`` records.
    """
    if len(letters) != len(labels):
        raise ShapeError(
            f"letters and labels must have the same number of words, got {len(letters)} and {len(labels)}."
        )
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
