"""Data frames of pandas to sentences and back."""

import math

import pytest

pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'trelliswork[pandas]'")

from trelliswork.errors import DataError, ShapeError  # noqa: E402
from trelliswork.integrations.frames import from_frame, to_frame  # noqa: E402

X, Y = [["Dogs", "bark"], ["Yes"]], [["NNS", None], ["UH"]]
PAIRS = [[("Dogs", "NNS"), ("bark", "VBP")], [("Yes", "UH")]]


@pytest.mark.parametrize("sentence", ["sentence", None])
def test_there_and_back(sentence, tmp_path):
    frame = to_frame(X, Y, sentence=sentence)
    assert len(frame) == (3 if sentence else 2)
    assert from_frame(frame, "word", "label", sentence=sentence) == (X, Y)
    assert from_frame(frame, "word", sentence=sentence) == (X, None)
    both = to_frame(PAIRS, Y, words=["word", "tag"], sentence=sentence)
    assert from_frame(both, ["word", "tag"], "label", sentence=sentence) == (PAIRS, Y)
    if sentence:  # also through a file, where a missing label is nan
        frame.to_csv(tmp_path / "tokens.csv", index=False)
        again = pd.read_csv(tmp_path / "tokens.csv", keep_default_na=True)
        assert from_frame(again, "word", "label", sentence="sentence") == (X, Y)


def test_a_sentence_ends_where_its_name_changes():
    frame = pd.DataFrame({"s": ["a", "a", "b", "a"], "w": ["1", "2", "3", "4"]})
    assert from_frame(frame, "w", sentence="s")[0] == [["1", "2"], ["3"], ["4"]]


def test_errors():
    frame = to_frame(X, Y)
    with pytest.raises(DataError, match="no column 'tag'; it has sentence, word, label"):
        from_frame(frame, "word", "tag", sentence="sentence")
    with pytest.raises(DataError, match="must have lists of words, got 'Dogs'"):
        from_frame(frame, "word")
    with pytest.raises(DataError, match="missing value"):
        from_frame(pd.DataFrame({"s": [1], "w": [math.nan]}), "w", sentence="s")
    with pytest.raises(ShapeError, match="expected 2 labels"):
        from_frame(pd.DataFrame({"w": [["a", "b"]], "y": [["A"]]}), "w", "y")
    with pytest.raises(ShapeError, match="same length"):
        from_frame(pd.DataFrame({"w": [["a", "b"]], "y": [["A"]]}), ["w", "y"])
