"""Heads and labels of CoNLL-U files."""

import pytest

from trelliswork.data.conllu import read_dependencies
from trelliswork.errors import DataError


def row(number: int, head: str, label: str = "x") -> str:
    return f"{number}\tw{number}\t_\tN\tNN\t_\t{head}\t{label}\t_\t_\n"


def test_heads_labels_and_empty_columns(tmp_path):
    file = tmp_path / "a.conllu"
    file.write_text(
        "# text\n1-2\tw\t_\t_\t_\t_\t_\t_\t_\t_\n" + row(1, "2") + row(2, "0", "root") + "\n" + row(1, "_", "_")
    )
    corpus, y = read_dependencies(file)
    assert corpus.sentences(2) == [["NN", "NN"], ["NN"]]
    assert y == [[(2, "x"), (0, "root")], [(None, None)]]
    assert corpus.raw is not None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (row(1, "0") + row(2, "3"), r":2: the head must be 0, another word of 1 to 2, or _, got '3'"),
        (row(1, "0") + row(2, "2"), ":2: the head must be"),
        (row(1, "0") + row(2, "-1"), ":2: the head must be"),
        (row(1, "zero"), ":1: the head must be"),
        (row(1, "0") + row(2, "3") + row(3, "2"), ":2: the heads above word 2 form a cycle"),
        ("1 x\n", "expected 10 columns"),
    ],
)
def test_errors_name_file_and_line(tmp_path, rows, message):
    file = tmp_path / "broken.conllu"
    file.write_text(rows)
    with pytest.raises(DataError, match=message) as error:
        read_dependencies(file)
    assert "broken.conllu" in str(error.value)


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("id_", "head"), [("1", DIGITS), (f"1-{DIGITS}", "_"), (f"{DIGITS}.1", "_"), (DIGITS, "_"), ("1", "²")]
)
def test_conllu_numbers_of_any_length(id_, head, tmp_path):
    path = tmp_path / "trees.conllu"
    path.write_text(f"{id_}\tw\t_\tN\tN\t_\t{head}\t_\t_\t_\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"trees.conllu:[12]: ") as caught:
        read_dependencies(path)
    assert len(str(caught.value)) < 400
