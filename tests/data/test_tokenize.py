"""Tokenization of raw text: rules, places of tokens, and the commands that read raw text."""

import json
import warnings
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import run
from tests.models.fitted import TAGS, TRAIN, WORDS
from trelliswork import CRF, DependencyParser
from trelliswork.data.conllu import read_conllu
from trelliswork.data.files import Excerpt
from trelliswork.data.tokenize import TokenizedText, read_raw_text, tokenize, tokenizer
from trelliswork.errors import DataError, DataWarning, ValueRangeError


def words(text):
    return [" ".join(piece.text for piece in sentence) for sentence in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("They don't.", ["They do n't ."]),
        ("It’s Ann's, isn't it?", ["It ’s Ann 's , is n't it ?"]),
        ("We cannot go; we'll stay.", ["We can not go ; we 'll stay ."]),
        ("Mr. Smith paid $3.50 (or 5%).", ["Mr. Smith paid $ 3.50 ( or 5 % ) ."]),
        ("The U.S. economy grew. It did.", ["The U.S. economy grew .", "It did ."]),
        ("He lives in the U.S. The end.", ["He lives in the U.S.", "The end ."]),
        ("Prices (etc.) rose 1,000.5 points!", ["Prices ( etc. ) rose 1,000.5 points !"]),
        ('He said "Go." Then he left.', ['He said " Go . "', "Then he left ."]),
        ("Wait... what? Really?! Yes.", ["Wait ... what ?", "Really ?!", "Yes ."]),
        ("See www.example.org/a?b=1, or mail a.b@c.org.", ["See www.example.org/a?b=1 , or mail a.b@c.org ."]),
        ("A state-of-the-art tool -- ours.", ["A state-of-the-art tool -- ours ."]),
        ("Title\n\nFirst line\nand second.", ["Title", "First line and second ."]),
        ("It is 7:30pm on 12/24/2020.", ["It is 7:30 pm on 12/24/2020 ."]),
        ("J. R. Smith left at 5 p.m. yesterday.", ["J. R. Smith left at 5 p.m. yesterday ."]),
        ("I said no. He agreed.", ["I said no .", "He agreed ."]),
        ("Das kostet 3 €. Ça va bien.", ["Das kostet 3 € .", "Ça va bien ."]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_rules(text, expected):
    assert words(text) == expected


@given(st.text(st.sampled_from("aB.,'’!?$5% \n\t()-n't\"é中\u200b"), max_size=60))
def test_tokens_are_the_text_without_white_space(text):
    pieces = [piece for sentence in tokenize(text) for piece in sentence]
    assert "".join(piece.text for piece in pieces) == "".join(text.split())
    assert all(text[piece.start : piece.stop] == piece.text for piece in pieces)
    assert all(a.stop <= b.start for a, b in pairwise(pieces))
    assert all(sentence for sentence in tokenize(text))


def test_a_file_of_raw_text(tmp_path):
    path = tmp_path / "raw.txt"
    path.write_text("Dogs bark,\ndon't they? Yes.\n", encoding="utf-8")
    corpus = read_raw_text(path)
    assert corpus.sentences(0) == [["Dogs", "bark", ",", "do", "n't", "they", "?"], ["Yes", "."]]
    assert [corpus.space_after(i) for i in range(9)] == [True, False, True, False, True, False, True, False, True]
    assert corpus.sentence_text(0) == "Dogs bark, don't they?"
    assert corpus.located(1)["places"] == [[23, 26], [26, 27]]
    path.write_text("\n\n")
    with pytest.raises(DataError, match="running text"):
        read_raw_text(path)
    assert len(read_raw_text(Excerpt(str(path)))) == 0


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return the folders of a tagger and of a parser with a tagger."""
    folder = tmp_path_factory.mktemp("models")
    CRF("pos", tol=0.1).fit(WORDS, TAGS).save(folder / "tagger")
    trees = [list(zip(s.heads, s.relations, strict=True)) for s in TRAIN]
    pairs = [list(zip(s.words, s.tags, strict=True)) for s in TRAIN]
    parser = DependencyParser(1, hash_bits=12, max_iter=1, tagger="crf").fit(pairs, trees)
    parser.input_ = {"columns": ["form", "xpos"]}
    parser.save(folder / "parser")
    return folder


TEXT = "The dog doesn't bark. They left!\n"


def test_tag_keeps_the_places_of_tokens(models):
    done = run("tag", models / "tagger", "--tokenize", input=TEXT)
    assert done.returncode == 0, done.stderr
    blocks = [[line.split("\t") for line in block.split("\n")] for block in done.stdout.strip().split("\n\n")]
    assert [[row[0] for row in block] for block in blocks] == [["The", "dog", "does", "n't", "bark", "."],
                                                               ["They", "left", "!"]]  # fmt: skip
    for row in (row for block in blocks for row in block):
        start, stop = map(int, row[-1].split(":"))
        assert TEXT[start:stop] == row[0]
    answers = [
        json.loads(line)
        for line in run(
            "tag", models / "tagger", "--tokenize", "--with", "marginals", "--output", "jsonl", input=TEXT
        ).stdout.splitlines()
    ]
    assert answers[0]["text"] == "The dog doesn't bark."
    assert [TEXT[a:b] for a, b in answers[1]["places"]] == answers[1]["words"]
    assert len(answers[1]["labels"]) == 3


def test_parse_writes_spaces_and_places(models, tmp_path):
    done = run("parse", models / "parser", "--tokenize", "--with", "marginals", input=TEXT)
    assert done.returncode == 0, done.stderr
    (tmp_path / "out.conllu").write_text(done.stdout)
    corpus = read_conllu(tmp_path / "out.conllu", columns=["form", "misc"])
    assert "# text = The dog doesn't bark." in done.stdout
    text = ""
    for form, misc in zip(*corpus.columns, strict=True):
        fields = dict(part.split("=") for part in misc.split("|"))
        assert set(fields) >= {"ArcProb", "TokenRange"}
        text += form + ("" if fields.get("SpaceAfter") == "No" else " ")
        start, stop = map(int, fields["TokenRange"].split(":"))
        assert TEXT[start:stop] == form
    assert text == "The dog doesn't bark. They left! "
    answer = json.loads(
        run(
            "parse", models / "parser", "--tokenize", "--with", "marginals", "--output", "jsonl", input=TEXT
        ).stdout.splitlines()[0]
    )
    assert answer["places"][2:4] == [[8, 12], [12, 15]]


def test_wrong_use(models):
    for words, message in (
        (["--tokenize", "--format", "columns"], "leave --format columns out"),
        (["--tokenizer", "mystery"], "must be rules"),
        (["--tokenize", "--known", "1"], "raw text does not have"),
    ):
        done = run("tag", models / "tagger", *words, input=TEXT)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.replace("│", " ").split())
    with pytest.raises(ValueRangeError, match="must be rules"):
        tokenizer("mystery:en")


def test_spacy_tokenizes():
    pytest.importorskip("spacy", reason="spaCy is not installed")
    for name in ("spacy", "spacy:en"):
        text = TokenizedText.of(TEXT, tokenizer(name))
        assert text.sentences(0) == [["The", "dog", "does", "n't", "bark", "."], ["They", "left", "!"]]
        assert text.located(0)["places"][3] == [12, 15]


GERMAN = "Die Katze saß auf dem Dach und sah den Vögeln zu, die über dem Garten kreisten. "
ENGLISH = "The cat sat on the roof and watched the birds that were circling over the garden. "


def test_other_languages_are_noticed(tmp_path):
    (tmp_path / "raw").write_text(GERMAN * 5, encoding="utf-8")
    with pytest.warns(DataWarning, match="does not look like English"):
        read_raw_text(tmp_path / "raw")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_raw_text(tmp_path / "raw", split=lambda text: tokenize(text))  # rules of somebody else
        for text in (ENGLISH * 5, GERMAN):  # enough words are needed to know
            (tmp_path / "raw").write_text(text, encoding="utf-8")
            read_raw_text(tmp_path / "raw")
