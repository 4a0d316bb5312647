"""`data.open`: files of every format as sentences and labels."""

import pytest

from trelliswork.data import Layout, open
from trelliswork.errors import DataError, DataWarning

COLUMNS = "Ada NNP I-PER\nwrote VBD O\n\nBob NNP I-PER\n"


def test_the_format_is_recognized(tmp_path):
    (tmp_path / "a.txt").write_text(COLUMNS, encoding="utf-8")
    (tmp_path / "a.conllu").write_text("1\tAda\t_\tPROPN\tNNP\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": "Ada wrote", "label": [[0, 3, "PER"]]}\n', encoding="utf-8")
    with pytest.warns(DataWarning, match="converted to BIO"):
        X, y = open(tmp_path / "a.txt")
    assert (X.sentences(1), y) == ([["NNP", "VBD"], ["NNP"]], [["B-PER", "O"], ["B-PER"]])
    assert open([tmp_path / "a.conllu", str(tmp_path / "a.conllu")])[1] == [["PROPN"], ["PROPN"]]
    assert open(tmp_path / "a.jsonl")[1] == [["B-PER", "O"]]


def test_a_layout_chooses_columns(tmp_path):
    (tmp_path / "a.txt").write_text(COLUMNS, encoding="utf-8")
    layout = Layout("columns", [0], 1)
    X, y = open(tmp_path / "a.txt", layout)
    assert (len(X.columns), y) == (1, [["NNP", "VBD"], ["NNP"]])
    assert open(tmp_path / "a.txt", Layout("columns", [0], [1, 2]), scheme=None)[1] == {
        "1": [["NNP", "VBD"], ["NNP"]], "2": [["I-PER", "O"], ["I-PER"]],
    }  # fmt: skip
    everything = Layout("columns", [], -1)
    open(tmp_path / "a.txt", everything, scheme=None)
    assert everything == Layout("columns", [], -1)  # unchanged


def test_errors(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        open(tmp_path / "none.txt")
    (tmp_path / "a.txt").write_text("Ada B-PER\nwrote I-LOC\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a.txt:2"):
        open(tmp_path / "a.txt", strict=True)
