"""Counts in messages."""

import pytest

from trelliswork.compute.display import plural


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 sentences"), (1, "1 sentence"), (2, "2 sentences"), (1200, "1,200 sentences")]
)
def test_nouns_agree_with_their_number(number, text):
    assert plural(number, "sentences") == text
