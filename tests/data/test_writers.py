"""Writers: files have the layout of their formats, and nothing is lost."""

import io

import pytest

from trelliswork.data import Tree, TreebankSentence, bundled
from trelliswork.data.writers import write_columns, write_conllu, write_text, write_trees

SENTENCE = TreebankSentence(
    words=("Cats", "do", "n't", "want", "to", "know", "that", "."),
    tags=("NNS", "VBP", "RB", "VB", "TO", "VB", "DT", "."),
    chunks=("B-NP", "B-VP", "I-VP", "I-VP", "I-VP", "I-VP", "B-NP", "O"),
    heads=(4, 4, 4, 0, 6, 4, 6, 4),
    relations=("nsubj", "aux", "advmod", "root", "mark", "xcomp", "obj", "punct"),
    tree=Tree.parse(
        "(S (NP (NNS Cats)) (VP (VBP do) (RB n't) (VP (VB want) (S (VP (TO to) (VP (VB know) (NP (DT that)))))))(. .))"
    ),
    upos=("NOUN", "AUX", "PART", "VERB", "PART", "VERB", "DET", "PUNCT"),
)


def written(write, sentences):
    file = io.StringIO()
    write(sentences, file)
    return file.getvalue()


def test_conllu_of_one_sentence():
    assert written(write_conllu, [SENTENCE]).splitlines() == [
        "# sent_id = 1",
        "# text = Cats do n't want to know that .",
        "1\tCats\t_\tNOUN\tNNS\t_\t4\tnsubj\t_\t_",
        "2\tdo\t_\tAUX\tVBP\t_\t4\taux\t_\t_",
        "3\tn't\t_\tPART\tRB\t_\t4\tadvmod\t_\t_",
        "4\twant\t_\tVERB\tVB\t_\t0\troot\t_\t_",
        "5\tto\t_\tPART\tTO\t_\t6\tmark\t_\t_",
        "6\tknow\t_\tVERB\tVB\t_\t4\txcomp\t_\t_",
        "7\tthat\t_\tDET\tDT\t_\t6\tobj\t_\t_",
        "8\t.\t_\tPUNCT\t.\t_\t4\tpunct\t_\t_",
        "",
    ]


def test_columns_of_one_sentence():
    text = written(write_columns, [SENTENCE, SENTENCE])
    assert text.startswith("Cats NNS B-NP\ndo VBP B-VP\nn't RB I-VP\n")
    assert text.endswith("that DT B-NP\n. . O\n\n")
    assert text.count("\n\n") == 2


def test_conllu_contains_words_tags_and_arcs():
    sentences = bundled.load("dev")
    blocks = written(write_conllu, sentences).strip().split("\n\n")
    assert len(blocks) == len(sentences)
    for sentence, block in zip(sentences, blocks, strict=True):
        rows = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        assert all(len(row) == 10 for row in rows)
        assert [int(row[0]) for row in rows] == list(range(1, len(sentence) + 1))
        assert tuple(row[1] for row in rows) == sentence.words
        assert tuple(row[4] for row in rows) == sentence.tags
        assert tuple(int(row[6]) for row in rows) == sentence.heads
        assert tuple(row[7] for row in rows) == sentence.relations
        assert all(row[3] != "X" for row in rows)


def test_columns_contain_words_tags_and_chunks():
    sentences = bundled.load("dev")
    blocks = written(write_columns, sentences).strip().split("\n\n")
    for sentence, block in zip(sentences, blocks, strict=True):
        columns = tuple(zip(*(line.split(" ") for line in block.splitlines()), strict=True))
        assert columns == (sentence.words, sentence.tags, sentence.chunks)


def test_text_and_trees_have_one_line_per_sentence():
    sentences = bundled.load("dev")
    lines = written(write_text, sentences).splitlines()
    assert [tuple(line.split(" ")) for line in lines] == [sentence.words for sentence in sentences]
    lines = written(write_trees, sentences).splitlines()
    assert [Tree.parse(line) for line in lines] == [sentence.tree for sentence in sentences]


@pytest.mark.parametrize("write", [write_conllu, write_columns, write_text, write_trees])
def test_no_sentences_give_an_empty_file(write):
    assert written(write, []) == ""
