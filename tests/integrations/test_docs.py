"""Documents of spaCy to sentences and back."""

import pytest

spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install 'trelliswork[spacy]'")

from tests.models.fitted import TRAIN  # noqa: E402
from trelliswork.errors import DataError  # noqa: E402
from trelliswork.integrations.docs import from_docs, read_docbin, to_docs, write_docbin  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = [list(s.words) for s in TRAIN]
GOLD = {
    "tag": [list(s.tags) for s in TRAIN],
    "ent": [list(s.chunks) for s in TRAIN],
    "dep": [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN],
    "pos": [["NOUN" if tag.startswith("N") else "X" for tag in s.tags] for s in TRAIN],
}


@pytest.mark.parametrize("annotation", sorted(GOLD))
def test_there_and_back(annotation, tmp_path):
    docs = to_docs(WORDS, GOLD[annotation], annotation)
    assert from_docs(docs, annotation) == (WORDS, GOLD[annotation])
    write_docbin(docs, tmp_path / "docs.spacy")
    assert from_docs(read_docbin(tmp_path / "docs.spacy"), annotation) == (WORDS, GOLD[annotation])


def test_columns_sentences_and_unknown_labels():
    docs = to_docs(WORDS[:2], GOLD["tag"][:2])
    rows, _ = from_docs(docs, columns=["text", "tag_"])
    assert rows[1] == list(zip(WORDS[1], GOLD["tag"][1], strict=True))
    joined = spacy.tokens.Doc.from_docs(docs)
    assert from_docs([joined], "tag") == (WORDS[:2], GOLD["tag"][:2])
    (doc,) = to_docs([["Anna", "met", "Bo"]], [["B-PER", None, "B-PER"]], "ent")
    assert from_docs([doc], "ent")[1] == [["B-PER", None, "B-PER"]]
    assert from_docs([spacy.blank("en")("")]) == ([], None)


def test_errors(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_docbin(tmp_path / "none.spacy")
    (tmp_path / "bad.spacy").write_bytes(b"nothing")
    with pytest.raises(DataError, match="expected a DocBin file"):
        read_docbin(tmp_path / "bad.spacy")
    with pytest.raises(DataError, match="expected 1 labels"):
        to_docs([["a"]], [["A", "B"]])
