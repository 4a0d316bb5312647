"""The tokenizer on hostile text: no crash, no hang, and offsets that reproduce the text."""

import random
import sys
import time
from itertools import pairwise

import pytest

from trelliswork.data.tokenize import TokenizedText, tokenize

PUNCTUATION = "-.+@:/'’\"#$%&*_=~<>()[]{}!?,;…`“”€"
MARKS = ["www.", "http://", "no. ", "Mr. ", "U.S.", "n't", "'s", "a@b.", "cannot", "\n\n", "\n \n", " ", "1", "1,", "x"]
UNITS = ["-.", "+a", "no. ", "No.\u00a0", "a@", "a@b-", "@a.b", "www.,", "http://.", "1,", "1x.", "a_", "n't", "U.S.",
         "$+", "\n \n", "\n\r", ":-)", ".'", "'9"]  # fmt: skip


def seconds(text: str) -> float:
    """Return the processor time of a tokenization."""
    began = time.process_time()
    tokenize(text)
    return time.process_time() - began


def repeated(unit: str, length: int) -> str:
    return (unit * (length // len(unit) + 1))[:length]


def random_unit(rng: random.Random) -> str:
    return "".join(rng.choice([*PUNCTUATION, *MARKS]) for _ in range(rng.randint(1, 4)))


def random_text(rng: random.Random) -> str:
    """Return runs of characters of several kinds, one of them from all planes, with surrogates and controls."""
    kinds = [
        lambda: chr(rng.randint(0, sys.maxunicode)) * rng.randint(1, 3),
        lambda: chr(rng.randint(0xD800, 0xDFFF)),
        lambda: chr(rng.randint(0, 0x1F)),
        lambda: rng.choice(PUNCTUATION) * rng.randint(1, 50),
        lambda: rng.choice(MARKS) * rng.randint(1, 5),
        lambda: rng.choice("aZé中ß१") * rng.choice([1, 5, 2_000]),
        lambda: rng.choice("\u200b\u00a0\u2028\u0085\u3000\u0301\u200d\ufeff"),
    ]
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(0, 60)))


def check(text: str) -> None:
    sentences = tokenize(text)
    pieces = [piece for sentence in sentences for piece in sentence]
    assert all(sentences)
    assert all(text[piece.start : piece.stop] == piece.text for piece in pieces)
    assert all(a.stop <= b.start for a, b in pairwise(pieces))
    assert "".join(piece.text for piece in pieces) == "".join(text.split())
    corpus = TokenizedText.of(text)
    assert [text[a:b] for n in range(len(corpus)) for a, b in corpus.located(n)["places"]] == [
        piece.text for piece in pieces
    ]


@pytest.mark.parametrize("seed", range(200))
def test_random_text(seed):
    check(random_text(random.Random(seed)))


@pytest.mark.slow  # a thousand more
def test_much_random_text():
    for seed in range(200, 1_400):
        check(random_text(random.Random(seed)))


@pytest.mark.parametrize("unit", ["-.", "+a"])
def test_repeated_punctuation_takes_linear_time(unit):
    """A quadratic search needs half a minute for this; the limit is ten times what a linear one needs."""
    assert seconds(repeated(unit, 200_000)) < 4


@pytest.mark.slow  # a megabyte each
def test_a_megabyte_of_anything_takes_seconds():
    rng = random.Random(1)
    for unit in [*UNITS, *(random_unit(rng) for _ in range(30))]:
        assert seconds(repeated(unit, 1_000_000)) < 12, unit
    noise = "".join(rng.choice(PUNCTUATION) for _ in range(1_000_000))
    assert seconds(noise) < 12


def test_time_grows_with_the_length():
    """Sixteen times the text takes about sixteen times as long; 256 times if it was quadratic."""
    rng = random.Random(2)
    for unit in [*UNITS, *(random_unit(rng) for _ in range(20))]:
        short = seconds(repeated(unit, 5_000))
        assert seconds(repeated(unit, 80_000)) < 80 * short + 0.5, unit
