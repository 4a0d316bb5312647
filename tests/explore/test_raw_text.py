"""The explorer with raw text."""

from tests.models.fitted import fitted
from trelliswork.data.tokenize import tokenizer
from trelliswork.explore.abilities import describe, explorer_of
from trelliswork.explore.app import create_app
from trelliswork.explore.requests import Body, TokenReader


def test_raw_text_is_tokenized():
    app = create_app(fitted("HMM"), split=tokenizer())
    answer = app.state.explorer.abilities["tag"](Body({"sentence": "The dog doesn't bark."}))
    assert answer["words"] == ["The", "dog", "does", "n't", "bark", "."]
    assert describe(fitted("HMM"), app.state.explorer, "")["input"]["hint"] == "Any text."


def test_words_with_columns_are_between_white_space_anyway():
    reader = TokenReader("columns", 2, split=tokenizer())
    assert reader.words("dog/NN barks/VB") == ["dog/NN", "barks/VB"]
    assert explorer_of(fitted("CRF")).reader.split is None
